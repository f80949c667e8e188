"""A pair of GPUs that copies well each way alone, and both ways at once hardly faster than one way."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.faults.p2p_slow import add, pair_of
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine, pair: str) -> None:
    add(machine, "p2p-half-duplex", **pair_of(machine, pair))


FAULT = Fault(
    name="p2p-half-duplex",
    summary="two GPUs that copy to each other at the same time share the rate of one direction",
    apply=_apply,
    parameters={"pair": str},
)
