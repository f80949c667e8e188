"""The driver reported an error of a GPU in the kernel log."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine
from gpucheck.simulator.xids import xid_line

APART_S = 30


def _apply(machine: Machine, gpu: int, code: int, age: int = 600, count: int = 1) -> None:
    """count times, the last one age seconds ago."""
    line = xid_line(machine.gpu(gpu).function.bus_id, code)
    if count < 1:
        raise ValueError(f"count={count}: at least once")
    for number in range(count):
        machine.log(line, age_s=age + number * APART_S)


FAULT = Fault("xid", "the kernel log holds an Xid of a GPU", _apply)
