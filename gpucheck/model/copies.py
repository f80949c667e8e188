"""Copies between the devices of one host: which, what was compared of their data, and what became of the others."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from gpucheck.model.device import Device
from gpucheck.model.finding import Values

Pair = tuple[int, int]
HOST = -1  # in place of a device's position: the host's pinned memory


# write: launched by the source, read: launched by the destination. ce: copy engine, sm: a kernel's loads and stores.
# staged: through host memory, as copies without peer access do. fabric: through memory shared by a fabric handle.
Method = Literal["ce-write", "ce-read", "sm-write", "sm-read", "staged", "fabric"]
Damage = Literal["untouched", "zeros", "stale", "other-pair", "shifted", "bit-flip", "mixed"]


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """Copies from one place to another. src and dst: positions among the run's devices, or HOST.

    node: the NUMA node of the host's memory, None is that of the device.
    """

    src: int
    dst: int
    method: Method = "ce-write"
    node: int | None = None


class DataCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One flow's integrity over all rounds of a step. host_bytes: bytes that the host compared too.

    mismatches: wrong words counted by the device. disagreements: words that host and device read differently.
    first: byte offset of the first wrong word, from the start of the region. damage: corruption type of the first bad
    round. at_source: the source held the same wrong words after its copy.
    """

    flow: Flow
    bytes_verified: int = 0
    host_bytes_verified: int = 0
    rounds: int = 0
    bad_rounds: int = 0
    mismatches: int = 0
    disagreements: int = 0
    first: int | None = None
    damage: Damage | None = None
    at_source: bool = False
    evidence: tuple[str, ...] = ()


FailureKind = Literal[
    "refused", "stuck", "crashed", "killed", "no-peers-left", "not-timed", "not-shared", "no-memory", "no-process",
    "no-resources", "defect", "not-started", "missing-package",
]  # fmt: skip


class Failure(msgspec.Struct, frozen=True, kw_only=True, tag="failure"):
    """A step without a result. code: cudaError_t if CUDA returned one.

    Values of kind: ``refused``: CUDA returned an error for a copy. stuck: the deadline passed. crashed: the child
    failed in native code; killed: by a signal from outside. no-peers-left: the GPU maps no further peer.
    not-timed, not-shared: see NotTimed, NotShared. no-memory: GPU or host had too little. no-resources: of the host:
    space, processes, files. defect: gpucheck, or a package that it uses, failed.
    reason: a code of the catalogue with its values, if the engine knows it.
    """

    kind: FailureKind
    purpose: str
    flows: tuple[Flow, ...] = ()
    detail: str = ""
    code: int | None = None
    reason: str | None = None
    values: dict[str, Values] = {}

    @property
    def is_the_copys(self) -> bool:
        """Return whether driver or hardware failed the copy. Other kinds are unrelated to the pair."""
        return self.kind in ("refused", "stuck", "crashed")


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """What the copies of one host came to in addition to their rates, as rules evaluate it.

    devices: by position; of_gpus: False for CPU processes. opened: whether the copy engine did. checks: each with
    whether it was made under load. pairs: timed ones. gave_up: why the rest was not copied. interrupted: by a signal.
    loaded: NVML was read meanwhile; unread: why the operating system let nothing read it. channels: the host has an
    IMEX channel. lost: positions of GPUs that NVML reported as lost after a copy failed.
    """

    devices: tuple[Device, ...]
    of_gpus: bool
    opened: bool
    checks: tuple[tuple[bool, DataCheck], ...] = ()
    failures: tuple[Failure, ...] = ()
    pairs: int = 0
    gave_up: str | None = None
    interrupted: bool = False
    loaded: bool = True
    unread: str = ""
    channels: bool = False
    lost: tuple[int, ...] = ()


def copied_pairs(failures: Sequence[Failure]) -> list[Pair]:
    """Return the ordered pairs of failed copies."""
    flows = dict.fromkeys(flow for failure in failures for flow in failure.flows)
    return list(dict.fromkeys((f.src, f.dst) for f in flows if HOST not in (f.src, f.dst)))


def where_copied(failure: Failure, devices: Sequence[Device]) -> str:
    """Return the GPUs of a copy without a pair: ``GPU 3``; empty for pairs."""
    if any(src != dst for src, dst in copied_pairs([failure])):
        return ""
    found = sorted({devices[max(flow.src, flow.dst)].index for flow in failure.flows})
    return f"GPU {', '.join(map(str, found))}" if found else ""
