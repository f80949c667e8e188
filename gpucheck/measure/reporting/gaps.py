"""Findings on what a run could not measure, and on data of copies without a link. Other modules evaluate links."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from gpucheck.knowledge.codes import Subject
from gpucheck.measure.engines.cuda_errors import PEERS_USED_UP, error_text
from gpucheck.measure.reporting.text import bytes_text, copied_pairs, count_text, pair_subject, pairs_text, where_copied
from gpucheck.measure.running.runner import Results
from gpucheck.measure.values import DataCheck, Failure, FailureKind
from gpucheck.model import Finding, NvmlFailure, NvmlReading
from gpucheck.model.device import Device

COPIES, FABRIC = Subject(check="p2p-copies"), Subject(check="fabric-memory")
INTEGRITY, BANDWIDTH = Subject(check="p2p-integrity"), Subject(check="p2p-bandwidth")
PACKAGE = {"cuda": "cuda-bindings", "cuda.bindings": "cuda-bindings"}
SHOWN = 8
GPU_IS_LOST = 15  # nvmlReturn_t
NOT_PERMITTED = 800
CHANNELS = "/dev/nvidia-caps-imex-channels"


class Reason(NamedTuple):
    """The reason of an unknown result. headline: of what is seen."""

    headline: str
    code: str


# None of these is related to a link, a GPU or the driver.
UNKNOWN: dict[FailureKind, Reason] = {
    "not-timed": Reason("the copies could not be queued in time", "measure.copies-not-timed"),
    "no-memory": Reason("out of memory", "measure.copies-no-memory"),
    "no-process": Reason("the measuring process could not be started", "measure.copies-no-process"),
    "no-resources": Reason(
        "the host has no space, memory, processes or open files left for it", "measure.copies-no-resources"
    ),
    "killed": Reason("the measuring process was killed from outside", "measure.copies-killed"),
    "defect": Reason("a defect of gpucheck or of a Python package that it uses", "measure.copies-defect"),
    "not-started": Reason("the copy engine did not start", "measure.engine-not-started"),
}
# Copies between CPU processes use neither driver nor link.
OF_PROCESSES: dict[FailureKind, Reason] = {
    "stuck": Reason("the copy hung", "measure.processes-stuck"),
    "crashed": Reason("the measuring process crashed", "measure.processes-crashed"),
}


def gaps(results: Results, *, gpus: bool, loaded: bool, channels: bool = False) -> tuple[Finding, ...]:
    """Return findings about what was not measured, and on data of copies without a link.

    gpus: False for CPU processes. loaded: NVML was read meanwhile. channels: the host has an IMEX channel.
    """
    found = [*_failures(results, UNKNOWN if gpus else UNKNOWN | OF_PROCESSES)]
    if results.opened is None:
        return tuple(found)
    found += [*_data(results, gpus=gpus), *_fabric(results, channels=channels)]
    if not gpus:
        found.append(_processes(results))
    elif not loaded:
        found.append(_not_read(results.unread))
    if gpus and len(results.devices) == 1:
        found.append(BANDWIDTH.skips("measure.single-gpu", "not applicable: 1 GPU, no pair"))
    return tuple(found)


def _not_read(rejected: str) -> Finding:
    load, seen = Subject(check="links-under-load"), "link state under load unknown: no NVML reading while copies ran"
    if rejected:
        return load.with_evidence(rejected).unknown(UNKNOWN["no-resources"].code, seen)
    return load.unknown("measure.load-not-read", seen)


def lost(devices: Sequence[Device], after: NvmlReading | NvmlFailure) -> tuple[Finding, ...]:
    """Return a finding for each GPU that NVML reports as lost after a copy failed. after: NVML's reading then."""
    if isinstance(after, NvmlFailure):
        return ()
    gone = {gap.subject for gap in after.gaps if gap.code == GPU_IS_LOST}
    return tuple(
        Subject(check=COPIES.check, name=f"gpu:{device.label}").fails(
            "measure.gpu-lost-meanwhile",
            f"GPU {device.index} was lost during the copies",
            "a GPU that NVML can read after the copies",
        )
        for device in devices
        if {f"gpu index {device.index}", f"gpu:{device.bus_id}"} & gone
    )


