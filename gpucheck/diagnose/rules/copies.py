"""Peer copies of pairs: each number next to the healthy machine, then the pattern of those below it.

The verdict follows from how far below. What lies below for a reason that was read is left to the rule of that reading.
"""

from collections.abc import Collection, Iterable, Iterator
from statistics import median
from typing import NamedTuple

from gpucheck.checks._case import Case, listed, observed, percent, span
from gpucheck.checks._healthy import OVER, Level, direct, level, levels, staged, verdict_of
from gpucheck.checks._machine import NEAR, Machine, Pair, link_of, nvlink_of
from gpucheck.checks.p2p.status import copied_as_staged
from gpucheck.checks.pcie.link import low_link
from gpucheck.checks.pcie.path import low_uplinks
from gpucheck.diagnose.suspects import (
    BY_DESIGN,
    CARRIES,
    NOT_USED_US,
    SAME_AS_STAGED,
    About,
    Suspect,
    cause_of,
    reading,
    suspects,
)
from gpucheck.model.finding import Finding, Verdict, worst
from gpucheck.printable import counted
from gpucheck.topology.expected import FAR, Alike

CHECK = "p2p-bandwidth"
LIKE, NVLINK_LIKE = 0.80, 0.88  # of the pairs of the same kind on this machine: below it a pair is odd
QUARTER = 0.35
AT_MOST_WARN = BY_DESIGN | {"gpu-behind-chipset"}  # a limit of the product, and a slot that was chosen
NOT_READABLE = BY_DESIGN | {"false-p2p-grant"}
ONE_WAY, ONE_WAY_HALF = 0.82, 0.60  # of the other direction
SLOWER, FAR_SLOWER = 0.90, 0.60  # of copies through host memory
NO_PATH = 0.5  # GB/s; slower than any healthy path between two GPUs

# By pattern: with a cause that fits, and without.
CODES = {
    "all-pairs": ("copies.all-slow", "copies.all-unexplained"),
    "one-gpu": ("copies.one-gpu-slow", "copies.one-gpu-unexplained"),
    "one-gpu-quarter": ("copies.one-gpu-slow", "copies.one-gpu-unexplained"),
    "below-switch": ("copies.below-switch-slow", "copies.below-switch-unexplained"),
    "out-of-switch": ("copies.out-of-switch-slow", "copies.out-of-switch-unexplained"),
    "root-ports": ("copies.root-ports-slow", "copies.root-ports-unexplained"),
    "across-sockets": ("copies.across-sockets-slow", "copies.across-sockets-unexplained"),
    "not-used": ("copies.as-staged-slow", "copies.as-staged-unexplained"),
    "some-pairs": ("copies.some-pairs-slow", "copies.some-pairs-unexplained"),
    "staged": ("copies.staged-slow", "copies.staged-unexplained"),
    "nvlink-all": ("copies.nvlink-all-slow", "copies.nvlink-all-unexplained"),
    "nvlink-one-gpu": ("copies.nvlink-one-gpu-slow", "copies.nvlink-one-gpu-unexplained"),
    "nvlink-some-pairs": ("copies.nvlink-some-pairs-slow", "copies.nvlink-some-pairs-unexplained"),
}


class Slow(NamedTuple):
    """Slow pairs of one pattern. gpu: the GPU that they have in common, where it is the pattern."""

    pattern: str
    pairs: list[Pair]
    gpu: int | None = None


def rule(case: Case) -> Iterator[Finding]:
    """Pairs over NVLink, over PCIe, in one direction, by class, and those without a known rate."""
    m, rows = case.machine, levels(case.machine)
    joined = {pair: row for pair, row in rows.items() if row.links}
    blind = [p for p in m.pairs if p not in rows and m.one_way(p) and (m.access[p] is not False or m.links(p))]
    yield from _too_fast(m, rows)
    yield from _nvlink(case, joined)
    yield from _pcie(case, {pair: row for pair, row in rows.items() if pair not in joined})
    yield from _one_direction(case, {*blind, *(pair for pair, row in rows.items() if row.is_healthy)}, rows)
    yield from _by_class(case)
    if blind:
        yield from without_rate(case, {pair: median(m.one_way(pair)) for pair in blind})
    yield from _unmeasured(m)


