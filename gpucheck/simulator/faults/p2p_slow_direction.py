"""A pair of GPUs copies slower one way: from the first to the second."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.faults.p2p_slow import loss, pair_of
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine, pair: str, percent: int = 40) -> None:
    machine.surround("measurement", fault="p2p-slow-direction", **pair_of(machine, pair), **loss(percent))


FAULT = Fault(
    "p2p-slow-direction",
    "copies from one GPU to another lose part of their bandwidth, the other way they do not",
    _apply,
)
