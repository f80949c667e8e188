"""Copies at the same time: sharing a link is arithmetic, falling below one link is not."""

from collections import Counter
from collections.abc import Iterator

from gpucheck.diagnose._rule import Case, Confidence, Diagnosis, Rule, finding, listed, middle
from gpucheck.diagnose.machine import NEAR, Machine, Pair
from gpucheck.diagnose.rules.slow_uplink import islands
from gpucheck.model.finding import Finding
from gpucheck.model.observations import Flow
from gpucheck.model.verdict import Verdict

# Part of the arithmetic sum that is still sharing, and below which something collapses.
SHARES, COLLAPSES = 0.75, 0.55


def judge(case: Case) -> Iterator[Diagnosis]:
    """Each set of simultaneous copies against what its links can carry together."""
    for flow in case.machine.measured.flows:
        yield from _flow(case, flow)


def _flow(case: Case, flow: Flow) -> Iterator[Diagnosis]:
    m = case.machine
    singles = [value for pair in flow.pairs if (value := _alone(case, pair))]
    if len(flow.pairs) < 2 or len(singles) < len(flow.pairs):
        return
    groups = [group for group in _groups(m) if len(group) > 1]
    shared, way = _together(flow, singles, groups)
    alone, total = sum(singles), flow.total_gb_s
    crossing = [p for p in flow.pairs if any((p[0] in group) != (p[1] in group) for group in groups)]
    if total < COLLAPSES * shared and crossing and m.measured.method.direction != "read":
        yield Diagnosis(_collapse(flow, shared, bool(m.measured.method.direction)))
    elif total < COLLAPSES * shared:
        yield Diagnosis(_too_little(flow, shared))
    elif total < 0.85 * alone:
        uplink = way == "uplink" or total < SHARES * shared
        yield Diagnosis(
            finding(
                RULE.name,
                Verdict.PASS,
                "shared-uplink" if uplink else "expected-limit",
                "likely" if way == "uplink" else "possible",
                subject="host",
                seen=total,
                wanted=shared,
                why=f"{len(flow.pairs)} copies at once share one {'uplink' if uplink else 'link'}: {total:.3g} GB/s "
                f"together, {middle(singles):.3g} GB/s each when alone",
                evidence=[f"at once: {listed(flow.pairs)}"],
            )
        )


def _groups(m: Machine) -> list[frozenset[int]]:
    near = [pair for pair in m.pairs if m.classes[pair] in NEAR]
    return islands(m, near) + [frozenset(uplink.gpus) for uplink in m.seen.uplinks if uplink.gpus]


def _alone(case: Case, way: Pair) -> float | None:
    """What one of the copies reaches by itself; else the expectation of its pair."""
    matrix = case.machine.measured.p2p_uni_gb_s
    value = matrix[way[0]][way[1]] if matrix else None
    pair = (min(way), max(way))
    rate, goal = case.rates.p2p(pair), case.rates.goals[pair]
    return value or (rate.gb_s if rate else None) or (goal.gb_s if goal else None)


def _together(flow: Flow, singles: list[float], groups: list[frozenset[int]]) -> tuple[float, str]:
    """The sum when every link is shared fairly, and which kind of link is the one shared."""
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
    return total, "uplink" if uplinks else "link"


def _collapse(flow: Flow, shared: float, told: bool) -> Finding:
    sure: Confidence = "likely" if told else "possible"
    return finding(
        RULE.name,
        Verdict.FAIL if told else Verdict.WARN,
        "switch-write-collapse",
        sure,
        subject="host",
        seen=flow.total_gb_s,
        wanted=shared,
        why=f"{len(flow.pairs)} copies at once between switches reach {flow.total_gb_s / shared:.2f} of what the "
        f"shared "
        "link carries: writes across these switches collapse" + ("" if told else ", if writes were measured"),
        fix="measure reads at the same time and compare",
        evidence=[f"at once: {listed(flow.pairs)}"],
    )


def _too_little(flow: Flow, shared: float) -> Finding:
    return finding(
        RULE.name,
        Verdict.WARN,
        "shared-uplink",
        "possible",
        subject="host",
        seen=flow.total_gb_s,
        wanted=shared,
        why=f"{len(flow.pairs)} copies at once reach {flow.total_gb_s / shared:.2f} of what their own links carry "
        "together: they share a link or root complex that was not told",
        fix="lspci -tv shows what these GPUs have in common",
        evidence=[f"at once: {listed(flow.pairs)}"],
    )


RULE = Rule(
    name="simultaneous",
    order=65,
    title="Copies at the same time",
    looks_at="measured.flows, the same pairs alone, matrix and uplinks for what they share, method.direction",
    formula="expected together = sum of alone / number of copies on the busiest link of each; less than 0.85 x the "
    "plain "
    "sum is sharing, less than 0.55 x the shared sum across switches is a collapse of writes",
    sources=("rtx6kpro wrx90 and Turin reports", "nccl#1603"),
    cases=("rtx6kpro wrx90-cpayne-2switch-flat (healthy)", "rtx6kpro asrockrack-turin-16gpu (healthy)"),
    judge=judge,
)
