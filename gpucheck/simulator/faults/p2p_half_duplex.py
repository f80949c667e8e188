"""A pair of GPUs that copies well each way alone, and both ways at once hardly faster than one way."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.faults.p2p_slow import pair_of
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine, pair: str) -> None:
    machine.surround("measurement", fault="p2p-half-duplex", **pair_of(machine, pair))


FAULT = Fault(
    "p2p-half-duplex", "two GPUs that copy to each other at the same time share the rate of one direction", _apply
)
