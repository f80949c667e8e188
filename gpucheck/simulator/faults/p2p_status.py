"""The driver denies peer to peer between two GPUs, and returns a reason."""

import re

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine

# nvmlGpuP2PStatus_t: chipset, GPU, topology not supported, disabled in the registry, not supported
STATUSES = {"CNS": 1, "GNS": 2, "TNS": 3, "DR": 4, "NS": 5}


def _apply(machine: Machine, pair: str, status: str) -> None:
    """Both ways."""
    if not re.fullmatch(r"[0-9]+-[0-9]+", pair):
        raise ValueError(f"pair={pair}: two GPUs are written 0-1")
    if status not in STATUSES:
        raise ValueError(f"status={status}: choose one of {', '.join(STATUSES)}")
    a, b = (machine.gpu(int(number)) for number in pair.split("-"))
    if a is b:
        raise ValueError(f"pair={pair}: two different GPUs are needed")
    a.p2p_refused[b.function.bus_id] = b.p2p_refused[a.function.bus_id] = STATUSES[status]


FAULT = Fault(
    name="p2p-status",
    summary="the driver denies peer to peer between two GPUs",
    apply=_apply,
    parameters={"pair": str, "status": "CNS"},
)
