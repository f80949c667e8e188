"""Which engine copies on this host, what it is, and how long one of its steps may take."""

import importlib.util
from typing import Literal

from gpucheck.measure.planning.selection import Unmeasurable
from gpucheck.model import Host

EngineName = Literal["torch", "cupy", "cpu", "simulated"]
PATIENCE_S: dict[EngineName, float] = {"torch": 20.0, "cupy": 20.0, "cpu": 20.0, "simulated": 3.0}
KIND = {
    "torch": "GPU copies by torch (CUDA)",
    "cupy": "GPU copies by CuPy (CUDA)",
    "cpu": "CPU processes through shared memory: no GPU was measured",
    "simulated": "SIMULATED copies: no GPU was measured",
}


def choose_engine(host: Host, wanted: str) -> EngineName:
    """The engine of an ``auto``: simulated on a simulated machine, else torch, else CuPy. Raises Unmeasurable."""
    simulated = host.simulation() is not None
    if wanted == "simulated" and not simulated:
        raise Unmeasurable(
            "--engine simulated needs a simulated machine. Add --simulate PROFILE (gpucheck profiles lists them).",
            usage=True,
        )
    if wanted in ("torch", "cupy") and simulated:
        raise Unmeasurable(
            f"--engine {wanted} copies on real GPUs, and this machine's are simulated. Leave --engine away.", usage=True
        )
    if wanted != "auto":
        return wanted  # type: ignore[return-value]  # click allows no other words
    if simulated:
        return "simulated"
    names: tuple[EngineName, ...] = ("torch", "cupy")
    for name in names:
        if importlib.util.find_spec(name) is not None:
            return name
    raise Unmeasurable(
        "neither torch nor CuPy is installed, so nothing can copy between GPUs. python -m pip install torch numpy, or "
        "--engine cpu for the same method between CPU processes."
    )
