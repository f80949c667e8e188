"""Choose the copy engine of a host, with its description and the minimum time limit of a step."""

from typing import Literal

from gpucheck.measure.planning.selection import Unmeasurable
from gpucheck.model import Host

EngineName = Literal["driver", "torch", "cpu", "simulated"]
# Minimum time limit of a step. On the simulated driver library copies take CPU time.
PATIENCE_S: dict[EngineName, float] = {"driver": 20.0, "torch": 20.0, "cpu": 20.0, "simulated": 3.0}
KIND = {
    "driver": "GPU copies by the CUDA driver API",
    "torch": "GPU copies by torch (CUDA), as in a torch job",
    "cpu": "CPU processes through shared memory: no GPU was measured",
    "simulated": "SIMULATED copies: no GPU was measured",
}
SIMULATED = {"driver": "SIMULATED copies by the CUDA driver API on a simulated driver library: no GPU was measured"}


def choose_engine(host: Host, wanted: str) -> EngineName:
    """Return the engine; ``auto`` is simulated on a simulated machine, else driver. Raises Unmeasurable."""
    simulated = host.simulation() is not None
    if wanted == "simulated" and not simulated:
        raise Unmeasurable(
            "--engine simulated needs a simulated machine. Add --simulate PROFILE (gpucheck profiles lists them).",
            usage=True,
        )
    if wanted == "torch" and simulated:
        raise Unmeasurable(
            "--engine torch copies on real GPUs, and those of this machine are simulated. Omit --engine.", usage=True
        )
    if wanted != "auto":
        return wanted  # type: ignore[return-value]  # click allows no other values
    return "simulated" if simulated else "driver"


def kind_text(engine: EngineName, *, simulated: bool) -> str:
    """Return the description of the engine for the header of a report."""
    return SIMULATED[engine] if simulated and engine in SIMULATED else KIND[engine]
