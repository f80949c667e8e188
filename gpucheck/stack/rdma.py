"""Determine how network cards access GPU memory on a host, and the libraries with which programs use the cards.

nvidia_peermem is part of the driver and needs the peer memory interface of OFED (or DOCA-OFED): without OFED it is
built, but the kernel rejects it. DMA-BUF needs no separate module, but the open kernel modules and a recent kernel.
NCCL loads libibverbs and its provider of the card at run time; OFED contains both.
"""

import re
from collections.abc import Mapping
from typing import Literal

import msgspec

from gpucheck.knowledge.tables import OperatingSystem
from gpucheck.stack.facts import HostFacts
from gpucheck.stack.packages import Package, package
from gpucheck.stack.stack_set import StackSet
from gpucheck.stack.types import Reason

# old-ofed: OFED is installed, and its driver was not built for the running kernel.
Rdma = Literal["none", "inbox", "ofed", "old-ofed"]
PATH = "/etc/modules-load.d/gpucheck-nvidia-peermem.conf"
MODULE = "nvidia_peermem"
SOURCE = "azhpc-images"
DMA_BUF_KERNEL = (5, 12)
NAMED_HOSTS = 3
REBUILD = "Build it (dkms autoinstall) or install the release of OFED for this kernel, and plan again"
# Of the distribution, by family: Debian 12's packages of rdma-core 44, and redhat/rdma-core.spec, whose libibverbs
# contains the providers. The package rdma-core is not needed: its udev rules rename the cards at the next boot
# (60-rdma-persistent-naming.rules), and lists such as NCCL_IB_HCA then name none. On EL libibverbs may depend on it.
LIBRARIES = {"debian": ("libibverbs1", "ibverbs-providers"), "redhat": ("libibverbs",)}
LIBRARIES_SOURCE = "rdma-core"
RENAMED = (
    ". If rdma-core comes with it, its udev rules rename RDMA devices at the next boot, such as mlx5_0 to ibp65s0: "
    "NCCL_IB_HCA must name the new ones"
)


class Outcome(msgspec.Struct, frozen=True):
    """The result for a host, as text. peermem: the module is loaded at boot."""

    peermem: bool
    because: str
    confirmed: bool


def rdma_of_facts(host: HostFacts) -> Rdma:
    if not host.rdma:
        return "none"
    if not host.ofed:
        return "inbox"
    return "ofed" if host.ofed_built else "old-ofed"


def outcome(rdma: Rdma, kernel: str, stack: StackSet) -> Outcome | None:
    """Return the result for such a host, None without RDMA cards."""
    if rdma == "none":
        return None
    if rdma == "ofed":
        because = f"RDMA cards and OFED: {MODULE} is loaded at boot and gives the cards access to GPU memory"
        return Outcome(True, because, True)
    old = f"OFED is installed, and its driver is not built for kernel {kernel}, so that {MODULE} cannot be loaded"
    without = f"{MODULE} needs OFED or DOCA-OFED, which is not installed"
    lacks = [old if rdma == "old-ofed" else without]
    if stack.driver.kernel_module != "open":
        lacks.append("DMA-BUF needs the open kernel modules, and the proprietary ones are planned")
    if _older(kernel, DMA_BUF_KERNEL):
        lacks.append("DMA-BUF needs kernel 5.12 or a backport of it, and the running one is older")
    if len(lacks) == 1 and rdma == "old-ofed":
        return Outcome(
            False, f"{old}; the cards access GPU memory by DMA-BUF of the open kernel modules. {REBUILD}", False
        )
    if len(lacks) == 1:
        because = f"RDMA cards without OFED: they access GPU memory by DMA-BUF of the open kernel modules, not {MODULE}"
        return Outcome(False, because, False)
    because = "RDMA cards cannot access GPU memory, their data is copied through host memory: " + "; ".join(lacks)
    remedy = REBUILD if rdma == "old-ofed" else "Install DOCA-OFED and provision again"
    return Outcome(False, f"{because}. {remedy}", False)


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
    reasons = [_reason(one.because, names, len(hosts), SOURCE, one.confirmed) for one, names in found.items()]
    whole = any(one.peermem and len(names) == len(hosts) for one, names in found.items())
    return ([(PATH, f"{MODULE}\n")] if whole else []), reasons


def library_plan(
    hosts: Mapping[str, tuple[Rdma, str]], system: OperatingSystem, *, memlock: bool
) -> tuple[list[Package], list[Reason]]:
    """Return the packages if one of the hosts needs them, and the reasons. memlock: stack.yml sets the limit."""
    inbox = sorted(name for name, (rdma, _) in hosts.items() if rdma == "inbox")
    every = sorted(name for name, (rdma, _) in hosts.items() if rdma != "none")
    names = LIBRARIES[system.family] if inbox else ()
    reasons = []
    if inbox:
        because = (
            f"RDMA cards without OFED: {' and '.join(names)} of the distribution, in any version; without it NCCL uses "
            f"sockets between hosts{RENAMED if system.family == 'redhat' else ''}"
        )
        reasons.append(_reason(because, inbox, len(hosts), LIBRARIES_SOURCE, confirmed=True))
    if every and not memlock:
        because = (
            "RDMA registers its buffers as locked memory, and the host's limits for it are unmanaged. Set tuning: "
            "{memlock: unlimited} if they are small"
        )
        reasons.append(_reason(because, every, len(hosts), LIBRARIES_SOURCE, confirmed=True))
    return [package(system, name, None) for name in names], reasons


def _reason(because: str, names: list[str], total: int, source: str, confirmed: bool) -> Reason:
    text = because if len(names) == total else f"{_some(names, total)}: {because}"
    return Reason(component="rdma", because=text, source=source, confirmed=confirmed)


def _some(names: list[str], total: int) -> str:
    shown = ", ".join(names[:NAMED_HOSTS]) + (", ..." if len(names) > NAMED_HOSTS else "")
    return f"{len(names)} of {total} hosts ({shown})"
