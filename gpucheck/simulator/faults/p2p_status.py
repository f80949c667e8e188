"""The driver denies peer to peer between two GPUs, and returns a reason."""

import re

from gpucheck.host.nvml.reading import P2P_STATUS
from gpucheck.simulator.faults import Fault, check_choice
from gpucheck.simulator.machine import Machine

# Chipset, GPU, topology not supported, disabled in the registry, not supported
STATUSES = {name: code for code, name in P2P_STATUS.items() if name != "OK"}


def _apply(machine: Machine, pair: str, status: str = "CNS") -> None:
    """Both ways."""
    if not re.fullmatch(r"[0-9]+-[0-9]+", pair):
        raise ValueError(f"pair={pair}: two GPUs are written 0-1")
    check_choice("status", status, STATUSES)
    a, b = (machine.gpu(int(number)) for number in pair.split("-"))
    if a is b:
        raise ValueError(f"pair={pair}: two different GPUs are needed")
    a.p2p_refused[b.function.bus_id] = b.p2p_refused[a.function.bus_id] = STATUSES[status]


FAULT = Fault("p2p-status", "the driver denies peer to peer between two GPUs", _apply)
