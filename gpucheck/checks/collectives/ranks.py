"""Collectives: did all ranks come to an end?

Source: one rank on each GPU with NCCL, or two on the CPU with gloo: exit status, errors, and where each was when the
time was up.
FAIL if a rank failed by itself in a collective. UNKNOWN if they wait for each other, or for what is not about GPUs and
links: a signal from outside, no resources, a defect. SKIP without torch or a second rank.
"""

from collections.abc import Iterator

from gpucheck.knowledge.codes import Subject
from gpucheck.model import Check, Finding
from gpucheck.model.collectives import EndKind
from gpucheck.model.facts import Facts
from gpucheck.printable import counted

NAME, RESULTS, TRANSPORT = "collectives", "collectives-results", "collectives-transport"
NOT_RUN: dict[EndKind, str] = {"missing-package": "measure.ranks-need-package", "alone": "measure.one-rank"}
UNKNOWN: dict[EndKind, str] = {
    "waiting": "measure.ranks-wait",
    "interrupted": "measure.collectives-interrupted",
    "killed": "measure.rank-killed",
    # Unrelated to links and NCCL.
    "defect": "measure.rank-defect",
    "no-resources": "measure.rank-no-resources",
    "no-device": "measure.rank-no-device",
}
# Through host memory or the network stack.
STAGED = ("NET", "SHM")


def evaluate(facts: Facts) -> Iterator[Finding]:
    for end in facts.collected.ends:
        subject = Subject(check=NAME, evidence=end.evidence)
        if end.kind in NOT_RUN:
            yield subject.skips(NOT_RUN[end.kind], f"not run: {end.detail}")
        elif end.kind in UNKNOWN:
            what = "the remaining collectives" if end.partly else "collectives"
            yield subject.unknown(UNKNOWN[end.kind], f"{what} unknown: {end.detail}")
        else:
            yield subject.fails("measure.rank-failed", end.detail)


def results(facts: Facts) -> Iterator[Finding]:
    """Results: is every element of every rank exact?

    Source: each collective is compared element by element on every rank.
    FAIL for wrong elements between CPU ranks; those of GPUs are evaluated with the copies between them, which find the
    pair. UNKNOWN if nothing was compared.
    """
    report, gpus = facts.collected.report, facts.collected.report.backend == "nccl"
    if any(end.kind == "alone" for end in facts.collected.ends):
        return
    wrong = [result for result in report.results if result.wrong]
    checked = sum(result.checked for result in report.results)
    lines = (f"{r.operation} {r.size_bytes} bytes ({r.variant}): {r.wrong} wrong" for r in wrong)
    subject = Subject(check=RESULTS, evidence=tuple(lines))
    if wrong and not gpus:
        elements = counted(sum(result.wrong for result in wrong), "element")
        yield subject.fails("measure.cpu-ranks-wrong", f"{elements} wrong between CPU ranks", 0)
    elif checked and not wrong:
        where = counted(report.ranks, "GPU" if gpus else "CPU rank")
        yield subject.passes(f"{counted(checked, 'collective')} exact on {where}, every element of every rank")
    elif not checked:
        yield subject.unknown("measure.no-collective", "results of collectives unknown: 0 checked")


def transport(facts: Facts) -> Iterator[Finding]:
    """Transport: does NCCL use NVLinks where they join all GPUs?

    Source: NCCL's log, which names the transport of each channel, and the algorithm of each collective.
    WARN if NVLinks join all GPUs and NCCL uses host memory or the network stack. UNKNOWN if no line names a transport.
    """
    report = facts.collected.report
    if report.backend != "nccl" or not report.results:
        return
    subject = Subject(check=TRANSPORT)
    if not report.transports:
        yield subject.unknown("measure.transport-not-logged", "transport unknown")
        return
    channels = ", ".join(f"{kind} ({count} channels)" for kind, count in report.transports.items())
    chosen = ", ".join(report.algorithms.get("AllReduce", ()))
    version = report.versions.get("nccl") or ""
    seen = f"NCCL {version}: {channels}".replace("NCCL :", "NCCL:") + (f"; all_reduce {chosen}" if chosen else "")
    joined_by_nvlink = any(result.expected_busbw_gb_s for result in report.results)
    if joined_by_nvlink and any(kind.startswith(STAGED) for kind in report.transports):
        yield subject.warns("measure.nvlink-not-used", seen, "P2P or NVLS")
    else:
        yield subject.passes(seen)


TAGS = frozenset({"measure", "collectives"})
CHECKS = (
    Check(NAME, TAGS, evaluate, ("collected",)),
    Check(RESULTS, TAGS, results, ("collected",)),
    Check(TRANSPORT, TAGS, transport, ("collected",)),
)
