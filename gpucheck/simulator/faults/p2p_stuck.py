"""A copy between two GPUs never ends."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.faults.p2p_slow import add, pair_of
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine, pair: str) -> None:
    add(machine, "p2p-stuck", **pair_of(machine, pair))


FAULT = Fault(
    name="p2p-stuck",
    summary="copies between two GPUs never end",
    apply=_apply,
    parameters={"pair": str},
)
