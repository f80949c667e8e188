"""Copies: did every copy end by itself, and did every GPU answer after it?

Source: return codes of CUDA, exit status and progress of the child processes that copy, and NVML after a failed copy.
FAIL for a GPU that was lost meanwhile. UNKNOWN for what no link caused: memory, processes or files of the host, a
signal, a defect. Copies that the driver failed, or that hung, are evaluated with the pairs of their GPUs.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from gpucheck.checks._case import UNDER_LOAD
from gpucheck.knowledge.codes import Subject
from gpucheck.knowledge.xid import cuda_error_text
from gpucheck.model import Check, Finding
from gpucheck.model.copies import Copied, Failure, FailureKind, Pair, copied_pairs, where_copied
from gpucheck.model.facts import Facts
from gpucheck.printable import bytes_text, counted

NAME = "p2p-copies"
COPIES, FABRIC, INTEGRITY, BANDWIDTH = (
    Subject(check=name) for name in (NAME, "fabric-memory", "p2p-integrity", "p2p-bandwidth")
)
PACKAGE = {"cuda": "cuda-bindings", "cuda.bindings": "cuda-bindings"}
SHOWN, NAMED = 8, 4
# Of cudaError_t.
NOT_PERMITTED, PEERS_USED_UP = 800, 711
NO_RESOURCES = "measure.copies-no-resources"
CHANNELS = "/dev/nvidia-caps-imex-channels"


# Why a result is unknown, as what is seen, and its code. None is related to a link, a GPU or the driver.
UNKNOWN: dict[FailureKind, tuple[str, str]] = {
    "not-timed": ("the copies could not be queued in time", "measure.copies-not-timed"),
    "no-memory": ("out of memory", "measure.copies-no-memory"),
    "no-process": ("the measuring process could not be started", "measure.copies-no-process"),
    "no-resources": ("the host has no space, memory, processes or open files left for it", NO_RESOURCES),
    "killed": ("the measuring process was killed from outside", "measure.copies-killed"),
    "defect": ("a defect of gpucheck or of a Python package that it uses", "measure.copies-defect"),
    "not-started": ("the copy engine did not start", "measure.engine-not-started"),
}
# Copies between CPU processes use neither driver nor link.
OF_PROCESSES: dict[FailureKind, tuple[str, str]] = {
    "stuck": ("the copy hung", "measure.processes-stuck"),
    "crashed": ("the measuring process crashed", "measure.processes-crashed"),
}


def evaluate(facts: Facts) -> Iterator[Finding]:
    copied = facts.copied
    for place in copied.lost:
        device = copied.devices[place]
        yield replace(COPIES, name=f"gpu:{device.label}").fails(
            "measure.gpu-lost-meanwhile",
            f"GPU {device.index} was lost during the copies",
            "a GPU that NVML can read after the copies",
        )
    yield from _failures(copied, UNKNOWN if copied.of_gpus else UNKNOWN | OF_PROCESSES)


def pairs(facts: Facts) -> Iterator[Finding]:
    """Pairs: is there a pair of GPUs to copy between?

    Source: the devices of the run. SKIP with one GPU, and for CPU processes. How fast pairs copy is evaluated with what
    was read of their links: docs/measuring.md.
    """
    copied = facts.copied
    if copied.opened and not copied.of_gpus:
        shown = counted(copied.pairs, "pair")
        yield BANDWIDTH.skips("measure.only-processes", f"not applicable: {shown} of CPU processes, no GPU")
    elif copied.opened and len(copied.devices) == 1:
        yield BANDWIDTH.skips("measure.single-gpu", "not applicable: 1 GPU, no pair")


def under_load(facts: Facts) -> Iterator[Finding]:
    """Links under load: was NVML read while copies ran?

    Source: readings of NVML between the samples. UNKNOWN without one. What they show is evaluated with the copies.
    """
    copied = facts.copied
    if copied.opened and copied.of_gpus and not copied.loaded and not copied.interrupted:
        load, code = Subject(check=UNDER_LOAD), "measure.load-not-read"
        if copied.unread:
            load, code = load.with_evidence(copied.unread), NO_RESOURCES
        yield load.unknown(code, "link state under load unknown: no NVML reading while copies ran")


def _failures(copied: Copied, reasons: dict[FailureKind, tuple[str, str]]) -> Iterator[Finding]:
    for failure in copied.failures:
        if failure.kind == "missing-package":
            package = PACKAGE.get(failure.detail, failure.detail)
            seen = f"not run: Python package {failure.detail} is not installed"
            yield COPIES.skips("measure.package-missing", seen, package=package)
    for kind, (headline, code) in reasons.items():
        if unknown := [failure for failure in copied.failures if failure.kind == kind]:
            yield _unknown(unknown, headline, code, copied)
    peers = [failure.purpose for failure in copied.failures if failure.kind == "no-peers-left"]
    if peers:
        seen = f"not run: {', '.join(dict.fromkeys(peers))}: {cuda_error_text(PEERS_USED_UP)}"
        yield COPIES.skips("measure.peers-used-up", seen)
    if copied.gave_up and copied.opened:
        yield COPIES.unknown("measure.copies-ended", f"the remaining copies unknown: {copied.gave_up}")
    if copied.interrupted:
        yield COPIES.unknown("measure.copies-interrupted", "interrupted: the remaining copies unknown")


def _unknown(failures: Sequence[Failure], headline: str, code: str, copied: Copied) -> Finding:
    """Return the finding on all failures of one kind. Only timings name the pair; other reasons concern the process."""
    timed = failures[0].kind == "not-timed"
    ends = copied_pairs(failures) if timed else []
    steps = ", ".join(dict.fromkeys(failure.purpose for failure in failures))
    where = f" for {_ends_text(copied, ends)}" if ends else ""
    lines = dict.fromkeys(f"{_copy(f, copied)}, {f.purpose}: {f.detail}" for f in failures)
    subject = Subject(
        check=COPIES.check, name=_subject(copied, ends) if ends else "host", evidence=tuple(lines)[:SHOWN]
    )
    seen = f"{'timings' if timed else 'results'} unknown{where} ({steps}): {headline}"
    known = next(((one.reason, one.values) for one in failures if one.reason is not None), (code, {}))
    values: dict[str, Any] = known[1]
    return subject.unknown(known[0], seen, **values)


def _copy(failure: Failure, copied: Copied) -> str:
    if failure.purpose == "open":
        return "opening the copy engine"
    if ends := copied_pairs([failure]):
        return f"copy {_ends_text(copied, ends)}"
    where = where_copied(failure, copied.devices)
    return f"copy between host and {where}" if where else f"copies ({failure.purpose})"


def integrity(facts: Facts) -> Iterator[Finding]:
    """Data: is every compared byte of copies inside a GPU, or between CPU processes, as it was sent?

    Source: the destination is compared with a pattern that differs in every word, by its device and by the host.
    FAIL for a wrong word. UNKNOWN if nothing was compared. Data of copies between two GPUs is evaluated with their
    pairs, which find the link.
    """
    copied = facts.copied
    if not copied.opened:
        return
    checks = [check for _, check in copied.checks if not copied.of_gpus or check.flow.src == check.flow.dst]
    bad = [check for check in checks if check.mismatches]
    if not any(check.bytes_verified for _, check in copied.checks):
        yield INTEGRITY.unknown("measure.nothing-compared", "data integrity unknown: 0 bytes compared")
    elif bad:
        ends = sorted({(check.flow.src, check.flow.dst) for check in bad})
        subject = Subject(check=INTEGRITY.check, name=_subject(copied, ends), evidence=bad[0].evidence)
        wrong = sum(check.mismatches for check in bad)
        seen = f"{_ends_text(copied, ends)}: {wrong:,} 8-byte word{'s' * (wrong > 1)} wrong"
        yield subject.fails("measure.gpu-data-wrong" if copied.of_gpus else "measure.host-data-wrong", seen, 0)
    elif checks:
        where = "inside GPUs" if copied.of_gpus else "between CPU processes"
        compared = bytes_text(sum(check.bytes_verified for check in checks))
        yield INTEGRITY.passes(f"{compared} compared {where}, no wrong word")


def fabric(facts: Facts) -> Iterator[Finding]:
    """Fabric memory: does the driver share memory of GPUs by fabric handles, as jobs on several hosts need?

    Source: copies through memory that was exported and imported on this host. WARN if the driver rejects it. SKIP
    without an IMEX channel. Wrong data is that of other copies: see p2p-integrity.
    """
    copied = facts.copied
    for failure in (failure for failure in copied.failures if copied.opened and failure.kind == "not-shared"):
        if failure.code == NOT_PERMITTED and not copied.channels:
            yield FABRIC.skips("measure.no-imex-channel", f"not run: no IMEX channel in {CHANNELS}")
            continue
        yield FABRIC.warns(
            "measure.no-fabric-memory",
            f"the driver shares no memory by fabric handles: {failure.detail}",
            "memory that GPUs of other hosts can import",
            confidence="likely" if failure.code == NOT_PERMITTED else "possible",
        )
    checks = [check for _, check in copied.checks if check.flow.method == "fabric"]
    if checks and not any(check.mismatches for check in checks):
        compared = bytes_text(sum(check.bytes_verified for check in checks))
        yield FABRIC.passes(f"{compared} copied through memory imported by fabric handles on this host, no wrong word")


def _subject(copied: Copied, ends: Sequence[Pair]) -> str:
    """Return ``pair:<bus id>-<bus id>`` if all ordered pairs are the same two devices, else ``host``."""
    if len({frozenset(pair) for pair in ends}) != 1:
        return "host"
    a, b = min(ends)
    names = [copied.devices[place].label for place in (a, b)]
    return f"gpu:{names[0]}" if a == b else f"pair:{'-'.join(names)}"


def _ends_text(copied: Copied, ends: Sequence[Pair]) -> str:
    """Return ``GPU 0 <-> 1, 2 -> 3 and 4 more``: one arrow for each two devices, ``<->`` for both directions."""
    names: dict[frozenset[int], str] = {}
    for a, b in ends:
        arrow = "<->" if a != b and (b, a) in ends else "->"
        names.setdefault(frozenset((a, b)), f"{copied.devices[a].index} {arrow} {copied.devices[b].index}")
    texts = list(names.values())
    more = f" and {len(texts) - NAMED} more" if len(texts) > NAMED else ""
    return f"GPU {', '.join(texts[:NAMED])}{more}"


TAGS = frozenset({"measure", "p2p"})
RULES = {
    NAME: evaluate,
    INTEGRITY.check: integrity,
    FABRIC.check: fabric,
    BANDWIDTH.check: pairs,
    UNDER_LOAD: under_load,
}
CHECKS = tuple(Check(name, TAGS, rule, ("copied",)) for name, rule in RULES.items())
