"""The copy engine of a host: its description and the minimum time limit of a step."""

from typing import Literal

EngineName = Literal["driver", "cpu"]
# Minimum time limit of a step, without the time that it waits for a processor (processes.contention). A simulated copy
# takes no time of its own: its step is a fraction of a second of CPU time.
PATIENCE_S, SIMULATED_PATIENCE_S = 20.0, 5.0
KIND = {
    "driver": "GPU copies by the CUDA driver API",
    "cpu": "CPU processes through shared memory: no GPU was measured",
}
SIMULATED = {"driver": "SIMULATED copies by the CUDA driver API on a simulated driver library: no GPU was measured"}


def patience_s(engine: EngineName, *, simulated: bool) -> float:
    """Return the minimum time limit of a step in seconds."""
    return SIMULATED_PATIENCE_S if simulated and engine == "driver" else PATIENCE_S


def kind_text(engine: EngineName, *, simulated: bool) -> str:
    """Return the description of the engine for the header of a report."""
    return SIMULATED[engine] if simulated and engine in SIMULATED else KIND[engine]
