"""Measurements that scatter and wander, as on a machine that is not left alone."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine

MOST = 20


def _apply(machine: Machine, percent: int = 3, drift: int = 0, seed: int = 1) -> None:
    if percent > MOST or drift > MOST:
        raise ValueError(f"percent={percent},drift={drift}: choose 0 to {MOST} for both")
    machine.surround("measurement", fault="copy-noise", percent=percent, drift=drift, seed=seed)


FAULT = Fault(
    "copy-noise", "copy times scatter by percent (standard deviation) and grow by drift percent in 10 s", _apply
)
