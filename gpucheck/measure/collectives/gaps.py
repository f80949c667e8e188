"""What a run of collectives observed, and findings on what it could not check; ``diagnose`` evaluates links."""

from collections.abc import Iterator, Mapping, Sequence

from gpucheck.measure.collectives.definitions import ALL
from gpucheck.measure.collectives.launch import Ended
from gpucheck.measure.collectives.values import ErrorKind
from gpucheck.measure.reporting.text import count_text
from gpucheck.model import Finding
from gpucheck.model.collectives import CollectiveResult
from gpucheck.model.diagnosis.observations import Collective, Hang, Measured
from gpucheck.model.finding.about import About
from gpucheck.processes.exhausted import exhausted
from gpucheck.processes.ranks.nccl_log import error_text
from gpucheck.processes.signals import FAULTS, signal_name

# Why and fix of errors that are unrelated to links and NCCL.
UNKNOWN: Mapping[ErrorKind | str, tuple[str, str]] = {
    "defect": (
        "a defect of gpucheck or of a Python package that it uses, unrelated to GPUs, links and NCCL",
        "report it with the output of: gpucheck collectives --format json",
    ),
    "no-resources": (
        "a GPU or the host had no memory, disk space, processes or file handles left",
        "nvidia-smi, free -h, df -h /tmp and ulimit -a show what is used; smaller buffers: --sizes 8K,1M",
    ),
    "no-device": (
        "torch in this rank cannot use the GPU, so no collective was run",
        "unset CUDA_VISIBLE_DEVICES; python -c 'import torch; torch.cuda.init()' shows more; gpucheck verify",
    ),
}
PACKAGE_FIX = "python -m pip install torch numpy"


def gaps(runs: Mapping[str, Ended], results: Sequence[CollectiveResult], *, gpus: bool) -> tuple[Finding, ...]:
    """Return findings on ranks that ended early, and on what was compared. gpus: False for ranks on CPUs."""
    findings = [finding for ended in runs.values() for finding in _ending(ended)]
    ranks = next((ended.ranks for ended in runs.values()), 0)
    return (*findings, *_correctness(results, count_text(ranks, "GPU" if gpus else "CPU rank"), gpus=gpus))


def _ending(ended: Ended) -> Iterator[Finding]:
    missing = next((error.missing for error in ended.errors.values() if error.missing), None)
    if missing is not None:
        yield About(check="collectives").skips(
            f"the ranks need it: {PACKAGE_FIX}", f"not run: Python package {missing} is not installed"
        )
    elif ended.reason == "deadline" and exhausted(ended.output):
        about = About(check="collectives", evidence=(ended.output,))
        seen = f"the remaining collectives unknown: no end after {ended.seconds:.0f} s"
        yield about.unknown(*UNKNOWN["no-resources"], seen, cause="host-resources")
    elif ended.reason == "deadline":
        places = "; ".join(f"rank {rank}: {step}" for rank, step in sorted(ended.where.items()))
        calls = (f"rank {rank} is in {frame}" for rank, stack in sorted(ended.stacks.items()) for frame in stack[:3])
        yield About(check="collectives", evidence=(*calls, *([ended.output] if ended.output else []))).unknown(
            "the ranks wait for each other: one rank, or the path between two ranks, does not respond",
            "gpucheck bandwidth finds a pair that does not copy; try again with NCCL_P2P_DISABLE=1",
            f"the remaining collectives unknown: no end after {ended.seconds:.0f} s: {places}",
        )
    elif ended.reason == "failed":
        yield _failed(ended)


