"""Copies without a result: failed, hung, not timed, or lost to something that is not the copy's fault. Pure."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpucheck.measure.cuda_errors import CAUSES, PEERS_USED_UP, error_text
from gpucheck.measure.facts import Facts
from gpucheck.measure.results import Pair, Results
from gpucheck.measure.runner import TOGETHER
from gpucheck.measure.subjects import pair_subject, pairs_text
from gpucheck.measure.values import HOST, Failure, FailureKind
from gpucheck.model import Finding, Verdict

NAME = "p2p-copies"
PACKAGE = {"torch": "torch", "cupy": "cupy-cuda12x", "numpy": "numpy"}
AGAIN = "gpucheck bandwidth"
SHOWN = 8


class Reason(NamedTuple):
    """Why a result is unknown: for the headline, the explanation and the remedy."""

    headline: str
    why: str
    fix: str


# None of these says anything about a link, a GPU or the driver.
UNKNOWN: dict[FailureKind, Reason] = {
    "not-timed": Reason(
        "the copies could not be queued in time",
        "The host was too busy or the launch queue was full: copies began before all of them were queued, so their "
        "time would include the queueing. The data check is not affected.",
        f"Stop other programs that load the CPUs, then: {AGAIN}",
    ),
    "no-memory": Reason(
        "out of memory",
        "A GPU or the host had no memory left for this step.",
        f"nvidia-smi and free -h show what uses the memory; end it, then: {AGAIN}",
    ),
    "no-process": Reason(
        "the measuring process could not be started",
        "The operating system refused the process: memory, processes or open files ran out. Nothing was measured.",
        f"free -h; ulimit -a; in a container raise its limits; then: {AGAIN}",
    ),
    "killed": Reason(
        "the measuring process was killed from outside",
        "Something outside gpucheck sent it a signal; if host memory is short, that is the kernel's OOM killer.",
        f"dmesg | grep -i -e oom -e 'killed process'; free -h; then: {AGAIN}",
    ),
    "defect": Reason(
        "a defect of gpucheck or of a Python package that it uses",
        "The measuring process failed by itself. This says nothing about the GPUs, their links or the driver.",
        f"Report it with the output of: {AGAIN} --format json. Another --engine may work meanwhile.",
    ),
    "not-started": Reason(
        "the copy engine did not start",
        "Nothing was measured.",
        "gpucheck verify --level quick checks driver and GPUs; python -c 'import torch; torch.cuda.init()' shows more",
    ),
}


def judge_failures(results: Results, facts: Facts) -> Iterator[Finding]:
    """One finding for each copy that failed, and one for each other reason; nothing if every step has a result."""
    for failure in results.failures:
        if failure.kind == "missing-package":
            yield _missing(failure)
        elif failure.is_the_copys:
            yield _failed(failure, results, facts)
    for kind, reason in UNKNOWN.items():
        unknown = [failure for failure in results.failures if failure.kind == kind]
        if unknown:
            yield _unknown(unknown, reason, results)
    peers = [failure.purpose for failure in results.failures if failure.kind == "no-peers-left"]
    if peers:
        yield Finding(
            check=NAME,
            verdict=Verdict.SKIP,
            subject="host",
            seen=f"not run: {', '.join(dict.fromkeys(peers))}: {error_text(PEERS_USED_UP)}",
            why="A GPU without NVSwitch maps eight peers, and this step needs more at the same time.",
        )
    if results.gave_up and results.opened is not None:
        yield Finding(
            check=NAME,
            verdict=Verdict.UNKNOWN,
            subject="host",
            seen=f"the remaining copies unknown: {results.gave_up}",
            why="No further copy was tried: each of them could take its whole deadline.",
            fix=f"Resolve the other findings, then: {AGAIN}",
        )


def _missing(failure: Failure) -> Finding:
    package = PACKAGE.get(failure.detail, failure.detail)
    return Finding(
        check=NAME,
        verdict=Verdict.SKIP,
        subject="host",
        seen=f"not run: Python package {failure.detail} is not installed",
        why=f"the copy engine needs it: pip install {package}, or choose another with --engine",
    )


def _pairs(failures: Sequence[Failure]) -> list[Pair]:
    flows = dict.fromkeys(flow for failure in failures if failure.purpose not in TOGETHER for flow in failure.flows)
    return list(dict.fromkeys((f.src, f.dst) for f in flows if HOST not in (f.src, f.dst)))


def _copy(failure: Failure, results: Results) -> str:
    """What was tried."""
    if failure.purpose == "open":
        return "opening the copy engine"
    pairs = _pairs([failure])
    if pairs:
        return f"copy {pairs_text(results, pairs)}"
    devices = sorted({results.devices[max(flow.src, flow.dst)].index for flow in failure.flows})
    if failure.purpose in TOGETHER or not devices:
        return f"copies ({failure.purpose})"
    return f"copy between host and GPU {', '.join(map(str, devices))}"


def _failed(failure: Failure, results: Results, facts: Facts) -> Finding:
    pairs = _pairs([failure])
    copy = _copy(failure, results)
    subject = pair_subject(results, pairs) if pairs else "host"
    evidence = (f"step: {failure.purpose}", failure.detail)
    if failure.kind == "stuck":
        return Finding(
            check=NAME,
            verdict=Verdict.FAIL,
            subject=subject,
            seen=f"{copy} hung ({failure.detail})",
            cause="iommu-translation" if facts.iommu_translates else "wedged-driver",
            confidence="likely" if facts.iommu_translates else "possible",
            why="The copy started and did not end; its process was abandoned.",
            fix=f"dmesg | grep -e Xid -e DMAR -e IO_PAGE_FAULT; nvidia-smi; reboot, then: {AGAIN}",
            evidence=evidence,
        )
    if failure.kind == "crashed":
        return Finding(
            check=NAME,
            verdict=Verdict.FAIL,
            subject=subject,
            seen=f"the measuring process crashed in {copy} ({failure.detail})",
            why="Native code (the driver, CUDA or the copy engine's library) ended the process while it copied.",
            fix=f"dmesg | grep -e Xid -e NVRM -e segfault; try another --engine; then: {AGAIN}",
            evidence=evidence,
        )
    granted = not any((min(pair), max(pair)) in facts.refused for pair in pairs)
    known = CAUSES.get(failure.code or 0)
    if known is not None and known[0] == "false-p2p-grant" and not (pairs and granted):
        known = None
    cause, confidence = known or (None, None)
    return Finding(
        check=NAME,
        verdict=Verdict.FAIL,
        subject=subject,
        seen=f"{copy} failed: {error_text(failure.code or 0)}",
        cause=cause,
        confidence=confidence,  # type: ignore[arg-type]  # one of the three words
        why="The driver reports peer access for this pair, and the copy fails for lack of it."
        if cause == "false-p2p-grant"
        else "CUDA ended the copy with an error.",
        fix=f"dmesg | grep -e Xid; update driver and BIOS; then: {AGAIN}",
        evidence=evidence,
    )


def _unknown(failures: Sequence[Failure], reason: Reason, results: Results) -> Finding:
    """All failures of one kind. Only timings name the pair: the other reasons are the process's."""
    timed = failures[0].kind == "not-timed"
    pairs = _pairs(failures) if timed else []
    what = "timings" if timed else "results"
    steps = ", ".join(dict.fromkeys(failure.purpose for failure in failures))
    where = f" for {pairs_text(results, pairs)}" if pairs else ""
    return Finding(
        check=NAME,
        verdict=Verdict.UNKNOWN,
        subject=pair_subject(results, pairs) if pairs else "host",
        seen=f"{what} unknown{where} ({steps}): {reason.headline}",
        why=reason.why,
        fix=reason.fix,
        evidence=tuple(dict.fromkeys(f"{_copy(f, results)}, {f.purpose}: {f.detail}" for f in failures))[:SHOWN],
    )