def _unmeasured(m: Machine) -> Iterator[Finding]:
    """GPUs without a number in an otherwise complete table. Pairs without access are evaluated by that."""
    seen = [pair for pair in m.pairs if m.one_way(pair)]
    among = {i for pair in seen for i in pair}
    left = [pair for pair in m.pairs if m.access[pair] is not False and pair not in seen]
    if left and len(seen) > 2 and not any(among >= {*pair} for pair in left):
        state = f"{len(left)} of {counted(len(m.pairs), 'GPU pair')} not measured"
        subject = observed(CHECK, m.subject(left), f"pairs: {listed(left)}")
        yield subject.unknown("copies.pairs-unmeasured", state)


# --- Findings --------------------------------------------------------------------------------------------------------


def healthy(m: Machine, rows: dict[Pair, Level]) -> Iterator[Finding]:
    kinds: dict[tuple[str | None, Alike], list[Pair]] = {}
    for pair, row in rows.items():
        kinds.setdefault((m.classes[pair], row.usual.alike), []).append(pair)
    for (cls, _), pairs in kinds.items():
        values = [rows[pair].value for pair in pairs]
        kernels = (
            bool(rows[pairs[0]].links)
            and m.measured.method.engine != "ce"
            and median(values) < 0.93 * rows[pairs[0]].usual.gb_s
        )
        code = "copies.kernels-healthy" if kernels else "copies.pairs-healthy"
        host = observed(CHECK, "host", f"pairs: {listed(pairs)}")
        seen = f"{counted(len(pairs), 'GPU pair')}, {percent(rows[pair].part for pair in pairs)} of expected"
        basis = rows[pairs[0]].usual.basis
        yield host.explains(code, seen, pairs=cls or "all", range=span(values), basis=basis)


def accuse(case: Case, slow: Slow, rows: list[Level], check: str = CHECK) -> Finding:
    m, pattern, part = case.machine, slow.pattern, median(row.part for row in rows)
    found = suspects(m, pattern, slow.pairs, rows)
    about = About(m, slow.pairs, sorted({i for pair in slow.pairs for i in pair}))
    symptoms = [cause for cause in case.symptoms(slow.pairs) if reading(about, cause) is not False]
    found = [Suspect(cause, True) for cause in symptoms] + [one for one in found if one.cause not in symptoms]
    # Pairs of a healthy rate are here because they are well below their like on this machine.
    verdict, first = worst((verdict_of(rows), Verdict.WARN)), found[0] if found else None
    verdict = verdict_of(rows) if verdict_of(rows) is Verdict.UNKNOWN else verdict
    if m.is_clear and len(slow.pairs) > 2 and all(one.cause in NOT_READABLE for one in found):
        # What could be wrong was read, and is right.
        found, verdict, first = [Suspect("expected-limit", False)], Verdict.UNKNOWN, None
    unread = Suspect("narrow-by-design", False) in found and not found[0].read
    if verdict is Verdict.UNKNOWN and _costs_peer_access(m, slow.pairs):
        verdict = Verdict.FAIL
    if pattern == "staged" or (case.every_low and fits_half(rows) and unread):
        # A staged copy depends on memory and CPU too; a slot that was not read may give half of what the card can do.
        verdict = Verdict.UNKNOWN
    elif verdict is Verdict.FAIL and (
        first is None or first.cause in AT_MOST_WARN or (pattern == "not-used" and not first.read)
    ):
        verdict = Verdict.WARN
    elif verdict is Verdict.WARN and first and first.cause in BY_DESIGN and median(row.z for row in rows) > FAR:
        verdict = Verdict.UNKNOWN
    if verdict is not Verdict.UNKNOWN:
        case.slow |= set(slow.pairs)
    values, usual = [row.value for row in rows], [row.usual.gb_s for row in rows]
    suspected, unexplained = CODES[pattern]
    line = f"pairs: {listed(slow.pairs)}, {span(values)} GB/s, {percent([part])} of the healthy rate"
    name = m.subject(slow.pairs) if slow.gpu is None or m.count == 2 else m.gpu_label(slow.gpu)
    named = {"basis": rows[0].usual.basis, "suspect": found[0].cause if found else None, **cause_of(found)}
    code, seen = suspected if found else unexplained, f"{span(values)} GB/s"
    return observed(check, name, line).finding(verdict, code, seen, f"about {span(usual)} GB/s", **named)


