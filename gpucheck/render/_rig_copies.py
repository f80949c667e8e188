"""The copies of a rig card: peer access allowed, working and correct, and measured against what the board can do."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpucheck.model.bandwidth import MeasuredPair
from gpucheck.render._markdown import Markdown, table
from gpucheck.render._measured import Copies
from gpucheck.render._predicted import Block, Row, blocks, figure, span
from gpucheck.render.words import plural

ROWS = 7
HEADER = (
    "path",
    "pairs",
    "P2P allowed",
    "P2P works",
    "data correct",
    "measured",
    "expected",
    "of expected",
    "both directions",
    "latency, us",
    "basis of the expected bandwidth",
)
RIGHT = (1,)


class _Group(NamedTuple):
    """Pairs of one path with one expectation. pairs: (row, column) of both directions."""

    cls: str
    pairs: tuple[MeasuredPair, ...]


def section(copies: Copies | None, page: Markdown) -> Iterator[str]:
    """Yield the table; nothing if no copy was made."""
    if copies is None or not (copies.pairs or copies.host_device):
        return
    judgement = copies.judgement()
    winner = judgement.ranking[0] if judgement and judgement.ranking else None
    predicted = blocks(winner) if winner else []
    groups = _groups(copies.pairs)
    rows = [_row(copies, group, predicted, page) for group in groups[:ROWS]]
    if len(groups) > ROWS:
        left = sum(len(group.pairs) for group in groups[ROWS:]) // 2
        rows.append([f"and {left} pairs more", *([""] * (len(HEADER) - 1))])
    rows += _host(copies, predicted, page)
    yield "### Copies, GB/s (10^9 bytes per second)"
    yield ""
    yield from table(HEADER, rows, RIGHT)


def _groups(pairs: Sequence[MeasuredPair]) -> list[_Group]:
    found: dict[tuple[str | None, float | None, str | None], list[MeasuredPair]] = {}
    for pair in pairs:
        if pair.src != pair.dst:
            found.setdefault((pair.cls, pair.expected_gb_s, pair.basis), []).append(pair)
    return [_Group(cls or "?", tuple(members)) for (cls, _, _), members in found.items()]


def _row(copies: Copies, group: _Group, predicted: Sequence[Block], page: Markdown) -> list[str]:
    rates = sorted(pair.measured.gb_s for pair in group.pairs if pair.measured is not None)
    sums = sorted(pair.both_ways_gb_s for pair in group.pairs if pair.both_ways_gb_s is not None)
    latencies = sorted(pair.latency_us for pair in group.pairs if pair.latency_us is not None)
    first = group.pairs[0]
    expected, part, basis = "", "", first.basis or ""
    if first.expected_gb_s is not None:
        low = first.low_gb_s
        expected = figure(first.expected_gb_s) + (f" (at least {figure(low)})" if low is not None else "")
        part = _part(rates, first.expected_gb_s, low)
    else:
        # A board without peer access has no expectation of its own: what the diagnosis says of it.
        row = _predicted(predicted, group)
        if row is not None:
            expected, part, basis = span(row.low, row.high), _side(rates, row), row.basis
    allowed, works = _access(copies, group)
    return [
        page.text(group.cls),
        str(len({frozenset((pair.src, pair.dst)) for pair in group.pairs})),
        page.text(allowed),
        works,
        _correct(copies, group),
        _ends(rates) or "nothing",
        expected,
        part,
        _ends(sums),
        _ends(latencies),
        page.text(basis),
    ]


def _part(rates: Sequence[float], expected: float, low: float | None) -> str:
    if not rates or not expected:
        return ""
    ends = dict.fromkeys(f"{100 * rate / expected:.0f}" for rate in (rates[0], rates[-1]))
    slow = sum(rate < low for rate in rates) if low is not None else 0
    return f"{' to '.join(ends)} %" + (f"; {slow} of {len(rates)} below" if slow else "")


def _side(rates: Sequence[float], row: Row) -> str:
    out = sum(not row.low <= rate <= row.high for rate in rates)
    return f"{out} of {len(rates)} out of range" if out else "in range" if rates else ""


def _predicted(predicted: Sequence[Block], group: _Group) -> Row | None:
    """The range of the winning explanation for exactly these numbers, if it is one row."""
    values = sorted(round(pair.measured.gb_s, 2) for pair in group.pairs if pair.measured is not None)
    rows = [row for block in predicted if block.quantity == "p2p-one-way" for row in block.rows]
    return next((row for row in rows if sorted(round(value, 2) for value in row.values) == values), None)


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
    told = "yes" if works == len(tried) else f"**{works} of {len(tried)}**"
    return allowed + (f" ({status})" if status else ""), told if tried else "through host memory"


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


def _host(copies: Copies, predicted: Sequence[Block], page: Markdown) -> Iterator[list[str]]:
    rates = sorted(r for link in copies.host_device for r in (link.h2d_gb_s, link.d2h_gb_s) if r is not None)
    if not rates:
        return
    rows = [row for block in predicted if block.quantity == "host-copy" for row in block.rows]
    known = [row.basis for row in rows if row.basis]
    expected = " or ".join(dict.fromkeys(span(row.low, row.high) for row in rows[:2]))
    basis = "; ".join(dict.fromkeys(known[:2]))
    yield [
        f"host memory, {plural(len(copies.host_device), 'GPU')}", "", "", "", "", _ends(rates), expected,
        "", "", "", page.text(basis),
    ]  # fmt: skip


def _ends(ordered: Sequence[float]) -> str:
    return span(ordered[0], ordered[-1]) if ordered else ""
