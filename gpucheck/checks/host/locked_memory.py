"""Locked memory: may this process pin as much memory as RDMA and NCCL need?

Source: RLIMIT_MEMLOCK. RDMA registers its buffers as locked memory; with a small limit queue pairs fail with ENOMEM.
Without an RDMA device the limit matters little: CUDA pins through its own driver.
"""

from collections.abc import Iterator

import msgspec

from gpucheck.model import Check, Finding, Host
from gpucheck.model.finding.about import About

NAME = "locked-memory"
UNLIMITED = -1
# An assumption of gpucheck: no published source gives a sufficient limit below "unlimited".
ENOUGH_MIB = 65536
FIX = (
    "memlock unlimited in /etc/security/limits.d for users, LimitMEMLOCK=infinity for services, "
    "--ulimit memlock=-1 for containers"
)


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """memlock_bytes as in gpucheck.model.Limits; rdma: the RDMA devices, None where sysfs shows no PCI device."""

    memlock_bytes: int | None
    rdma: tuple[str, ...] | None


def probe(host: Host) -> Values:
    pci = host.pci()
    names = tuple(name for device in pci for name in device.infiniband_names)
    return Values(memlock_bytes=host.limits().memlock_bytes, rdma=names if pci else None)


def evaluate(values: Values) -> Iterator[Finding]:
    limit = values.memlock_bytes
    devices = "not visible" if values.rdma is None else ", ".join(values.rdma) or "none"
    about = About(check=NAME, evidence=(f"RLIMIT_MEMLOCK: {_size(limit)}", f"RDMA devices: {devices}"))
    if limit is None:
        yield about.unknown("locked memory limit unknown: RLIMIT_MEMLOCK cannot be read", "ulimit -l")
    elif limit == UNLIMITED or limit >> 20 >= ENOUGH_MIB:
        yield about.passes(_size(limit))
    elif values.rdma is None:
        why = f"required locked memory unknown: sysfs shows no PCI devices (the limit is {_size(limit)})"
        yield about.unknown(why, "run on the host, or mount /sys read-only into the container")
    elif not values.rdma:
        yield about.skips("not applicable: no RDMA device, and CUDA pins memory through its driver", _size(limit))
    else:
        why = "RDMA registers its buffers as locked memory: NCCL over InfiniBand or RoCE fails with ENOMEM."
        yield about.warns(_size(limit), "unlimited", why, FIX, "memlock-too-small")


def _size(count: int | None) -> str:
    if count is None:
        return "not readable"
    return "unlimited" if count == UNLIMITED else f"{count >> 20} MiB" if count >= 1 << 20 else f"{count >> 10} KiB"


CHECK = Check(NAME, frozenset({"software", "limits", "quick"}), probe, evaluate)