def _failed(ended: Ended) -> Finding:
    """Return the finding on the rank that failed first; the others raise because its connections closed."""
    errors = sorted(ended.errors.items(), key=lambda item: item[1].raised)
    lines = [f"rank {rank} was terminated by {signal_name(number)}" for rank, number in ended.signals.items()]
    lines += [f"rank {rank} failed: {error_text(e.message)} [{e.type}]" for rank, e in errors]
    first = lines[0] if lines else "a rank ended without reporting an error"
    places = tuple(f"rank {rank} was at: {at}" for rank, at in sorted(ended.where.items()))
    about = About(
        check="collectives",
        evidence=(*lines[1:], *places, *ended.taken.warnings, *([ended.output] if ended.output else [])),
    )
    if any(number not in FAULTS for number in ended.signals.values()):
        return about.unknown(
            "something outside gpucheck sent it the signal; if host memory is short, that is the kernel's OOM killer",
            "dmesg | grep -i -e oom -e 'killed process'; free -h; then: gpucheck collectives",
            f"collectives unknown: {first}",
        )
    kind = errors[0][1].kind if errors and not ended.signals else "collective"
    if kind == "collective" and exhausted(ended.output):
        kind = "no-resources"
    if kind in UNKNOWN:
        cause = "host-resources" if kind == "no-resources" else None
        return about.unknown(*UNKNOWN[kind], f"collectives unknown: {first}", cause=cause)
    return about.fails(
        first,
        None,
        "one rank failed, and a collective needs all of them",
        "gpucheck bandwidth checks the links without NCCL; dmesg | grep -e Xid; the evidence has NCCL's warnings",
        cause=None,
    )


def _correctness(results: Sequence[CollectiveResult], where: str, *, gpus: bool) -> Iterator[Finding]:
    """Wrong elements of GPU ranks are observations, which ``diagnose`` evaluates."""
    wrong = [result for result in results if result.wrong]
    checked = sum(result.checked for result in results)
    about = About(
        check="collectives-results",
        evidence=tuple(f"{r.operation} {r.size_bytes} bytes ({r.variant}): {r.wrong} wrong" for r in wrong),
    )
    if wrong and not gpus:
        yield about.fails(
            f"{count_text(sum(result.wrong for result in wrong), 'element')} wrong between CPU ranks",
            0,
            "ranks ended with other numbers than were sent; no GPU was used, so it is the host's memory or network",
            "dmesg | grep -e EDAC -e 'Hardware Error'; run gpucheck collectives again",
            cause=None,
        )
    elif checked and not wrong:
        yield about.passes(f"{count_text(checked, 'collective')} exact on {where}, every element of every rank")
    elif not checked:
        yield about.unknown(
            "no collective completed",
            "resolve the other findings, which name what prevented it, then: gpucheck collectives",
            "results of collectives unknown: 0 checked",
        )


def measured(
    runs: Mapping[str, Ended], results: Sequence[CollectiveResult], gpus: int, *, several_hosts: bool
) -> Measured:
    """Return a row for each result. gpus: GPUs of this host, one per rank.

    Only the largest size has a bandwidth, and only if the network between hosts was not used.
    """
    largest = max((result.size_bytes for result in results), default=0)
    rows = tuple(
        Collective(
            op=result.operation,
            ranks=runs[result.variant].ranks,
            bytes=result.size_bytes,
            busbw_gb_s=result.busbw_gb_s if result.size_bytes == largest and not several_hosts else None,
            transport=_transport(runs[result.variant], result),
            wrong=result.wrong if result.checked else None,
        )
        for result in results
    )
    hung = next((ended for ended in runs.values() if ended.reason == "deadline"), None)
    hang = Hang(op=_stuck_in(hung), gpus=tuple(range(gpus))) if hung is not None else None
    return Measured(collectives=rows, hang=hang)


def _transport(ended: Ended, result: CollectiveResult) -> str | None:
    """Return the slowest transport of NCCL's channels; NVLS if a switch reduced the all_reduce."""
    chosen = ended.taken.chosen("AllReduce")
    if result.operation == "all_reduce" and any(algorithm.startswith("NVLS") for algorithm in chosen):
        return "NVLS"
    kinds = sorted(ended.taken.transports)
    return next((kind for start in ("NET", "SHM", "P2P") for kind in kinds if kind.startswith(start)), None)


def _stuck_in(ended: Ended) -> str | None:
    """Return the collective that the first rank was in."""
    names = [step.split()[0] for _, step in sorted(ended.where.items()) if step.split()]
    return next((name for name in names if name in ALL), None)
