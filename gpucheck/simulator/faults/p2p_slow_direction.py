"""A pair of GPUs copies slower one way: from the first to the second."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.faults.p2p_slow import add, loss, pair_of
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine, pair: str, percent: int) -> None:
    add(machine, "p2p-slow-direction", **pair_of(machine, pair), **loss(percent))


FAULT = Fault(
    name="p2p-slow-direction",
    summary="copies from one GPU to another lose part of their bandwidth, the other way they do not",
    apply=_apply,
    parameters={"pair": str, "percent": 40},
)
