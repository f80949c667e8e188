"""Copies at the same time: sharing a link is arithmetic, falling below one link is not."""

from collections import Counter
from collections.abc import Iterator
from statistics import median

from gpucheck.checks._case import Case, Claim, listed, percent
from gpucheck.checks._healthy import direct
from gpucheck.checks._machine import Pair
from gpucheck.model.diagnosis.observations import Flow
from gpucheck.model.finding import Finding, Verdict

CHECK = "simultaneous-copies"
# Part of the arithmetic sum that is still sharing, and below which something collapses.
SHARES, COLLAPSES, ALONE = 0.75, 0.55, 0.85


def rule(case: Case) -> Iterator[Finding]:
    """Each set of simultaneous copies against what its links can carry together."""
    for flow in case.machine.measured.flows:
        singles = [value for pair in flow.pairs if (value := _alone(case, pair))]
        if len(flow.pairs) > 1 and len(singles) == len(flow.pairs):
            yield from _flow(case, flow, singles)


def _flow(case: Case, flow: Flow, singles: list[float]) -> Iterator[Finding]:
    m, total, count = case.machine, flow.total_gb_s, len(flow.pairs)
    groups = [group for group in m.uplinks if len(group) > 1]
    shared, uplink = _together(flow, singles, groups)
    crossing = any((a in group) != (b in group) for a, b in flow.pairs for group in groups)
    at_once = [f"at the same time: {listed(flow.pairs)}"]
    part = total / shared
    if part < COLLAPSES and crossing and m.measured.method.direction != "read":
        known = bool(m.measured.method.direction)
        yield Claim(CHECK, Verdict.FAIL if known else Verdict.WARN).finding(
            "copies.writes-collapse" if known else "copies.writes-may-collapse",
            seen=total,
            wanted=shared,
            count=count,
            evidence=[*at_once, f"{percent([part])} of a fair share"],
        )
    elif part < COLLAPSES and total < 0.8 * max(singles):
        yield Claim(CHECK, Verdict.WARN).finding(
            "copies.share-unknown-link",
            seen=total,
            wanted=shared,
            count=count,
            evidence=[*at_once, f"{percent([part])} of a fair share"],
        )
    elif total < ALONE * sum(singles):
        yield Claim(CHECK, Verdict.PASS, confidence="likely" if uplink else "possible").finding(
            "copies.share-uplink" if uplink or part < SHARES else "copies.share-link",
            seen=total,
            wanted=shared,
            count=count,
            alone=round(median(singles), 1),
            evidence=at_once,
        )


def _alone(case: Case, way: Pair) -> float | None:
    """What one of the copies reaches by itself; else what a healthy one reaches."""
    matrix = case.machine.measured.p2p_uni_gb_s
    value = matrix[way[0]][way[1]] if matrix else None
    pair = (min(way), max(way))
    usual = direct(case.machine, pair)
    return value or min(case.machine.one_way(pair), default=None) or (usual.gb_s if usual else None)


def _together(flow: Flow, singles: list[float], groups: list[frozenset[int]]) -> tuple[float, bool]:
    """The sum when every link is shared fairly, GB/s, and whether it is an uplink that is shared."""
    ends = Counter([("out", i) for i, _ in flow.pairs] + [("in", j) for _, j in flow.pairs])
    ways: Counter[tuple[str, int]] = Counter()
    crossed: list[list[tuple[str, int]]] = []
    for source, target in flow.pairs:
        used = [("up", k) for k, group in enumerate(groups) if source in group and target not in group]
        used += [("down", k) for k, group in enumerate(groups) if target in group and source not in group]
        ways.update(used)
        crossed.append(used)
    total, uplinks = 0.0, 0
    for (source, target), used, alone in zip(flow.pairs, crossed, singles, strict=True):
        at_ends = max(ends["out", source], ends["in", target])
        above = max((ways[port] for port in used), default=1)
        total += alone / max(at_ends, above)
        uplinks += above > at_ends
    return total, uplinks > 0
