"""Both directions at once, and copies through host memory."""

from collections.abc import Iterator
from math import exp
from statistics import median

from gpucheck.checks._case import Case, Claim, listed, percent, span
from gpucheck.checks._healthy import Level, direct, levels
from gpucheck.checks._machine import Pair
from gpucheck.diagnose.rules.copies import Slow, accuse, gpus_of, is_explained, lower_still, without_rate
from gpucheck.knowledge import healthy_rates
from gpucheck.knowledge.codes import Subject
from gpucheck.model.finding import Finding, Verdict
from gpucheck.printable import counted
from gpucheck.topology.expected import both_directions

BOTH, STAGED = "p2p-both-ways", "staged-copies"
FAR_BOTH = -4  # deviations: healthy sums have two plateaus, 0.75 and 0.95 of both alone (DistServe#3)
FAR_STAGED = 0.40  # of the median
LIKE_STAGED = 0.6  # of the best: staged copies of healthy pairs differ by a third


def rule(case: Case) -> Iterator[Finding]:
    """Sums first, then copies through host memory."""
    yield from _both_ways(case)
    yield from _staged(case)


def _both_ways(case: Case) -> Iterator[Finding]:
    """The sum of both directions next to that of each alone, and next to the healthy machine."""
    m, uni, both = case.machine, case.machine.measured.p2p_uni_gb_s, case.machine.measured.p2p_bidir_gb_s
    flags = m.measured.p2p_bidir_alone
    slow: dict[Pair, tuple[float, float]] = {}
    unsure: dict[Pair, tuple[float, float]] = {}
    fine: list[float] = []
    for i, j in m.pairs if both and uni else ():
        alone = [value for value in (uni[i][j], uni[j][i]) if value]  # type: ignore[index]
        total = [value for value in (both[i][j], both[j][i]) if value]  # type: ignore[index]
        joined, access = m.joined((i, j)), m.access[i, j]
        if len(alone) < 2 or not total or access is False or (m.crosses((i, j)) and not joined):
            continue
        usual = direct(m, (i, j))
        if flags and bool(flags[i][j]) != m.measured_alone((i, j)) and usual:
            alone = [usual.gb_s] * 2  # the sum and its parts were measured in different ways
        rates = healthy_rates()
        part, spread = rates.nvlink_both_ways if joined else rates.direct_both_ways
        if median(total) < part * sum(alone) * exp(FAR_BOTH * spread):
            (slow if joined or access else unsure)[i, j] = median(total), sum(alone)
        elif (i, j) not in case.slow and usual and not usual.vague:
            fine.append(median(total) / both_directions(usual, nvlink=bool(joined)).gb_s)
    if slow:
        case.slow |= set(slow)
        yield Claim(BOTH, Verdict.WARN).finding(
            "copies.both-ways-slow",
            subject=m.subject(list(slow)),
            seen=f"{span(total for total, _ in slow.values())} GB/s both ways",
            wanted=f"about {span(alone for _, alone in slow.values())} GB/s both ways",
            evidence=(f"pairs: {listed(slow)}",),
        )
    if unsure and not slow:
        yield Claim(BOTH, Verdict.UNKNOWN).finding(
            "copies.both-ways-unknown",
            subject=m.subject(list(unsure)),
            seen=f"{span(total for total, _ in unsure.values())} GB/s both ways",
            wanted=f"about {span(alone for _, alone in unsure.values())} GB/s both ways",
            evidence=(f"pairs: {listed(unsure)}",),
        )
    if fine:
        yield Subject(check=BOTH).passes(f"{counted(len(fine), 'GPU pair')} both ways, {percent(fine)} of expected")


def _staged(case: Case) -> Iterator[Finding]:
    """Copies through host memory: of denied pairs, and where both were measured."""
    m = case.machine
    rows: dict[Pair, Level] = levels(m, through_host=True)
    known = {pair: m.one_way(pair, staged=True) or m.one_way(pair) * (m.access[pair] is False) for pair in m.pairs}
    denied = {pair: median(values) for pair, values in known.items() if values}
    if denied and not rows and not any(one.check == "p2p-bandwidth" for one in case.findings):
        yield from without_rate(case, denied, STAGED)
    most: dict[tuple[str, ...], float] = {}
    for pair, row in rows.items():
        most[m.products(pair)] = max(row.value, most.get(m.products(pair), 0.0))
    low = [pair for pair, row in rows.items() if not row.is_healthy or row.value < LIKE_STAGED * most[m.products(pair)]]
    gpus = gpus_of(low, rows) or lower_still(low, rows)
    for i in gpus:
        mine = [pair for pair in rows if i in pair]
        yield accuse(case, Slow("one-gpu", mine, i), [rows[pair] for pair in mine], STAGED)
    named = {one.subject for one in case.findings if one.check == "host-copies" and one.verdict is not Verdict.PASS}
    low = [
        pair
        for pair, row in rows.items()
        if row.part < FAR_STAGED and not is_explained(m, pair, row) and not named & {*map(m.gpu_label, pair)}
    ]
    if low and not gpus:
        yield accuse(case, Slow("staged", low), [rows[pair] for pair in low], STAGED)
