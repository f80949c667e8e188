"""Findings on what a run could not measure, and on data of copies without a link. Other modules evaluate links."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpucheck.measure.engines.cuda_errors import PEERS_USED_UP, error_text
from gpucheck.measure.reporting.text import bytes_text, copied_pairs, count_text, pair_subject, pairs_text, where_copied
from gpucheck.measure.running.runner import Results
from gpucheck.measure.values import Check, Device, Failure, FailureKind
from gpucheck.model import Finding, NvmlFailure, NvmlReading
from gpucheck.model.finding.about import About

COPIES, FABRIC = About(check="p2p-copies"), About(check="fabric-memory")
PACKAGE = {"cuda": "cuda-bindings", "cuda.bindings": "cuda-bindings"}
AGAIN = "gpucheck bandwidth"
SHOWN = 8
GPU_IS_LOST = 15  # nvmlReturn_t
NOT_PERMITTED = 800
CHANNELS = "/dev/nvidia-caps-imex-channels"
SHARED = (
    "Copies between hosts of this NVLink domain need such memory; NCCL makes the same calls, and uses the network or "
    "fails without it."
)
FIND_CHANNEL = f"ls -l {CHANNELS}\nnvidia-imex-ctl -N\ngpucheck verify --only imex"


class Reason(NamedTuple):
    """The reason of an unknown result: headline, explanation, fix and cause."""

    headline: str
    why: str
    fix: str
    cause: str | None = None


DEFECT_FIX = f"Report it with the output of: {AGAIN} --format json."
# None of these is related to a link, a GPU or the driver.
UNKNOWN: dict[FailureKind, Reason] = {
    "not-timed": Reason(
        "the copies could not be queued in time",
        "The host was too busy or the launch queue was full: copies began before all of them were queued, so their "
        "time would include the queueing. The data check is not affected.",
        f"Stop other programs that load the CPUs, then: {AGAIN}",
    ),
    "no-memory": Reason(
        "out of memory",
        "A GPU or the host had too little free memory for this step.",
        f"nvidia-smi and free -h show which processes use the memory; end them, then: {AGAIN}",
        "host-resources",
    ),
    "no-process": Reason(
        "the measuring process could not be started",
        "The operating system did not start it: memory, processes or open files ran out. Nothing was measured.",
        f"free -h; ulimit -a; in a container raise its limits; then: {AGAIN}",
        "host-resources",
    ),
    "no-resources": Reason(
        "the host has no space, memory, processes or open files left for it",
        "The operating system rejected a call of the measuring process: a resource is used up, or a limit is too low.",
        f"df -h /tmp /dev/shm; free -h; ulimit -a; free or raise what is used up, then: {AGAIN}",
        "host-resources",
    ),
    "killed": Reason(
        "the measuring process was killed from outside",
        "Something outside gpucheck sent it a signal; if host memory is short, that is the kernel's OOM killer.",
        f"dmesg | grep -i -e oom -e 'killed process'; free -h; then: {AGAIN}",
    ),
    "defect": Reason(
        "a defect of gpucheck or of a Python package that it uses",
        "The measuring process failed. The failure is unrelated to the GPUs, their links and the driver.",
        DEFECT_FIX,
    ),
    "not-started": Reason(
        "the copy engine did not start",
        "Nothing was measured.",
        "gpucheck verify --level quick checks driver and GPUs",
    ),
}
# Copies between CPU processes use neither driver nor link.
OF_PROCESSES: dict[FailureKind, Reason] = {
    "stuck": Reason("the copy hung", "A process on the CPU did not respond. No GPU was used.", DEFECT_FIX),
    "crashed": Reason("the measuring process crashed", "It failed in native code. No GPU was used.", DEFECT_FIX),
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
        found.append(
            About(check="p2p-bandwidth").skips(
                "a single GPU has no pair; copies inside it and to the host were measured",
                "not applicable: 1 GPU, no pair",
            )
        )
    return tuple(found)


def _not_read(rejected: str) -> Finding:
    about, seen = About(check="links-under-load"), "link state under load unknown: no NVML reading while copies ran"
    if rejected:
        reason = UNKNOWN["no-resources"]
        return about.with_evidence(rejected).unknown(reason.why, reason.fix, seen, cause=reason.cause)
    why = "NVML did not respond in time, or the copies finished too early"
    return about.unknown(why, "gpucheck bandwidth --level full takes longer and reads NVML more often", seen)


def lost(devices: Sequence[Device], after: NvmlReading | NvmlFailure) -> tuple[Finding, ...]:
    """Return a finding for each GPU that NVML reports as lost after a copy failed. after: NVML's reading then."""
    if isinstance(after, NvmlFailure):
        return ()
    gone = {gap.subject for gap in after.gaps if gap.code == GPU_IS_LOST}
    return tuple(
        About(check=COPIES.check, subject=f"gpu:{device.label}").fails(
            f"GPU {device.index} was lost during the copies",
            "a GPU that NVML can read after the copies",
            "NVML read this GPU before the copies and reports that it is lost now (NVML code 15). Copies with it "
            "failed for this reason; no link is the cause.",
            f"dmesg | grep -e Xid -e 'fallen off the bus'; reboot the host; then: {AGAIN}",
            "gpu-lost",
        )
        for device in devices
        if {f"gpu index {device.index}", f"gpu:{device.bus_id}"} & gone
    )


