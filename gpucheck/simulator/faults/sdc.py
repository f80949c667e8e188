"""Silent data corruption: a GPU computes wrong values and reports nothing."""

from gpucheck.simulator.faults import Fault, check_choice
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine, gpu: int, rate: str = "1e-9", kind: str = "random") -> None:
    try:
        wrong = float(rate)
    except ValueError:
        wrong = -1.0
    if not 0 < wrong <= 1:
        raise ValueError(f"rate={rate}: the part of the computed values that is wrong, such as 1e-9")
    check_choice("kind", kind, ("random", "always"))
    machine.gpu(gpu).compute |= {"wrong": wrong} if kind == "random" else {"always": True}


FAULT = Fault("sdc", "a GPU computes wrong values, at random or always the same, and reports no error", _apply)
