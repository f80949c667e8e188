"""Which engine copies on this host, what it is, and how long one of its steps may take."""

from typing import Literal

from gpucheck.measure.planning.selection import Unmeasurable
from gpucheck.model import Host

EngineName = Literal["driver", "torch", "cpu", "simulated"]
# The least that a step is given. On the simulated driver library copies take CPU time.
PATIENCE_S: dict[EngineName, float] = {"driver": 20.0, "torch": 20.0, "cpu": 20.0, "simulated": 3.0}
KIND = {
    "driver": "GPU copies by the CUDA driver API",
    "torch": "GPU copies by torch (CUDA), as a torch job sees them",
    "cpu": "CPU processes through shared memory: no GPU was measured",
    "simulated": "SIMULATED copies: no GPU was measured",
}
SIMULATED = {"driver": "SIMULATED copies by the CUDA driver API on a simulated driver library: no GPU was measured"}


def choose_engine(host: Host, wanted: str) -> EngineName:
    """The engine of an ``auto``: simulated on a simulated machine, else the CUDA driver's. Raises Unmeasurable."""
    simulated = host.simulation() is not None
    if wanted == "simulated" and not simulated:
        raise Unmeasurable(
            "--engine simulated needs a simulated machine. Add --simulate PROFILE (gpucheck profiles lists them).",
            usage=True,
        )
    if wanted == "torch" and simulated:
        raise Unmeasurable(
            "--engine torch copies on real GPUs, and this machine's are simulated. Leave --engine away.", usage=True
        )
    if wanted != "auto":
        return wanted  # type: ignore[return-value]  # click allows no other words
    return "simulated" if simulated else "driver"


def kind_text(engine: EngineName, *, simulated: bool) -> str:
    """What copied, for the head of a report."""
    return SIMULATED[engine] if simulated and engine in SIMULATED else KIND[engine]
