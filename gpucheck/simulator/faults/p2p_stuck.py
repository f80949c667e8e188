"""A copy between two GPUs never ends."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.faults.p2p_slow import pair_of
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine, pair: str) -> None:
    machine.surround("measurement", fault="p2p-stuck", **pair_of(machine, pair))


FAULT = Fault("p2p-stuck", "copies between two GPUs never end", _apply)