def _costs_peer_access(m: Machine, pairs: list[Pair]) -> bool:
    """Return whether copies without peer access are far faster, so that no link is the limit of those with it."""
    parts = [
        median(m.one_way(pair)) / median(other)
        for pair in pairs
        if (other := m.one_way(pair, staged=True)) and m.one_way(pair)
    ]
    return len(parts) == len(pairs) and median(parts) < FAR_SLOWER and not all(map(m.crosses, pairs))


def fits_half(rows: list[Level]) -> bool:
    """Return whether the numbers are healthy for half of the lanes, or for one generation less."""
    return all(row._replace(value=2 * row.value).is_healthy for row in rows)


# --- NVLink ----------------------------------------------------------------------------------------------------------


def _nvlink(case: Case, rows: dict[Pair, Level]) -> Iterator[Finding]:
    low = _low(case.machine, rows, NVLINK_LIKE)
    yield from healthy(case.machine, {pair: row for pair, row in rows.items() if pair not in low})
    gpus = gpus_of(low, rows)
    for i in gpus:
        mine = [pair for pair in low if i in pair]
        yield accuse(case, Slow("nvlink-one-gpu", mine, i), [rows[pair] for pair in mine])
    if low and not gpus:
        pattern = "nvlink-all" if len(low) == len(rows) else "nvlink-some-pairs"
        # Without access copies go through host memory, which explains no other pair.
        denied = [pair for pair in low if case.machine.access[pair] is False]
        for pairs in filter(None, (denied, [pair for pair in low if pair not in denied])):
            yield accuse(case, Slow(pattern, pairs), [rows[pair] for pair in pairs])


def _low(m: Machine, rows: dict[Pair, Level], like: float) -> dict[Pair, Level]:
    """Return pairs below the healthy range, or well below the middle of their kind on this machine."""
    usual = _middle(m, {pair: row.value for pair, row in rows.items()})
    return {pair: row for pair, row in rows.items() if not row.is_healthy or row.value < like * usual[pair]}


def _middle(m: Machine, values: dict[Pair, float]) -> dict[Pair, float]:
    """Return the middle of the pairs of the same path between the same models.

    A pair that was measured while others copied is compared with such pairs only: alone it may be faster. One that was
    measured alone is at least as fast as those were.

    The rates themselves are compared and not their parts of the healthy rate, which is that of the link as it was read:
    the number may be the only sign that a link has lost lanes.
    """
    kinds = {pair: (m.classes[pair] or m.joined(pair), m.products(pair)) for pair in values}
    found: dict[object, list[float]] = {}
    alone: dict[object, list[float]] = {}
    for pair, value in values.items():
        (alone if m.measured_alone(pair) else found).setdefault(kinds[pair], []).append(value)
    together = {kind: median(rates) for kind, rates in found.items()}
    best = {kind: max(median(rates), together.get(kind, 0.0)) for kind, rates in alone.items()}
    return {pair: (best if m.measured_alone(pair) else together)[kind] for pair, kind in kinds.items()}


def gpus_of(low: Iterable[Pair], tested: Iterable[Pair]) -> list[int]:
    """Return the GPUs, fewer than half, of which every pair is low while all other pairs are not."""
    low = set(low)
    with_gpu: dict[int, list[Pair]] = {}
    for pair in tested:
        for i in pair:
            with_gpu.setdefault(i, []).append(pair)
    whole = {i for i, mine in with_gpu.items() if len(mine) > 1 and all(pair in low for pair in mine)}
    covers = whole and len(whole) * 2 < len(with_gpu) and all(set(pair) & whole for pair in low)
    return sorted(whole) if covers and len(with_gpu) > 2 else []


# --- PCIe ------------------------------------------------------------------------------------------------------------


