"""The copies of a rig card: peer access allowed, working and correct, and measured against what the board can do."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpucheck.model.bandwidth import MeasuredPair
from gpucheck.render.copies.measured import Copies
from gpucheck.render.markdown import Markdown, table
from gpucheck.render.words import figure, plural, span

# Rows and lines that the table needs around it, and the least number of its rows.
AROUND, ROWS = 5, 6
HEADER = (
    "path",
    "pairs",
    "P2P allowed",
    "P2P works",
    "data correct",
    "one direction",
    "expected",
    "both directions",
    "latency",
)


class _Group(NamedTuple):
    """Pairs of one path with one expectation. pairs: (row, column) of both directions.

    expected, low, high, basis: of one direction; None and empty where nothing is expected.
    """

    cls: str
    pairs: tuple[MeasuredPair, ...]
    expected: float | None
    low: float | None
    high: float | None
    basis: str


def section(copies: Copies | None, page: Markdown, room: int) -> Iterator[str]:
    """Yield the table and the basis of what is expected; nothing if no copy was made. room: the most lines."""
    if copies is None or not (copies.pairs or copies.host_device):
        return
    groups = _groups(copies.pairs)
    bases: dict[tuple[str, str], list[str]] = {}
    rows = [_row(copies, group, page) for group in groups]
    for group in groups:
        bases.setdefault((_expected(group), group.basis), []).append(group.cls)
    rows += _host(copies)
    most = max(ROWS, (room - AROUND) // 2)
    yield "### Copies, GB/s (10^9 bytes per second), latency in us"
    yield ""
    yield from table(HEADER, _cut(rows, most))
    expectations = [
        f"expected {expected}, {', '.join(dict.fromkeys(of))}: {basis}"
        for (expected, basis), of in bases.items()
        if basis
    ]
    if expectations:
        yield ""
        yield from (f"- {page.text(text)}" for text in expectations[: room - AROUND - min(len(rows), most)])


def _cut(rows: list[list[str]], most: int) -> list[list[str]]:
    if len(rows) <= most:
        return rows
    return [*rows[: most - 1], [f"and {plural(len(rows) - most + 1, 'row')} more", *([""] * (len(HEADER) - 1))]]


def _groups(pairs: Sequence[MeasuredPair]) -> list[_Group]:
    found: dict[tuple[object, ...], list[MeasuredPair]] = {}
    for pair in pairs:
        if pair.src != pair.dst:
            rates = (pair.expected_gb_s, pair.low_gb_s, pair.high_gb_s)
            key = (pair.cls, *(value and figure(value) for value in rates), pair.basis)
            found.setdefault(key, []).append(pair)
    return [
        _Group(
            first.cls or "?", tuple(members), first.expected_gb_s, first.low_gb_s, first.high_gb_s, first.basis or ""
        )
        for members in found.values()
        for first in members[:1]
    ]


def _row(copies: Copies, group: _Group, page: Markdown) -> list[str]:
    rates = sorted(pair.measured.gb_s for pair in group.pairs if pair.measured is not None)
    sums = sorted(pair.both_ways_gb_s for pair in group.pairs if pair.both_ways_gb_s is not None)
    latencies = sorted(pair.latency_us for pair in group.pairs if pair.latency_us is not None)
    allowed, works = _access(copies, group)
    return [
        page.text(group.cls),
        str(len({frozenset((pair.src, pair.dst)) for pair in group.pairs})),
        page.text(allowed),
        works,
        _correct(copies, group),
        f"{_ends(rates)}{_part(rates, group)}" if rates else "not measured",
        page.text(_expected(group)),
        _ends(sums),
        _ends(latencies),
    ]


def _expected(group: _Group) -> str:
    if group.expected is not None:
        low = f" (at least {figure(group.low)})" if group.low is not None else ""
        return f"{figure(group.expected)}{low}"
    return "not known"


def _part(rates: Sequence[float], group: _Group) -> str:
    """Of what is expected, and how many values of both directions are too low."""
    slow = sum(rate < group.low for rate in rates) if group.low is not None else 0
    below = f"**{slow} of {len(rates)} below**" if slow else ""
    part = ""
    if group.expected:
        part = " to ".join(dict.fromkeys(f"{100 * rate / group.expected:.0f}" for rate in (rates[0], rates[-1]))) + " %"
    details = ", ".join(filter(None, (part, below)))
    return f" ({details})" if details else ""


def _access(copies: Copies, group: _Group) -> tuple[str, str]:
    """Whether the driver grants peer access, and whether a copy with it came to its end."""
    seen = copies.observations
    granted = [_granted(copies, pair) for pair in group.pairs]
    count, total = sum(one is True for one in granted), len(granted)
    if all(one is None for one in granted):
        return "not known", "not known"
    words = {seen.p2p_status[p.src][p.dst] for p in group.pairs} if seen.p2p_status is not None else set()
    status = ", ".join(sorted(filter(None, words - {"OK"})))
    allowed = "yes" if count == total else f"{count} of {total}" if count else "no"
    failed = {way for one in seen.measured.failures for way in one.pairs}
    tried = [pair for pair, one in zip(group.pairs, granted, strict=True) if one]
    works = sum(pair.measured is not None and (pair.src, pair.dst) not in failed for pair in tried)
    outcome = "yes" if works == len(tried) else f"**{works} of {len(tried)}**"
    return allowed + (f" ({status})" if status else ""), outcome if tried else "not used"


def _granted(copies: Copies, pair: MeasuredPair) -> bool | None:
    access = copies.observations.p2p_access
    if access is None or isinstance(access, bool):
        return access
    return access[pair.src][pair.dst]


def _correct(copies: Copies, group: _Group) -> str:
    bad = copies.observations.measured.integrity_bad_pairs
    if bad is None:
        return "not checked"
    wrong = {(pair.src, pair.dst) for pair in group.pairs} & set(bad)
    return f"**no**, {len(wrong)} of {len(group.pairs)} wrong" if wrong else "yes"


def _host(copies: Copies) -> Iterator[list[str]]:
    rates = sorted(r for link in copies.host_device for r in (link.h2d_gb_s, link.d2h_gb_s) if r is not None)
    if rates:
        yield [f"host memory, {plural(len(copies.host_device), 'GPU')}", "", "", "", "", _ends(rates), "", "", ""]


def _ends(ordered: Sequence[float]) -> str:
    return span(ordered[0], ordered[-1]) if ordered else ""
