"""Both directions at once: does the pair carry them together? Pure.

Both share credits and memory, so a sum below twice one direction is healthy down to a stated part. Copies through host
memory reach hardly more both ways than one way: that is how a driver shows that grants peer access and does not use it.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpucheck.knowledge import both_ways_part
from gpucheck.measure.judge_bandwidth import SURE, fail_at, low_pairs
from gpucheck.measure.judge_latency import DIRECT_US
from gpucheck.measure.plan import Machine
from gpucheck.measure.results import Pair, Results
from gpucheck.measure.runner import total
from gpucheck.measure.subjects import count_text, pair_subject, pairs_text, percent_text
from gpucheck.measure.values import Flow
from gpucheck.model import Expected, Finding, Verdict

NAME = "p2p-both-ways"


class Goal(NamedTuple):
    """The sum that a pair should reach, and below which it is low, or bad, GB/s."""

    gb_s: float
    low_gb_s: float
    fail_gb_s: float


class Sum(NamedTuple):
    """An unordered pair, lower position first. verdict: PASS where the sum is not low."""

    pair: Pair
    gb_s: float
    goal: Goal
    verdict: Verdict


def goal(cls: str | None, expected: Expected) -> Goal:
    """Twice what one direction should reach; of twice its limits, the part that each direction keeps."""
    part = 2 * both_ways_part()
    return Goal(2 * expected.unidirectional_gb_s, part * expected.low_gb_s, part * fail_at(cls, expected))


def sums(results: Results, machine: Machine) -> Iterator[Sum]:
    """Every pair with an expectation, but for those that are slow in one direction already: that is told once."""
    slow = {frozenset(low.pair) for low in low_pairs(results, machine)}
    for pair, timings in results.both_ways().items():
        path = machine.between.get(pair)
        if path is None or path.expected is None or frozenset(pair) in slow:
            continue
        wanted, gb_s = goal(path.cls, path.expected), total(timings)
        surely_below = gb_s * (1 + SURE * max(timing.error for timing in timings))
        verdict = Verdict.PASS
        if gb_s < wanted.low_gb_s:
            sure = pair in results.both_alone and surely_below < wanted.fail_gb_s
            verdict = Verdict.FAIL if sure else Verdict.WARN
        yield Sum(pair, gb_s, wanted, verdict)


def repeat_both(results: Results, machine: Machine) -> list[tuple[Flow, ...]]:
    """The low pairs whose two directions were not measured alone yet, the slowest first."""
    low = [s for s in sums(results, machine) if s.verdict is not Verdict.PASS and s.pair not in results.both_alone]
    return [
        (Flow(src=a, dst=b), Flow(src=b, dst=a))
        for a, b in (s.pair for s in sorted(low, key=lambda s: s.gb_s / s.goal.gb_s))
    ]


def judge_both_ways(results: Results, machine: Machine) -> Iterator[Finding]:
    """One finding for each class of path with low pairs, or one pass."""
    judged = list(sums(results, machine))
    classes: dict[str, list[Sum]] = {}
    for low in (s for s in judged if s.verdict is not Verdict.PASS):
        classes.setdefault(machine.between[low.pair].cls or "unknown", []).append(low)
    for lows in classes.values():
        yield _low(lows, results, machine)
    if judged and not classes:
        parts = percent_text([s.gb_s / s.goal.gb_s for s in judged])
        yield Finding(
            check=NAME,
            verdict=Verdict.PASS,
            subject="host",
            seen=f"{count_text(len(judged), 'GPU pair')} both ways, {parts} of expected",
        )


def _low(lows: Sequence[Sum], results: Results, machine: Machine) -> Finding:
    pairs, worst = [low.pair for low in lows], min(lows, key=lambda low: low.gb_s / low.goal.gb_s)
    staged = all(_as_slow_as_staged(results, pair) for pair in pairs)
    path = machine.between[worst.pair]
    why = "one direction alone is as it should be, both together are not"
    fix = "lspci -vv on the bridges between them while copying (MaxPayload, error bits); update the BIOS"
    if (path.cls or "").startswith("NV"):
        fix = "nvidia-smi nvlink -e twice, copying in between; nvidia-smi -q -d PERFORMANCE while copying"
    if staged:
        why += ", and small copies take as long as through host memory: peer access is granted and not used"
        fix = "nvidia-smi topo -p2p w; update driver and BIOS, remove a patched driver"
    return Finding(
        check=NAME,
        verdict=Verdict.FAIL if any(low.verdict is Verdict.FAIL for low in lows) else Verdict.WARN,
        subject=pair_subject(results, pairs),
        seen=round(worst.gb_s, 1),
        wanted=round(worst.goal.low_gb_s, 1),
        unit="GB/s",
        cause="false-p2p-grant" if staged else None,
        confidence="likely" if staged else None,
        why=f"{pairs_text(results, pairs)} and back: {why}",
        fix=f"{fix}; measure again: gpucheck bandwidth --depth full",
        evidence=(
            f"twice {path.expected.basis}" if path.expected else "",
            *(_each_way(results, pair) for pair in pairs[:4]),
            f"{sum(pair in results.both_alone for pair in pairs)} of {len(pairs)} pairs measured again alone",
        ),
    )


def _as_slow_as_staged(results: Results, pair: Pair) -> bool:
    times = [results.latency.get(Flow(src=a, dst=b)) for a, b in (pair, pair[::-1])]
    return all(timing is not None and timing.median_s * 1e6 > DIRECT_US for timing in times)


def _each_way(results: Results, pair: Pair) -> str:
    there, back = results.both_ways()[pair]
    alone = [timing.gb_s for ends in (pair, pair[::-1]) if (timing := results.one_way(*ends))]
    single = f"; one way alone {' and '.join(f'{rate:.1f}' for rate in alone)}" if alone else ""
    return f"{pairs_text(results, [pair])} {there.gb_s:.1f} GB/s, back {back.gb_s:.1f} GB/s{single}"