def _pcie(case: Case, rows: dict[Pair, Level]) -> Iterator[Finding]:
    m = case.machine
    rows = {pair: row for pair, row in rows.items() if row.is_healthy or not is_explained(m, pair, row)}
    low = _low(m, rows, LIKE)
    # An unknown path passes only in the range of every path, so that less knowledge is no better verdict.
    unsure = {
        pair: row
        for pair, row in rows.items()
        if row.usual.vague and pair not in low and not _on_any_path(m, pair, row)
    }
    through_host = {
        pair: row for pair, row in {**low, **unsure}.items() if _by_product(m, pair) and _as_staged(m, pair, row)
    }
    if through_host and set(low) <= set(through_host):
        yield copied_as_staged(m, through_host)
        low, unsure = {}, {pair: row for pair, row in unsure.items() if pair not in through_host}
        rows = {pair: row for pair, row in rows.items() if pair not in through_host}
    if unsure:
        yield _unsure(m, unsure)
    nameless = [pair for pair in rows if pair not in low and pair not in unsure and _may_have_nvlink(m, pair)]
    if nameless:
        unsure = unsure | {pair: rows[pair] for pair in nameless}
        seen = f"{span(rows[pair].value for pair in nameless)} GB/s"
        yield observed(CHECK).unknown("copies.model-unknown", seen, "a GPU model")
    yield from healthy(m, {pair: row for pair, row in rows.items() if pair not in low and pair not in unsure})
    case.every_low = bool(low) and len(low) == len(rows)
    while low:
        slow = _pattern(m, low, rows)
        yield accuse(case, slow, [rows[pair] for pair in slow.pairs])
        low = {pair: row for pair, row in low.items() if pair not in slow.pairs}


def is_explained(m: Machine, pair: Pair, row: Level) -> bool:
    """Return whether a link of the pair was read narrow, slow or behind the chipset, and the number is right for it."""
    for i in pair:
        lower = low_link(m, i, "width") or low_link(m, i, "gen")
        port = next(iter(m.read_links(i)), None) if lower else None
        link = link_of(port.gen or m.design[i][0], port.width or m.design[i][1]) if port else None
        link = link_of(4, 4) if m.is_behind_chipset(i) else link
        if link and row.value >= CARRIES * link.gb_s:
            return True
    ways = [group for group in m.uplinks if (pair[0] in group) != (pair[1] in group)]
    links = [link_of(port.gen, port.width) for group in ways for port in low_uplinks(m, group)]
    return any(link and row.value >= CARRIES * link.gb_s for link in links)


def _may_have_nvlink(m: Machine, pair: Pair) -> bool:
    """Return whether neither a model nor a count of NVLinks excludes that these GPUs have NVLink."""
    return all(m.gpu(i).model is None and m.gpu(i).nvlinks.total is None for i in pair)


def _on_any_path(m: Machine, pair: Pair, row: Level) -> bool:
    near = level(row.value, direct(m, pair, "PHB"))
    return near is None or near.is_healthy


def _by_product(m: Machine, pair: Pair) -> bool:
    """Return whether the product or a guest may have no P2P, and nothing was read about this pair."""
    return m.access[pair] is None and bool(m.is_geforce or m.host.virtual)


def _as_staged(m: Machine, pair: Pair, row: Level) -> bool:
    other = level(row.value, staged(m, pair))
    return other is not None and other.is_healthy


def _unsure(m: Machine, rows: dict[Pair, Level]) -> Finding:
    seen, part = f"{span(row.value for row in rows.values())} GB/s", percent(row.part for row in rows.values())
    wanted = f"about {span(row.usual.gb_s for row in rows.values())} GB/s"
    named, basis = cause_of(suspects(m, "all-pairs", list(rows))), next(iter(rows.values())).usual.basis
    subject = observed(CHECK, m.subject(list(rows)), f"pairs: {listed(rows)}")
    return subject.unknown("copies.path-unknown", seen, wanted, part=part, basis=basis, **named)


