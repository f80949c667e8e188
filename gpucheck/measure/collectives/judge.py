"""Are the collectives right, in time, and as fast as the links they ran over? Pure."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from gpucheck.measure.collectives.launch import Ended
from gpucheck.measure.collectives.nccl_log import error_text
from gpucheck.measure.collectives.values import ErrorKind
from gpucheck.measure.subjects import count_text
from gpucheck.model import Finding, Verdict
from gpucheck.model.about import About
from gpucheck.model.collectives import CollectiveResult
from gpucheck.processes.signals import FAULTS, signal_name

LARGE = 128 << 20
WARN, FAIL = 0.80, 0.65  # of what copy engines reach over the same links: kernels get 0.87 to 0.97 of that
# Why and fix of what says nothing about links or NCCL.
UNKNOWN: dict[ErrorKind, tuple[str, str]] = {
    "defect": (
        "a defect of gpucheck or of a Python package that it uses; it says nothing about GPUs, links or NCCL",
        "report it with the output of: gpucheck collectives --format json",
    ),
    "no-resources": (
        "a GPU or the host had no memory, disk space or file handles left",
        "nvidia-smi, free -h and df -h /tmp show what is used; smaller buffers: gpucheck collectives --sizes 8K,1M",
    ),
    "no-device": (
        "torch in this rank does not reach the GPU, so no collective was tried",
        "unset CUDA_VISIBLE_DEVICES; python -c 'import torch; torch.cuda.init()' shows more; gpucheck verify",
    ),
}
PACKAGE_FIX = "python -m pip install torch numpy"


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """ring_gb_s: what a ring over this machine's links should reach, None where that is not known.

    granted: whether the driver grants peer access between all these GPUs.
    """

    nvlink: bool = False
    ring_gb_s: float | None = None
    basis: str | None = None
    granted: bool | None = None


def judge(
    runs: Mapping[str, Ended], results: Sequence[CollectiveResult], expectation: Expectation
) -> tuple[Finding, ...]:
    """What failed, what was wrong, and how fast it was."""
    findings = [finding for ended in runs.values() for finding in _ending(ended)]
    findings += _correctness(results)
    findings += _speed(results, expectation)
    findings += _transport(runs["as is"], expectation)
    return tuple(findings)


def _ending(ended: Ended) -> Iterator[Finding]:
    missing = next((error.missing for error in ended.errors.values() if error.missing), None)
    if missing is not None:
        yield About(check="collectives").skips(
            f"the ranks need it: {PACKAGE_FIX}", f"not run: Python package {missing} is not installed"
        )
    elif ended.reason == "deadline":
        places = "; ".join(f"rank {rank}: {words}" for rank, words in sorted(ended.where.items()))
        calls = (f"rank {rank} is in {frame}" for rank, stack in sorted(ended.stacks.items()) for frame in stack[:3])
        yield About(check="collectives", evidence=(*calls, *([ended.said] if ended.said else []))).fails(
            f"collectives hung (no end after {ended.seconds:.0f} s): {places}",
            None,
            "the ranks wait for each other: one of them, or the path between two, does not respond",
            "gpucheck bandwidth finds a pair that does not copy; try again with NCCL_P2P_DISABLE=1",
            cause=None,
        )
    elif ended.reason == "failed":
        yield _failed(ended)


def _failed(ended: Ended) -> Finding:
    """By the rank that failed first: what the others raise is that its end of a connection closed."""
    errors = sorted(ended.errors.items(), key=lambda item: item[1].raised)
    lines = [f"rank {rank} was ended by {signal_name(number)}" for rank, number in ended.signals.items()]
    lines += [f"rank {rank} failed: {error_text(e.message)} [{e.type}]" for rank, e in errors]
    places = tuple(f"rank {rank} was at: {at}" for rank, at in sorted(ended.where.items()))
    about = About(
        check="collectives",
        evidence=(*lines[1:], *places, *ended.taken.warnings, *([ended.said] if ended.said else [])),
    )
    if any(number not in FAULTS for number in ended.signals.values()):
        return about.unknown(
            "something outside gpucheck sent it the signal; if host memory is short, that is the kernel's OOM killer",
            "dmesg | grep -i -e oom -e 'killed process'; free -h; then: gpucheck collectives",
            f"collectives unknown: {lines[0]}",
        )
    kind = errors[0][1].kind if errors and not ended.signals else "collective"
    if kind in UNKNOWN:
        return about.unknown(*UNKNOWN[kind], f"collectives unknown: {lines[0]}")
    return about.fails(
        lines[0] if lines else "a rank ended without reporting an error",
        None,
        "one rank failed, and a collective needs all of them",
        "gpucheck bandwidth checks the links without NCCL; dmesg | grep -e Xid; the evidence has NCCL's warnings",
        cause=None,
    )


def _correctness(results: Sequence[CollectiveResult]) -> Iterator[Finding]:
    wrong = [result for result in results if result.wrong]
    checked = sum(result.checked for result in results)
    if wrong:
        names = ", ".join(dict.fromkeys(f"{r.operation} of {r.size_bytes} bytes" for r in wrong))
        told = tuple(f"{r.operation} {r.size_bytes} bytes ({r.variant}): {r.wrong} wrong" for r in wrong)
        yield About(check="collectives-results", evidence=told).fails(
            f"{sum(r.wrong for r in wrong)} wrong elements in {names}",
            None,
            "ranks ended with other numbers than were sent, and nothing reported an error",
            "gpucheck bandwidth --depth full finds the pair; take the host out of multi-GPU jobs until it passes",
            "data-corruption",
        )
    elif checked:
        seen = f"{count_text(checked, 'collective')} exact, every element of every rank"
        yield About(check="collectives-results").passes(seen)
    else:
        yield About(check="collectives-results").unknown(
            "no collective completed",
            "resolve the other findings, which name what prevented it, then: gpucheck collectives",
            "results of collectives unknown: 0 checked",
        )


def _speed(results: Sequence[CollectiveResult], expectation: Expectation) -> Iterator[Finding]:
    """Only large rings are judged: NVLS may exceed the link rate, small sizes are all latency."""
    by_variant = {r.variant: r for r in results if r.operation == "all_reduce" and r.size_bytes >= LARGE}
    ring = by_variant.get("ring") or by_variant.get("as is")
    if ring is None or ring.busbw_gb_s is None or expectation.ring_gb_s is None:
        return
    part = ring.busbw_gb_s / expectation.ring_gb_s
    evidence = [f"links: {expectation.basis}"]
    as_is = by_variant.get("as is")
    if as_is is not None and as_is is not ring:
        evidence.append(f"with NVLS, which the switch adds up in: {as_is.busbw_gb_s} GB/s")
    verdict = Verdict.FAIL if part < FAIL else Verdict.WARN if part < WARN else Verdict.PASS
    low = round(WARN * expectation.ring_gb_s, 1)
    yield Finding(
        check="collectives-bandwidth",
        verdict=verdict,
        subject="host",
        seen=round(ring.busbw_gb_s, 1),
        wanted=None if verdict is Verdict.PASS else low,
        unit="GB/s",
        why="" if verdict is Verdict.PASS else "a ring of all-reduce moves less than the links should carry",
        fix="" if verdict is Verdict.PASS else "gpucheck bandwidth shows whether a link or NCCL's choice is slow",
        evidence=tuple(evidence),
    )


def _transport(ended: Ended, expectation: Expectation) -> Iterator[Finding]:
    shared = {kind: count for kind, count in ended.taken.transports.items() if kind == "SHM"}
    if shared and expectation.granted:
        yield Finding(
            check="collectives-transport",
            verdict=Verdict.SKIP,
            subject="host",
            seen=f"shared memory on {shared['SHM']} channels, although the driver grants peer access",
            cause="nccl-policy",
            confidence="likely",
            why="NCCL uses peer access up to its own distance limit; NCCL_P2P_LEVEL=SYS lifts it, compare both",
            evidence=tuple(f"{pair}: {kind}" for pair, kind in ended.taken.pairs.items()),
        )
