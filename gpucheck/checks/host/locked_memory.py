"""Locked memory: may this process pin as much memory as RDMA and NCCL need?

Source: RLIMIT_MEMLOCK. RDMA registers its buffers as locked memory; with a small limit queue pairs fail with ENOMEM.
Without an RDMA device the limit matters little: CUDA pins through its own driver.
"""

from collections.abc import Iterator

from gpucheck.knowledge.codes import Subject
from gpucheck.model import Check, Finding
from gpucheck.model.facts import Facts

NAME = "locked-memory"
UNLIMITED = -1
ENOUGH_MIB = 65536


def evaluate(facts: Facts) -> Iterator[Finding]:
    limit = facts.limits.memlock_bytes
    rdma = ", ".join(name for device in facts.pci for name in device.infiniband_names)
    devices = rdma or "none" if facts.pci else "not visible"
    subject = Subject(check=NAME, evidence=(f"RLIMIT_MEMLOCK: {_size(limit)}", f"RDMA devices: {devices}"))
    if limit is None:
        yield subject.unknown("host.memlock-unreadable")
    elif limit == UNLIMITED or limit >> 20 >= ENOUGH_MIB:
        yield subject.passes(_size(limit))
    elif not facts.pci:
        yield subject.unknown("host.memlock-need-unknown", limit=_size(limit))
    elif not rdma:
        yield subject.skips("host.memlock-not-needed", _size(limit))
    else:
        yield subject.warns("host.memlock-too-small", _size(limit), "unlimited")


def _size(count: int | None) -> str:
    if count is None:
        return "not readable"
    return "unlimited" if count == UNLIMITED else f"{count >> 20} MiB" if count >= 1 << 20 else f"{count >> 10} KiB"


CHECK = Check(
    NAME,
    frozenset({"software", "limits", "quick"}),
    evaluate=evaluate,
    needs=("limits", "pci"),
    thresholds=(f"WARN below {ENOUGH_MIB >> 10} GiB: an assumption, no source gives a limit that is enough",),
)