def _pattern(m: Machine, low: dict[Pair, Level], rows: dict[Pair, Level]) -> Slow:
    if gpus := gpus_of(low, rows) or lower_still(low, rows) or _slow_to_host(m, low):
        mine = [pair for pair in low if gpus[0] in pair]
        quarter = median(rows[pair].part for pair in mine) < QUARTER
        return Slow("one-gpu-quarter" if quarter else "one-gpu", mine, gpus[0])
    for group in m.uplinks:
        crossing = [pair for pair in rows if (pair[0] in group) != (pair[1] in group)]
        inside = [pair for pair in rows if set(pair) <= group]
        if crossing and inside and all(pair in low for pair in crossing) and not any(pair in low for pair in inside):
            sockets = all(map(m.crosses, crossing)) and not low_uplinks(m, group)
            return Slow("across-sockets" if sockets else "out-of-switch", crossing)
    pairs, far = list(low), [pair for pair in low if m.classes[pair] not in NEAR]
    with_staged = {pair: rows[pair].value / median(other) for pair in pairs if (other := m.one_way(pair, staged=True))}
    same = [pair for pair, part in with_staged.items() if SAME_AS_STAGED[0] <= part <= SAME_AS_STAGED[1]]
    times = [us for i, j in pairs if m.measured.p2p_latency_us and (us := m.measured.p2p_latency_us[i][j])]
    if (times and median(times) > NOT_USED_US) or (len(same) * 2 > len(pairs) and not times):
        return Slow("not-used", pairs)
    near = [pair for pair in pairs if pair not in far]
    if near and (not far or len(far) < sum(m.classes[pair] not in NEAR for pair in rows)):
        return Slow("below-switch", near)
    is_slower = any(part < SLOWER for part in with_staged.values())
    if len(pairs) < len(rows):
        if not near and all(m.classes[pair] for pair in pairs):
            return Slow("across-sockets" if all(map(m.crosses, far)) else "root-ports", pairs)
        return Slow("some-pairs", pairs)
    return Slow(
        "root-ports" if is_slower and not near and all(m.classes[pair] for pair in pairs) else "all-pairs", pairs
    )


def _slow_to_host(m: Machine, low: dict[Pair, Level]) -> list[int]:
    """Return the one GPU that is far slower than the others to host memory, if it is in every low pair."""
    best = [max((row.slower for row in m.measured.host_device if row.gpu == i), default=0.0) for i in range(m.count)]
    slow = [i for i, rate in enumerate(best) if rate < LIKE * max(best)]
    return slow if len(slow) == 1 and all(best) and all(slow[0] in pair for pair in low) else []


def lower_still(low: Collection[Pair], rows: dict[Pair, Level]) -> list[int]:
    if len(low) < len(rows) or len(rows) < 3:
        return []
    middle = median(row.part for row in rows.values())
    lower = [pair for pair, row in rows.items() if row.part < LIKE * middle]
    gpus = gpus_of(lower, rows)
    return gpus if len(gpus) == 1 else []


# --- One direction, classes, unknown rates ---------------------------------------------------------------------------


def _one_direction(case: Case, pairs: set[Pair], rows: dict[Pair, Level]) -> Iterator[Finding]:
    """Healthy pairs differ by a few per cent between directions; staged ones by a fifth, so they are not looked at."""
    m, matrix, alone = case.machine, case.machine.measured.p2p_uni_gb_s, case.machine.measured.p2p_uni_alone
    slow = []
    if matrix is None:
        return
    for a, b in sorted(way for pair in pairs for way in (pair, pair[::-1])):
        there, back, pair = matrix[a][b], matrix[b][a], (min(a, b), max(a, b))
        same_way = alone is None or alone[a][b] == alone[b][a]
        if same_way and there and back and there < ONE_WAY * back:
            row = level(there, rows[pair].usual) if pair in rows else None
            if row is None or not row.is_healthy or there < ONE_WAY_HALF * back:
                slow.append((a, b))
    if not slow:
        return
    about = sorted({(min(way), max(way)) for way in slow})
    grant = m.is_geforce and all(m.access[pair] for pair in about)
    case.slow |= set(about)
    subject = observed(CHECK, m.subject(about), f"slow ways: {listed(slow)}")
    seen = f"{span(v for a, b in slow if (v := matrix[a][b]))} GB/s"
    wanted = f"{span(v for a, b in slow if (v := matrix[b][a]))} GB/s as the other way"
    named = cause_of([Suspect("false-p2p-grant", False)] if grant else [])
    yield subject.warns("copies.one-direction-slow", seen, wanted, **named)


