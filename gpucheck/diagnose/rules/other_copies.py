"""Copies but those of one pair, one way: both ways, staged, small ones, several at the same time, and to the host."""

from collections import Counter
from collections.abc import Iterable, Iterator
from math import exp
from statistics import median

from gpucheck.checks._case import Case, listed, observed, percent, span
from gpucheck.checks._healthy import Level, direct, host_copy, level, levels
from gpucheck.checks._machine import FASTEST_SLOT, Machine, Pair
from gpucheck.checks.pcie.numa import ABOVE_PCIE, placed
from gpucheck.checks.pcie.numa import COPIES as HOST
from gpucheck.checks.pcie.path import low_uplinks
from gpucheck.diagnose.rules.copies import Slow, accuse, fits_half, gpus_of, is_explained, lower_still, without_rate
from gpucheck.diagnose.suspects import NOT_USED_US, Suspect, cause_of, suspects
from gpucheck.knowledge import healthy_rates
from gpucheck.knowledge.codes import Subject
from gpucheck.model.diagnosis.observations import Flow
from gpucheck.model.finding import Finding, Verdict
from gpucheck.printable import counted
from gpucheck.topology.expected import FAR, both_directions

BOTH, STAGED = "p2p-both-ways", "staged-copies"
FAR_BOTH = -4  # deviations: healthy sums have two plateaus, 0.75 and 0.95 of both alone (DistServe#3)
FAR_STAGED = 0.40  # of the median
LIKE_STAGED = 0.6  # of the best: staged copies of healthy pairs differ by a third


def rule(case: Case) -> Iterator[Finding]:
    yield from _both_ways(case)
    yield from _staged(case)


def _both_ways(case: Case) -> Iterator[Finding]:
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
    case.slow |= set(slow)
    verdict, code = (Verdict.WARN, "copies.both-ways-slow") if slow else (Verdict.UNKNOWN, "copies.both-ways-unknown")
    if low := slow or unsure:
        seen = f"{span(total for total, _ in low.values())} GB/s both ways"
        wanted = f"about {span(alone for _, alone in low.values())} GB/s both ways"
        yield observed(BOTH, m.subject(list(low)), f"pairs: {listed(low)}").finding(verdict, code, seen, wanted)
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


# Small copies: whether a pair is unlike the others of its path.
LATENCY_CHECK = "p2p-latency"
ODD = 2.0  # times the median of the pairs of its class
# From here on a small copy took as long as through host memory: this part of what that takes, or this long where that
# was not measured. Peer copies take up to 4 us on today's hosts and up to 10 us on old ones, staged ones 11 to 63 us.
LIKE_STAGED, STAGED_US = 0.9, 20.0


def latency_rule(case: Case) -> Iterator[Finding]:
    """One finding for pairs far above their like, or one pass; nothing if copies are staged or explained."""
    m, matrix = case.machine, case.machine.measured.p2p_latency_us
    direct = {}
    for i, j in m.pairs if matrix else ():
        times = [us for us in (matrix[i][j], matrix[j][i]) if us]  # type: ignore[index]
        if times and (m.access[i, j] or (m.access[i, j] is None and m.joined((i, j)))):
            direct[i, j] = max(times)
    if not direct:
        return
    by_class: dict[str | None, list[float]] = {}
    for pair, us in direct.items():
        by_class.setdefault(m.classes[pair], []).append(us)
    most = {cls: ODD * median(values) for cls, values in by_class.items()}
    left = {pair: us for pair, us in direct.items() if pair not in case.slow}
    odd = [pair for pair, us in left.items() if us > most[m.classes[pair]]]
    # Where all pairs are equal, what a small copy takes shows whether it went straight.
    by_host = [time for row in m.measured.staged_latency_us or () for time in row if time]
    limit = max(NOT_USED_US, LIKE_STAGED * min(by_host)) if by_host else STAGED_US
    staged = [] if odd else [pair for pair, us in left.items() if us > limit and m.access[pair]]
    if late := odd or staged:
        others = tuple(one.cause for one in suspects(m, "not-used", staged)) if staged else ()
        code = "copies.latency-staged" if staged else "copies.latency-odd"
        seen, wanted = max(direct[pair] for pair in late), max(most[m.classes[pair]] for pair in late)
        subject, usual = observed(LATENCY_CHECK, m.subject(late), unit="us"), round(limit if staged else wanted, 1)
        yield subject.warns(code, round(seen, 1), usual, others=others, pairs=listed(late))
    elif left == direct and max(direct.values()) <= limit:
        yield Subject(check=LATENCY_CHECK).passes(f"{span(direct.values())} us, {counted(len(direct), 'GPU pair')}")


