"""Measurements that scatter and wander, as on a machine that is not left alone."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.faults.p2p_slow import add
from gpucheck.simulator.machine import Machine

MOST = 20


def _apply(machine: Machine, percent: int, drift: int, seed: int) -> None:
    if percent > MOST or drift > MOST:
        raise ValueError(f"percent={percent},drift={drift}: choose 0 to {MOST} for both")
    add(machine, "copy-noise", percent=percent, drift=drift, seed=seed)


FAULT = Fault(
    name="copy-noise",
    summary="copy times scatter by percent (standard deviation) and grow by drift percent in 10 s",
    apply=_apply,
    parameters={"percent": 3, "drift": 0, "seed": 1},
)
