"""Determine how network cards access GPU memory on a host: nvidia_peermem, DMA-BUF, or not at all.

nvidia_peermem is part of the driver and needs the peer memory interface of OFED (or DOCA-OFED): without OFED it is
built, but the kernel rejects it. DMA-BUF needs no separate module, but the open kernel modules and a recent kernel.
"""

import re
from collections.abc import Mapping
from typing import Literal

import msgspec

from gpucheck.stack.facts import HostFacts
from gpucheck.stack.stack_set import StackSet
from gpucheck.stack.types import Reason

Rdma = Literal["none", "inbox", "ofed"]
PATH = "/etc/modules-load.d/gpucheck-nvidia-peermem.conf"
MODULE = "nvidia_peermem"
SOURCE = "azhpc-images"
DMA_BUF_KERNEL = (5, 12)
NAMED_HOSTS = 3


class Outcome(msgspec.Struct, frozen=True):
    """The result for a host, as text. peermem: the module is loaded at boot."""

    peermem: bool
    because: str
    confirmed: bool


def rdma_of_facts(host: HostFacts) -> Rdma:
    if not host.rdma:
        return "none"
    return "ofed" if host.ofed else "inbox"


def outcome(rdma: Rdma, kernel: str, stack: StackSet) -> Outcome | None:
    """Return the result for such a host, None without RDMA cards."""
    if rdma == "none":
        return None
    if rdma == "ofed":
        because = f"RDMA cards and OFED: {MODULE} is loaded at boot and gives the cards access to GPU memory"
        return Outcome(True, because, True)
    lacks = [f"{MODULE} needs OFED or DOCA-OFED, which is not installed"]
    if stack.driver.kernel_module != "open":
        lacks.append("DMA-BUF needs the open kernel modules, and the proprietary ones are planned")
    if _older(kernel, DMA_BUF_KERNEL):
        lacks.append("DMA-BUF needs kernel 5.12 or a backport of it, and the running one is older")
    if len(lacks) == 1:
        because = f"RDMA cards without OFED: they access GPU memory by DMA-BUF of the open kernel modules, not {MODULE}"
        return Outcome(False, because, False)
    because = "RDMA cards cannot access GPU memory, their data is copied through host memory: " + "; ".join(lacks)
    return Outcome(False, f"{because}. Install DOCA-OFED and provision again", False)


def _older(kernel: str, than: tuple[int, int]) -> bool:
    """Return whether a kernel release is known to be older: 5.4.0-216-generic is 5.4."""
    found = re.match(r"(\d+)\.(\d+)", kernel)
    return found is not None and (int(found[1]), int(found[2])) < than


def rdma_plan(hosts: Mapping[str, tuple[Rdma, str]], stack: StackSet) -> tuple[list[tuple[str, str]], list[Reason]]:
    """Return (path, content) of the files and the reasons, for hosts by name with their cards and their kernel.

    A file is included only if every host gets it. If hosts differ, each reason names its hosts.
    """
    found: dict[Outcome, list[str]] = {}
    for name, (rdma, kernel) in sorted(hosts.items()):
        one = outcome(rdma, kernel, stack)
        if one is not None:
            found.setdefault(one, []).append(name)
    reasons = [
        Reason(
            component="rdma",
            because=one.because if len(names) == len(hosts) else f"{_some(names, len(hosts))}: {one.because}",
            source=SOURCE,
            confirmed=one.confirmed,
        )
        for one, names in found.items()
    ]
    whole = any(one.peermem and len(names) == len(hosts) for one, names in found.items())
    return ([(PATH, f"{MODULE}\n")] if whole else []), reasons


def _some(names: list[str], total: int) -> str:
    shown = ", ".join(names[:NAMED_HOSTS]) + (", ..." if len(names) > NAMED_HOSTS else "")
    return f"{len(names)} of {total} hosts ({shown})"
