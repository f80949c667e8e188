"""Which engine copies on this host, what it is, and how long one of its steps may take."""

from typing import Literal

from gpucheck.measure.planning.selection import Unmeasurable
from gpucheck.model import Host

EngineName = Literal["driver", "torch", "cpu"]
# The least that a step is given, waiting for a processor not counted (processes.contention). A simulated copy takes no
# time of its own: its step is a fraction of a second of CPU time.
PATIENCE_S, SIMULATED_PATIENCE_S = 20.0, 5.0
KIND = {
    "driver": "GPU copies by the CUDA driver API",
    "torch": "GPU copies by torch (CUDA), as a torch job sees them",
    "cpu": "CPU processes through shared memory: no GPU was measured",
}
SIMULATED = {"driver": "SIMULATED copies by the CUDA driver API on a simulated driver library: no GPU was measured"}


def choose_engine(host: Host, wanted: str) -> EngineName:
    """The engine of an ``auto``: the CUDA driver's, on a simulated machine as well. Raises Unmeasurable."""
    if wanted == "torch" and host.simulation() is not None:
        raise Unmeasurable(
            "--engine torch copies on real GPUs, and this machine's are simulated. Leave --engine away.", usage=True
        )
    if wanted != "auto":
        return wanted  # type: ignore[return-value]  # click allows no other words
    return "driver"


def patience_s(engine: EngineName, *, simulated: bool) -> float:
    """Seconds that each step is given at least, unless --timeout states another number."""
    return SIMULATED_PATIENCE_S if simulated and engine == "driver" else PATIENCE_S


def kind_text(engine: EngineName, *, simulated: bool) -> str:
    """What copied, for the head of a report."""
    return SIMULATED[engine] if simulated and engine in SIMULATED else KIND[engine]