def _by_class(case: Case) -> Iterator[Finding]:
    """The ends of a range given for a path class, if no pair has a number of its own."""
    m = case.machine
    if m.measured.p2p_uni_gb_s or m.measured.p2p_bidir_gb_s or m.count < 2:
        return
    for cls, ends in m.measured.by_class.items():
        pairs = [pair for pair in m.pairs if m.classes[pair] == cls] or [m.pairs[0]]
        found = [row for value in ends if value and (row := level(value, direct(m, pairs[0], cls)))]
        if not found:
            yield from without_rate(case, {pairs[0]: median(ends)})
        elif any(row.value > OVER * row.usual.line for row in found):
            yield observed(CHECK).warns("copies.above-line-rate", max(ends), found[0].usual.line, pairs=cls)
        elif verdict_of(found) is Verdict.PASS:
            seen, rates = f"{cls} pairs, {percent(row.part for row in found)} of expected", [row.value for row in found]
            basis = found[0].usual.basis
            yield observed(CHECK).explains("copies.pairs-healthy", seen, pairs=cls, range=span(rates), basis=basis)
        else:
            pattern = {"PIX": "below-switch", "PXB": "below-switch", "SYS": "across-sockets"}.get(cls, "root-ports")
            yield accuse(case, Slow("nvlink-some-pairs" if cls.startswith("NV") else pattern, pairs), found)


def without_rate(case: Case, values: dict[Pair, float], check: str = CHECK) -> Iterator[Finding]:
    m = case.machine
    seen = f"{span(values.values())} GB/s on {counted(len(values), 'GPU pair')}"
    middle = _middle(m, values)
    gpus = gpus_of([pair for pair, value in values.items() if value < LIKE * middle[pair]], values)
    for i in gpus:
        mine = [pair for pair in values if i in pair]
        case.slow |= set(mine)
        rate = f"{span(values[pair] for pair in mine)} GB/s"
        wanted = f"{span(middle[pair] for pair in mine)} GB/s as the other GPUs"
        named = cause_of(suspects(m, "one-gpu", mine))
        yield observed(check, m.gpu_label(i)).warns("copies.one-gpu-unlike", rate, wanted, **named)
    if max(values.values()) < NO_PATH:
        others, wanted = ("acs-redirect", "cross-socket"), f"{NO_PATH:g} GB/s at the very least"
        yield observed(check).warns("copies.no-path", seen, wanted, others=others)
    elif not gpus:
        missing = "the GPU model" if any(gpu.model is None for gpu in m.seen.gpus) else "a link rate of these GPUs"
        yield observed(check).unknown("copies.rate-unknown", seen, missing=missing)


def _too_fast(m: Machine, rows: dict[Pair, Level]) -> Iterator[Finding]:
    both = m.measured.p2p_bidir_gb_s
    sums = {(i, j): [value / 2 for value in (both[i][j], both[j][i]) if value] if both else [] for i, j in rows}
    most = {pair: max(*m.one_way(pair), *sums[pair], 0.0) for pair in rows}
    fast = {pair: row for pair, row in rows.items() if most[pair] > OVER * _line(m, pair, row)}
    if fast:
        seen, line = round(max(most[pair] for pair in fast), 1), min(row.usual.line for row in fast.values())
        subject = observed(CHECK, m.subject(list(fast)))
        yield subject.warns("copies.above-line-rate", seen, line, pairs=listed(fast))


def _line(m: Machine, pair: Pair, row: Level) -> float:
    """Return the rate that nothing between the two exceeds: of all NVLinks of a GPU where the wiring is not known."""
    model, rate = m.models[pair[0]], nvlink_of(m.gpu(pair[0]).model)
    if not row.links or m.links(pair) or model is None or model.nvlink is None or rate is None:
        return row.usual.line
    return max(row.usual.line, model.nvlink.links * rate.gb_s)
