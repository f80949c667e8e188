"""Locked memory: may this process pin as much memory as RDMA and NCCL want?

Source: RLIMIT_MEMLOCK. RDMA registers its buffers as locked memory; with a small limit queue pairs fail with ENOMEM.
Without an RDMA device the limit matters little: CUDA pins through its own driver.
"""

from collections.abc import Iterator

import msgspec

from gpucheck.model import Check, Finding, Host
from gpucheck.model.about import About

NAME = "locked-memory"
UNLIMITED = -1
ENOUGH_MIB = 65536
FIX = (
    "memlock unlimited in /etc/security/limits.d for users, LimitMEMLOCK=infinity for services, "
    "--ulimit memlock=-1 for containers"
)


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """memlock_bytes as in gpucheck.model.Limits; rdma: the RDMA devices of the host."""

    memlock_bytes: int | None
    rdma: tuple[str, ...]


def probe(host: Host) -> Values:
    """Ask the kernel and the PCI bus."""
    names = [name for device in host.pci() for name in device.infiniband_names]
    return Values(memlock_bytes=host.limits().memlock_bytes, rdma=tuple(names))


def evaluate(values: Values) -> Iterator[Finding]:
    """One finding for the host."""
    limit = values.memlock_bytes
    about = About(
        check=NAME,
        unit="MiB",
        evidence=(f"RLIMIT_MEMLOCK: {limit}", f"RDMA devices: {', '.join(values.rdma) or 'none'}"),
    )
    if limit is None:
        yield about.unknown("the limit could not be read", "ulimit -l", wanted="unlimited")
    elif limit == UNLIMITED or limit >> 20 >= ENOUGH_MIB:
        yield about.passes("unlimited" if limit == UNLIMITED else limit >> 20, "unlimited")
    elif not values.rdma:
        yield about.skips("no RDMA device here, and CUDA pins memory through its driver", limit >> 20)
    else:
        why = "RDMA registers its buffers as locked memory: NCCL over InfiniBand or RoCE fails with ENOMEM"
        yield about.warns(limit >> 20, "unlimited", why, FIX, "memlock-too-small")


CHECK = Check(NAME, frozenset({"software", "limits", "quick"}), probe, evaluate)
