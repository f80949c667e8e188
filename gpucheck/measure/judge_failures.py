"""Copies that did not come back: refused, stuck, or a process that died. Pure."""

from collections.abc import Iterator

from gpucheck.measure.facts import Facts
from gpucheck.measure.results import Results
from gpucheck.measure.subjects import pair_subject, pairs_in_words
from gpucheck.measure.values import HOST, Failure
from gpucheck.model import Finding, Verdict

NAME = "p2p-copies"
PACKAGE = {"torch": "torch", "cupy": "cupy-cuda12x", "numpy": "numpy"}


def judge_failures(results: Results, facts: Facts) -> Iterator[Finding]:
    """One finding a failure; nothing where every step was answered."""
    for failure in results.failures:
        yield _missing(failure) if failure.kind == "missing-package" else _failed(failure, results, facts)
    if results.gave_up and results.opened is not None:
        yield Finding(
            check=NAME,
            verdict=Verdict.UNKNOWN,
            subject="host",
            seen=f"stopped: {results.gave_up}",
            wanted="every pair measured",
            why="more copies were not tried, because each costs its whole deadline on a machine that is broken already",
            fix="repair what the other findings name, then: gpucheck bandwidth",
        )


def _missing(failure: Failure) -> Finding:
    package = PACKAGE.get(failure.detail, failure.detail)
    return Finding(
        check=NAME,
        verdict=Verdict.SKIP,
        subject="host",
        seen=f"Python package {failure.detail} is not installed",
        why=f"the copy engine needs it: pip install {package}, or choose another with --engine",
    )


def _failed(failure: Failure, results: Results, facts: Facts) -> Finding:
    pairs = [(f.src, f.dst) for f in failure.flows if HOST not in (f.src, f.dst)]
    subject = pair_subject(results, pairs) if pairs else "host"
    copies = f" on {pairs_in_words(results, pairs)}" if pairs else ""
    doing = f"{failure.purpose}{copies}"
    if failure.kind == "stuck":
        cause = "iommu-translation" if facts.iommu_translates else "wedged-driver"
        return Finding(
            check=NAME,
            verdict=Verdict.FAIL,
            subject=subject,
            seen=f"stuck in {doing}: {failure.detail}",
            wanted="an end",
            cause=cause,
            confidence="likely" if facts.iommu_translates else "possible",
            why="the copy was started and never ended; its process was given up and not waited for",
            fix="dmesg | grep -e Xid -e DMAR -e IO_PAGE_FAULT; nvidia-smi; reboot, then: gpucheck bandwidth",
            evidence=(failure.detail,),
        )
    if failure.kind == "refused":
        peers = "217" in failure.detail or "peer access" in failure.detail.lower()
        return Finding(
            check=NAME,
            verdict=Verdict.FAIL,
            subject=subject,
            seen=f"{failure.detail} in {doing}",
            wanted="copies without an error",
            cause="false-p2p-grant" if peers and pairs else None,
            confidence="likely" if peers and pairs else None,
            why="the driver grants peer access and refuses the copy" if peers else "CUDA ended the copy with an error",
            fix="dmesg | grep -e Xid; update driver and BIOS; then: gpucheck bandwidth",
            evidence=(failure.detail,),
        )
    nothing = failure.kind == "not-started"
    return Finding(
        check=NAME,
        verdict=Verdict.UNKNOWN if nothing else Verdict.FAIL,
        subject=subject,
        seen=f"{failure.detail} ({doing})",
        wanted="a process that copies and answers",
        why="nothing could be measured" if nothing else "the measuring process was lost while it copied",
        fix="gpucheck verify --level quick says whether driver and GPUs are well; dmesg | grep -e Xid -e NVRM",
        evidence=(failure.detail,),
    )
