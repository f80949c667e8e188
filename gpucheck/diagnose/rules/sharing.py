"""What healthy numbers show: near pairs slower than far ones when staged, sockets, a slower card; GPUs under load."""

from collections.abc import Iterable, Iterator
from statistics import median

from gpucheck.checks._case import UNDER_LOAD, Case, listed, observed, span
from gpucheck.checks._machine import NEAR, Machine, Pair
from gpucheck.knowledge.codes import Subject
from gpucheck.model.diagnosis.observations import UnderLoad
from gpucheck.model.finding import Finding
from gpucheck.printable import counted
from gpucheck.topology.wiring import islands

SLIGHTLY = 0.8, 0.95
NEAR_IS_SLOWER, LEAST, SLOWER, FAST = 0.85, 0.35, 0.93, 0.93


def rule(case: Case) -> Iterator[Finding]:
    """Each a pass with its cause, so that they are not taken for a fault."""
    m = case.machine
    rates = {pair: min(values) for pair in m.pairs if pair not in case.slow and (values := m.one_way(pair))}
    # Denied, or never granted on this product.
    staged = {pair for pair in rates if m.access[pair] is False or (m.access[pair] is None and m.is_geforce)}
    through_host = {pair: rate for pair, rate in rates.items() if pair in staged}
    direct = {pair: rate for pair, rate in rates.items() if pair not in through_host and not m.joined(pair)}
    yield from _staged(m, through_host)
    yield from _slower_cards(m, rates)
    yield from _sockets(m, direct, case)


def _staged(m: Machine, rates: dict[Pair, float]) -> Iterator[Finding]:
    """By class where it is known; else GPUs that are slow exactly among themselves are taken to share an uplink."""
    near, known = [pair for pair in rates if m.classes[pair] in NEAR], True
    if not any(m.classes[pair] for pair in rates):
        near, known = _cliques(m, rates), False
    far = [pair for pair in rates if pair not in near]
    if not near or not far:
        return
    low, high = median(rates[pair] for pair in near), median(rates[pair] for pair in far)
    if not LEAST * high <= low < NEAR_IS_SLOWER * high:
        return
    groups = [group for group in islands(range(m.count), near) if len(group) > 1]
    host, sure = observed("shared-uplink", "host", f"near: {listed(near)}"), "likely" if known else "possible"
    seen = f"{span(rates[pair] for pair in near)} GB/s near, {span(rates[pair] for pair in far)} far"
    yield host.explains("copies.near-slower", seen, confidence=sure, groups=_names(groups[:4]))


def _names(groups: Iterable[frozenset[int]]) -> tuple[str, ...]:
    return tuple("{" + ", ".join(map(str, sorted(group))) + "}" for group in groups)


def _slower_cards(m: Machine, rates: dict[Pair, float]) -> Iterator[Finding]:
    """A card a little slower with every peer, near and far, than the others are among themselves."""
    fastest: dict[str | None, list[Pair]] = {}
    for pair in sorted(rates, key=lambda pair: -rates[pair]):
        fastest.setdefault(m.classes[pair], []).append(pair)
    slower = [i for i in range(m.count) if m.count > 2 and _is_slower(i, rates, fastest)]
    for i in slower if len(slower) * 2 < m.count else ():
        mine = max(rate for pair, rate in rates.items() if i in pair)
        rest = max(rate for pair, rate in rates.items() if i not in pair)
        less = round(100 * (1 - mine / rest))
        yield observed("p2p-bandwidth", m.gpu_label(i)).explains("copies.card-slower", mine, rest, percent=less)


def _is_slower(i: int, rates: dict[Pair, float], fastest: dict[str | None, list[Pair]]) -> bool:
    """In every path class below the pairs that do without it, and not so far below that it is a fault."""
    compared = []
    for pairs in fastest.values():
        mine = next((rates[pair] for pair in pairs if i in pair), None)
        rest = next((rates[pair] for pair in pairs if i not in pair), None)
        if mine is not None and rest is not None:
            compared.append(SLIGHTLY[0] * rest < mine < SLIGHTLY[1] * rest)
    return bool(compared) and all(compared)


