"""Silent data corruption: a GPU computes wrong values and reports nothing."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine, gpu: int, rate: str, kind: str) -> None:
    try:
        wrong = float(rate)
    except ValueError:
        wrong = -1.0
    if not 0 < wrong <= 1:
        raise ValueError(f"rate={rate}: the part of the computed values that is wrong, such as 1e-9")
    if kind not in ("random", "always"):
        raise ValueError(f"kind={kind}: random, or always")
    machine.gpu(gpu).compute |= {"wrong": wrong} if kind == "random" else {"always": True}


FAULT = Fault(
    name="sdc",
    summary="a GPU computes wrong values, at random or always the same, and reports no error",
    apply=_apply,
    parameters={"gpu": int, "rate": "1e-9", "kind": "random"},
)
