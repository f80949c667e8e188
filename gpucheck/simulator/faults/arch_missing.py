"""The torch build has no code for the GPU: it imports, sees the GPU, and fails at the first kernel."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine

EVERY = (50, 60, 70, 75, 80, 86, 90, 100, 120)


def _apply(machine: Machine, gpu: int, torch: str) -> None:
    """Binary code runs on a GPU of the same major capability, so all of those are left out."""
    major = int(machine.gpu(gpu).model.compute_capability.partition(".")[0])
    machine.surroundings["code_runs"] = [f"sm_{arch}" for arch in EVERY if arch // 10 != major]
    machine.surroundings["python"] = {"torch": torch}


FAULT = Fault(
    name="arch-missing",
    summary="the installed torch build has no code for a GPU",
    apply=_apply,
    parameters={"gpu": 0, "torch": "2.7.1"},
)
