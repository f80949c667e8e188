"""From what was measured to findings: one a cause, not one a pair. Pure."""

from collections.abc import Iterator

from gpucheck.measure.facts import Facts
from gpucheck.measure.judge_bandwidth import groups, harmed, low_pairs, repeat_one_way, too_fast
from gpucheck.measure.judge_both_ways import judge_both_ways, repeat_both
from gpucheck.measure.judge_failures import judge_failures
from gpucheck.measure.judge_integrity import judge_integrity
from gpucheck.measure.judge_latency import judge_latency
from gpucheck.measure.judge_load import judge_load
from gpucheck.measure.judge_slow import NAME, harmed_finding, low_finding
from gpucheck.measure.plan import Machine
from gpucheck.measure.results import Results
from gpucheck.measure.subjects import count_text, pair_subject, pairs_text, percent_text, span_text
from gpucheck.measure.values import Flow
from gpucheck.model import Finding, Verdict

MOST_REPEATED = 16  # where every pair is low, these are enough to be sure of


def repeat(results: Results, machine: Machine) -> list[tuple[Flow, ...]]:
    """What looks low and was not measured alone yet, as much of it as a run has time for."""
    one_way = repeat_one_way(results, machine)[: MOST_REPEATED - len(results.alone)]
    return one_way + repeat_both(results, machine)[: MOST_REPEATED - len(results.both_alone)]


def judge(results: Results, machine: Machine, facts: Facts) -> tuple[Finding, ...]:
    """Every finding of a run, data before speed."""
    findings = [*judge_failures(results, facts)]
    if results.opened is None:
        return tuple(findings)
    findings += judge_integrity(results, machine, facts)
    if facts.kind == "gpu":
        findings += _bandwidth(results, machine, facts)
        findings += judge_both_ways(results, machine)
        findings += judge_latency(results, machine)
        findings += judge_load(results, facts)
    else:
        findings.append(_not_gpus(results))
    if facts.kind == "gpu" and len(results.devices) == 1:
        findings.append(_one_gpu())
    return tuple(findings)


def _not_gpus(results: Results) -> Finding:
    pairs = sum(1 for _ in results.measured())
    return Finding(
        check=NAME,
        verdict=Verdict.SKIP,
        subject="host",
        seen=f"not applicable: {count_text(pairs, 'pair')} of CPU processes, no GPU",
        why="copies between CPU processes through shared memory: they prove the method, and say nothing about GPUs",
    )


def _one_gpu() -> Finding:
    return Finding(
        check=NAME,
        verdict=Verdict.SKIP,
        subject="host",
        seen="not applicable: 1 GPU, no pair",
        why="a single GPU has no pair: copies inside it and to the host were measured, and have no expectation",
    )


def _bandwidth(results: Results, machine: Machine, facts: Facts) -> Iterator[Finding]:
    lows = low_pairs(results, machine)
    hurt = tuple(harmed(results, machine))
    if hurt:
        yield harmed_finding(results, machine, hurt, facts)
    explained = {pair for pair, _, _ in hurt}
    for group in groups([low for low in lows if low.pair not in explained], results, machine):
        yield low_finding(group, results, machine, facts)
    for pair, timing, expected in too_fast(results, machine):
        yield Finding(
            check=NAME,
            verdict=Verdict.WARN,
            subject=pair_subject(results, [pair]),
            seen=round(timing.gb_s, 1),
            wanted=expected.high_gb_s,
            unit="GB/s",
            why=f"{pairs_text(results, [pair])}: above the line rate of the path: the number or the path is wrong",
            fix="compare gpucheck topo with nvidia-smi topo -m and nvidia-smi nvlink -s; report it with --format json",
            evidence=(expected.basis,),
        )
    yield from _unjudged(results, machine, facts)
    if not lows and not hurt:
        yield from _fine(results, machine)


def _fine(results: Results, machine: Machine) -> Iterator[Finding]:
    ratios = []
    for pair, timing in results.measured():
        path = machine.between.get(pair)
        if path and path.expected:
            ratios.append((timing.gb_s / path.expected.unidirectional_gb_s, timing.gb_s, path.expected))
    if not ratios:
        return
    least = min(ratios, key=lambda r: r[0])
    yield Finding(
        check=NAME,
        verdict=Verdict.PASS,
        subject="host",
        seen=f"{count_text(len(ratios), 'GPU pair')}, {percent_text([r[0] for r in ratios])} of expected",
        evidence=(f"slowest {least[1]:.1f} GB/s of {least[2].unidirectional_gb_s:g}: {least[2].basis}",),
    )


def _unjudged(results: Results, machine: Machine, facts: Facts) -> Iterator[Finding]:
    """Pairs without an expectation: refused ones are as they should be, others are not known."""
    without = [p for p, _ in results.measured() if p not in machine.between or machine.between[p].expected is None]
    staged = [pair for pair in without if (min(pair), max(pair)) in facts.refused]
    unknown = [pair for pair in without if pair not in staged]
    if staged:
        words = sorted({facts.refused[min(p), max(p)] for p in staged})
        yield Finding(
            check=NAME,
            verdict=Verdict.SKIP,
            subject=pair_subject(results, staged),
            seen=f"not applicable: P2P status {', '.join(words)}, {_range(results, staged)} through host memory on "
            f"{pairs_text(results, staged)}",
            cause="vm-no-p2p" if facts.virtual else "geforce-p2p-disabled" if words == ["GNS"] else None,
            confidence="likely" if facts.virtual or words == ["GNS"] else None,
            why="the driver grants no peer access here, so these copies go through host memory: that is the number",
        )
    if unknown:
        yield Finding(
            check=NAME,
            verdict=Verdict.UNKNOWN,
            subject=pair_subject(results, unknown),
            seen=f"expected bandwidth unknown: {_range(results, unknown)} measured on {pairs_text(results, unknown)}",
            why="neither the path nor its links are known, so there is nothing to judge the number by",
            fix="gpucheck topo says what is not known about the path",
        )


def _range(results: Results, pairs: list[tuple[int, int]]) -> str:
    return span_text([timing.gb_s for pair in pairs if (timing := results.one_way(*pair))], "GB/s")