def _failures(results: Results, reasons: dict[FailureKind, Reason]) -> Iterator[Finding]:
    """Yield one finding for each reason of missing results, except failures of the driver or a link."""
    for failure in results.failures:
        if failure.kind == "missing-package":
            package = PACKAGE.get(failure.detail, failure.detail)
            seen = f"not run: Python package {failure.detail} is not installed"
            yield COPIES.skips("measure.package-missing", seen, package=package)
    for kind, reason in reasons.items():
        unknown = [failure for failure in results.failures if failure.kind == kind]
        if unknown:
            yield _unknown(unknown, reason, results)
    peers = [failure.purpose for failure in results.failures if failure.kind == "no-peers-left"]
    if peers:
        seen = f"not run: {', '.join(dict.fromkeys(peers))}: {error_text(PEERS_USED_UP)}"
        yield COPIES.skips("measure.peers-used-up", seen)
    if results.gave_up and results.opened is not None:
        yield COPIES.unknown("measure.copies-ended", f"the remaining copies unknown: {results.gave_up}")
    if results.interrupted:
        yield COPIES.unknown("measure.copies-interrupted", "interrupted: the remaining copies unknown")


def _unknown(failures: Sequence[Failure], reason: Reason, results: Results) -> Finding:
    """Return the finding on all failures of one kind. Only timings name the pair; other reasons concern the process."""
    timed = failures[0].kind == "not-timed"
    pairs = copied_pairs(failures) if timed else []
    steps = ", ".join(dict.fromkeys(failure.purpose for failure in failures))
    where = f" for {pairs_text(results, pairs)}" if pairs else ""
    lines = dict.fromkeys(f"{_copy(f, results)}, {f.purpose}: {f.detail}" for f in failures)
    subject = Subject(
        check=COPIES.check, name=pair_subject(results, pairs) if pairs else "host", evidence=tuple(lines)[:SHOWN]
    )
    seen = f"{'timings' if timed else 'results'} unknown{where} ({steps}): {reason.headline}"
    known = next((failure for failure in failures if failure.reason is not None), None)
    if known is None or known.reason is None:
        return subject.unknown(reason.code, seen)
    values: dict[str, Any] = known.values
    return subject.unknown(known.reason, seen, **values)


def _copy(failure: Failure, results: Results) -> str:
    if failure.purpose == "open":
        return "opening the copy engine"
    if pairs := copied_pairs([failure]):
        return f"copy {pairs_text(results, pairs)}"
    where = where_copied(failure, results)
    return f"copy between host and {where}" if where else f"copies ({failure.purpose})"


def _data(results: Results, *, gpus: bool) -> Iterator[Finding]:
    """Yield a finding if nothing was compared, and on compared data inside one device or between processes."""
    checks = [check for _, check in results.checks if not gpus or check.flow.src == check.flow.dst]
    bad = [check for check in checks if check.mismatches]
    if not any(check.bytes_verified for _, check in results.checks):
        yield INTEGRITY.unknown("measure.nothing-compared", "data integrity unknown: 0 bytes compared")
    elif bad:
        yield _wrong(bad, results, gpus=gpus)
    elif checks:
        where = "inside GPUs" if gpus else "between CPU processes"
        compared = bytes_text(sum(check.bytes_verified for check in checks))
        yield INTEGRITY.passes(f"{compared} compared {where}, no wrong word")


def _wrong(bad: Sequence[DataCheck], results: Results, *, gpus: bool) -> Finding:
    pairs = sorted({(check.flow.src, check.flow.dst) for check in bad})
    subject = Subject(check=INTEGRITY.check, name=pair_subject(results, pairs), evidence=bad[0].evidence)
    seen = f"{pairs_text(results, pairs)}: {count_text(sum(c.mismatches for c in bad), '8-byte word')} wrong"
    return subject.fails("measure.gpu-data-wrong" if gpus else "measure.host-data-wrong", seen, 0)


def _fabric(results: Results, *, channels: bool) -> Iterator[Finding]:
    """Yield a finding on memory shared by fabric handles. Wrong data is that of other copies: see p2p-integrity."""
    for failure in (failure for failure in results.failures if failure.kind == "not-shared"):
        if failure.code == NOT_PERMITTED and not channels:
            yield FABRIC.skips("measure.no-imex-channel", f"not run: no IMEX channel in {CHANNELS}")
            continue
        yield FABRIC.warns(
            "measure.no-fabric-memory",
            f"the driver shares no memory by fabric handles: {failure.detail}",
            "memory that GPUs of other hosts can import",
            confidence="likely" if failure.code == NOT_PERMITTED else "possible",
        )
    checks = [check for _, check in results.checks if check.flow.method == "fabric"]
    if checks and not any(check.mismatches for check in checks):
        compared = bytes_text(sum(check.bytes_verified for check in checks))
        yield FABRIC.passes(f"{compared} copied through memory imported by fabric handles on this host, no wrong word")


def _processes(results: Results) -> Finding:
    pairs = sum(1 for _ in results.measured())
    seen = f"not applicable: {count_text(pairs, 'pair')} of CPU processes, no GPU"
    return BANDWIDTH.skips("measure.only-processes", seen)