# Copies at the same time: sharing a link is arithmetic, falling below one link is not.
FLOW_CHECK = "simultaneous-copies"
# Part of the arithmetic sum that is still sharing, and below which something collapses.
SHARES, COLLAPSES, ALONE = 0.75, 0.55, 0.85


def flow_rule(case: Case) -> Iterator[Finding]:
    for flow in case.machine.measured.flows:
        singles = [value for pair in flow.pairs if (value := _alone(case, pair))]
        if len(flow.pairs) > 1 and len(singles) == len(flow.pairs):
            yield from _flow(case, flow, singles)


def _flow(case: Case, flow: Flow, singles: list[float]) -> Iterator[Finding]:
    m, total, count = case.machine, flow.total_gb_s, len(flow.pairs)
    groups = [group for group in m.uplinks if len(group) > 1]
    shared, uplink = _together(flow, singles, groups)
    crossing = any((a in group) != (b in group) for a, b in flow.pairs for group in groups)
    at_once = f"at the same time: {listed(flow.pairs)}"
    part = total / shared
    collapsed = crossing and m.measured.method.direction != "read"
    if part < COLLAPSES and (collapsed or total < 0.8 * max(singles)):
        known = collapsed and bool(m.measured.method.direction)
        may = "copies.writes-may-collapse" if collapsed else "copies.share-unknown-link"
        verdict, code = (Verdict.FAIL, "copies.writes-collapse") if known else (Verdict.WARN, may)
        host = observed(FLOW_CHECK, "host", at_once, f"{percent([part])} of a fair share")
        yield host.finding(verdict, code, total, shared, count=count)
    elif total < ALONE * sum(singles):
        code = "copies.share-uplink" if uplink or part < SHARES else "copies.share-link"
        sure = "likely" if uplink else "possible"
        host, alone = observed(FLOW_CHECK, "host", at_once), round(median(singles), 1)
        yield host.explains(code, total, shared, confidence=sure, count=count, alone=alone)


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


# Copies between host memory and each GPU: memory of the wrong NUMA node, the link, or host memory itself.
ALIKE = 0.70  # of the fastest GPU: all are slow for one reason
FAIL_BELOW = 0.60  # of the healthy median
MOST_TO_HOST = 1000.0  # GB/s; no link to host memory carries more, NVLink-C2C 450 each way