def _cliques(m: Machine, rates: dict[Pair, float]) -> list[Pair]:
    """The slow pairs, when they are exactly the pairs inside groups and the fast ones exactly those between."""
    if not rates or len(rates) < len(m.pairs):
        return []
    most = max(rates.values())
    slow = [pair for pair, rate in rates.items() if rate < NEAR_IS_SLOWER * most]
    groups = islands(range(m.count), slow)
    inside = [pair for pair in m.pairs if any(set(pair) <= group for group in groups)]
    return slow if slow and set(inside) == set(slow) and len(groups) > 1 else []


def _sockets(m: Machine, rates: dict[Pair, float], case: Case) -> Iterator[Finding]:
    """By class or NUMA node; where every pair reads SYS, by two groups that are fast inside and uniform between."""
    if "cross-socket" in {f.cause for f in case.findings}:
        return
    far = [pair for pair in rates if m.crosses(pair)]
    near = [pair for pair in rates if m.crosses(pair) is False]
    groups: list[frozenset[int]] = []
    if not near and len(far) in (0, len(rates)):
        groups = _two_groups(m, rates)
        far = [pair for pair in rates if groups and not any(set(pair) <= group for group in groups)]
        near = [pair for pair in rates if groups and pair not in far]
    if not far or not near:
        return
    usual, value = median(rates[p] for p in near), median(rates[p] for p in far)
    if not value < SLOWER * usual:
        return
    host = observed("cross-socket", "host", f"across: {listed(far)}")
    seen = f"{span(rates[pair] for pair in far)} GB/s across, {span(rates[pair] for pair in near)} inside"
    yield host.explains("copies.groups-slower" if groups else "copies.sockets-slower", seen, groups=_names(groups))


def _two_groups(m: Machine, rates: dict[Pair, float]) -> list[frozenset[int]]:
    """Two groups of at least two GPUs, every pair inside faster than every pair between."""
    if m.host.sockets == 1 or not rates:
        return []
    most = max(rates.values())
    groups = islands(range(m.count), [pair for pair, rate in rates.items() if rate >= FAST * most])
    if len(groups) != 2 or min(map(len, groups)) < 2:
        return []
    inside = [rate for pair, rate in rates.items() if any(set(pair) <= group for group in groups)]
    between = [rate for pair, rate in rates.items() if not any(set(pair) <= group for group in groups)]
    return groups if between and min(inside) > max(between) else []


# What the GPUs reported while copies ran, where no check found a fault in it.
SLOW_LINK = ("pcie-width-reduced", "pcie-link-downgraded")


def load_rule(case: Case) -> Iterator[Finding]:
    """One pass that claims what was read and no more."""
    rows = case.machine.measured.under_load
    found = any(one.check == UNDER_LOAD for one in case.findings)
    virtual = bool(case.machine.host.virtual)
    if rows and virtual:
        yield observed(UNDER_LOAD).skips(
            "links.guest-reading", "not applicable: PCIe generation and width in a virtual machine"
        )
    slow = any(f.cause in SLOW_LINK for f in case.findings)
    if rows and not found and not slow:
        yield _fine(rows, virtual=virtual)


def _fine(rows: tuple[UnderLoad, ...], *, virtual: bool) -> Finding:
    full = all(None not in (row.gen, row.max_gen, row.width, row.max_width) for row in rows)
    read = {
        "at full PCIe link rate": full and not virtual,
        "not throttled": all(row.throttled is not None for row in rows),
        "no new link error": all(row.errors is not None for row in rows),
    }
    fine = [words for words, known in read.items() if known]
    count = counted(len(rows), "GPU")
    if fine:
        return Subject(check=UNDER_LOAD).passes(f"{count} {', '.join(fine)}")
    return observed(UNDER_LOAD).unknown("links.load-unread", "link state under load unknown: NVML does not report it")