def _failures(results: Results, reasons: dict[FailureKind, Reason]) -> Iterator[Finding]:
    """Yield one finding for each reason of missing results, except failures of the driver or a link."""
    for failure in results.failures:
        if failure.kind == "missing-package":
            package = PACKAGE.get(failure.detail, failure.detail)
            yield COPIES.skips(
                f"the copy engine needs it: pip install {package}",
                f"not run: Python package {failure.detail} is not installed",
            )
    for kind, reason in reasons.items():
        unknown = [failure for failure in results.failures if failure.kind == kind]
        if unknown:
            yield _unknown(unknown, reason, results)
    peers = [failure.purpose for failure in results.failures if failure.kind == "no-peers-left"]
    if peers:
        yield COPIES.skips(
            "A GPU without NVSwitch maps eight peers, and this step needs more at the same time.",
            f"not run: {', '.join(dict.fromkeys(peers))}: {error_text(PEERS_USED_UP)}",
        )
    if results.gave_up and results.opened is not None:
        yield COPIES.unknown(
            "No further copy was tried: each could wait until its deadline.",
            f"Resolve the other findings, then: {AGAIN}",
            f"the remaining copies unknown: {results.gave_up}",
        )


def _unknown(failures: Sequence[Failure], reason: Reason, results: Results) -> Finding:
    """Return the finding on all failures of one kind. Only timings name the pair; other reasons concern the process."""
    timed = failures[0].kind == "not-timed"
    pairs = copied_pairs(failures) if timed else []
    steps = ", ".join(dict.fromkeys(failure.purpose for failure in failures))
    where = f" for {pairs_text(results, pairs)}" if pairs else ""
    lines = dict.fromkeys(f"{_copy(f, results)}, {f.purpose}: {f.detail}" for f in failures)
    about = About(
        check=COPIES.check,
        subject=pair_subject(results, pairs) if pairs else "host",
        evidence=tuple(lines)[:SHOWN],
    )
    what = "timings" if timed else "results"
    fix = "\n".join(dict.fromkeys(failure.fix for failure in failures if failure.fix)) or reason.fix
    # An engine that states a fix also states the cause.
    why = "\n".join(dict.fromkeys(f"{failure.detail}." for failure in failures if failure.fix)) or reason.why
    return about.unknown(why, fix, f"{what} unknown{where} ({steps}): {reason.headline}", cause=reason.cause)


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
        yield About(check="p2p-integrity").unknown(
            "no copy was checked, so data integrity is unknown",
            "resolve the other findings, which name what prevented the copies, then: gpucheck bandwidth",
            "data integrity unknown: 0 bytes compared",
        )
    elif bad:
        yield _wrong(bad, results, gpus=gpus)
    elif checks:
        where = "inside GPUs" if gpus else "between CPU processes"
        compared = bytes_text(sum(check.bytes_verified for check in checks))
        yield About(check="p2p-integrity").passes(f"{compared} compared {where}, no wrong word")


def _wrong(bad: Sequence[Check], results: Results, *, gpus: bool) -> Finding:
    pairs = sorted({(check.flow.src, check.flow.dst) for check in bad})
    about = About(check="p2p-integrity", subject=pair_subject(results, pairs), evidence=bad[0].evidence)
    return about.fails(
        f"{pairs_text(results, pairs)}: {count_text(sum(c.mismatches for c in bad), '8-byte word')} wrong",
        0,
        "memory of this GPU, or the path to it, corrupts data" if gpus else "memory of this host corrupts data",
        "dmesg | grep -e Xid -e AER -e EDAC; if it happens again, replace the component",
        "data-corruption" if gpus else None,
    )


def _fabric(results: Results, *, channels: bool) -> Iterator[Finding]:
    """Yield a finding on memory shared by fabric handles. Wrong data is that of other copies: see p2p-integrity."""
    for failure in (failure for failure in results.failures if failure.kind == "not-shared"):
        if failure.code == NOT_PERMITTED and not channels:
            why = (
                f"{SHARED} Where Slurm or Kubernetes provide the channel for each job, this is the state between jobs."
            )
            yield FABRIC.skips(why, f"not run: no IMEX channel in {CHANNELS}", fix=FIND_CHANNEL)
            continue
        yield FABRIC.warns(
            f"the driver shares no memory by fabric handles: {failure.detail}",
            "memory that GPUs of other hosts can import",
            f"{SHARED} Copies within this host do not need it.",
            FIND_CHANNEL,
            "imex-down",
            "likely" if failure.code == NOT_PERMITTED else "possible",
        )
    checks = [check for _, check in results.checks if check.flow.method == "fabric"]
    if checks and not any(check.mismatches for check in checks):
        compared = bytes_text(sum(check.bytes_verified for check in checks))
        yield FABRIC.passes(f"{compared} copied through memory imported by fabric handles on this host, no wrong word")


def _processes(results: Results) -> Finding:
    pairs = sum(1 for _ in results.measured())
    return About(check="p2p-bandwidth").skips(
        "copies between CPU processes through shared memory test the method; the result does not apply to GPUs",
        f"not applicable: {count_text(pairs, 'pair')} of CPU processes, no GPU",
    )