def host_rule(case: Case) -> Iterator[Finding]:
    """Each GPU with host copies, but for those whose link another rule names."""
    m = case.machine
    blind: dict[int, float] = {}
    low: dict[int, Level] = {}
    fine: dict[int, Level] = {}
    blamed = {one.subject for one in case.findings if one.verdict in (Verdict.FAIL, Verdict.WARN)}
    wrong: set[int] = set()
    for i in range(m.count):
        rows = [row for row in m.measured.host_device if row.gpu == i and row.slower]
        mine = {pair for pair in m.pairs if i in pair}
        # Pairs that are slow for the same link are named already, and so is a way up that was read below its maximum.
        named = len(mine & case.slow) * 2 >= len(mine) > 0 or any(
            i in group and low_uplinks(m, group) for group in m.uplinks
        )
        if not rows or m.gpu_label(i) in blamed or named:
            continue
        if found := placed(m, i, rows):
            wrong.add(i)
            yield found
            continue
        best = max(rows, key=lambda row: row.slower)
        node = m.gpu(i).numa_node
        far = None if best.numa_node is None or node is None else best.numa_node != node
        row = level(best.slower, host_copy(m, i, far=far))
        if best.slower > MOST_TO_HOST or (row is None and best.slower <= ABOVE_PCIE * FASTEST_SLOT):
            blind[i] = best.slower
        elif row is None:
            continue
        elif row.value <= ABOVE_PCIE * row.usual.line:
            (fine if row.is_healthy else low)[i] = row
        else:
            fine[i] = row._replace(
                usual=row.usual._replace(gb_s=row.value, basis="a faster way to host memory than PCIe")
            )
    if blind:
        yield observed(HOST).unknown("access.host-link-unknown", _to_host(blind.values()))
    if fine and not low and not wrong:
        seen = _to_host(row.value for row in fine.values())
        seen += f", {percent(row.part for row in fine.values())} of expected"
        yield observed(HOST).explains("access.host-healthy", seen, basis=next(iter(fine.values())).usual.basis)
    coherent = {i: row for i, row in low.items() if (model := m.models[i]) and model.c2c}
    yield from _low_c2c(m, coherent)
    yield from _low(m, {i: low[i] for i in low.keys() - coherent.keys()}, len(low) + len(fine) + len(wrong))


def _to_host(rates: Iterable[float]) -> str:
    values = list(rates)
    return f"{span(values)} GB/s between host memory and {counted(len(values), 'GPU')}"


def _low_c2c(m: Machine, low: dict[int, Level]) -> Iterator[Finding]:
    """Below what NVLink-C2C reaches: its links, or memory of the other Grace CPU."""
    for i, row in low.items():
        far = row.value < row.usual.far
        verdict = Verdict.UNKNOWN if m.host.virtual or (row.usual.vague and not far) else Verdict.WARN
        verdict = Verdict.FAIL if far and not row.usual.vague else verdict
        subject = observed(HOST, m.gpu_label(i), f"{percent([row.part])} of the healthy rate")
        yield subject.finding(verdict, "access.host-c2c-slow", row.value, row.usual.gb_s, basis=row.usual.basis)


def _low(m: Machine, low: dict[int, Level], count: int) -> Iterator[Finding]:
    values = [row.value for row in low.values()]
    if len(low) == count > 1 and min(values) > ALIKE * max(values):
        slots = fits_half(list(low.values())) and not all(map(m.is_slot_read, low))
        verdict = (
            Verdict.WARN
            if all(row.z < FAR and row.value < row.usual.far for row in low.values()) and not slots
            else Verdict.UNKNOWN
        )
        verdict = Verdict.UNKNOWN if m.host.virtual else verdict
        wanted = f"about {span(row.usual.gb_s for row in low.values())} GB/s"
        yield observed(HOST).finding(verdict, "access.host-all-slow", _to_host(values), wanted)
        return
    for i, row in low.items():
        pairs = [pair for pair in m.pairs if i in pair] or [(i, i)]
        found = [Suspect(one.cause, False) for one in suspects(m, "one-gpu", pairs)]
        far = row.z < FAR and row.value < row.usual.far
        failed = row.part < FAIL_BELOW and far and bool(found) and count > 1
        verdict = Verdict.FAIL if failed else Verdict.WARN if far else Verdict.UNKNOWN
        verdict = Verdict.UNKNOWN if m.host.virtual else verdict
        code = "access.host-one-slow" if found else "access.host-one-unexplained"
        subject = observed(HOST, m.gpu_label(i), f"{percent([row.part])} of the healthy rate")
        named = {"basis": row.usual.basis, "suspect": found[0].cause if found else None, **cause_of(found)}
        yield subject.finding(verdict, code, row.value, row.usual.gb_s, **named)
