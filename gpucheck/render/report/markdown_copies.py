"""The copies of a rig card: peer access allowed, working and correct, and measured against what the board can do."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpucheck.model.bandwidth import MeasuredPair
from gpucheck.model.diagnosis.ranking import Explanation
from gpucheck.render.copies.measured import Copies
from gpucheck.render.markdown import Markdown, table
from gpucheck.render.ranking.predicted import blocks, figure, span
from gpucheck.render.words import plural

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
EXPECTED = HEADER.index("expected")


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
    judgement = copies.judgement()
    winner = judgement.ranking[0] if judgement and judgement.ranking else None
    groups = _groups(copies.pairs, winner)
    bases: dict[tuple[str, str], list[str]] = {}
    rows = [_row(copies, group, page) for group in groups]
    for group in groups:
        bases.setdefault((_expected(group), group.basis), []).append(group.cls)
    for row, basis in _host(copies, winner):
        rows.append(row)
        bases.setdefault((row[EXPECTED], basis), []).append(row[0])
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


def _groups(pairs: Sequence[MeasuredPair], winner: Explanation | None) -> list[_Group]:
    """A board without peer access has no expectation of its own: then it is the winning explanation's."""
    predictions = {(p.a, p.b): p for p in winner.predictions if p.quantity == "p2p-one-way"} if winner else {}
    found: dict[tuple[object, ...], list[MeasuredPair]] = {}
    of_key: dict[tuple[object, ...], tuple[float | None, float | None, float | None, str]] = {}
    for pair in pairs:
        if pair.src == pair.dst:
            continue
        predicted = predictions.get((pair.src, pair.dst))
        values = (pair.expected_gb_s, pair.low_gb_s, pair.high_gb_s, pair.basis or "")
        if pair.expected_gb_s is None and predicted is not None:
            values = (None, predicted.low, predicted.high, predicted.basis)
        key = (pair.cls, *(value and figure(value) for value in values[:3]), values[3])
        found.setdefault(key, []).append(pair)
        of_key.setdefault(key, values)
    return [_Group(members[0].cls or "?", tuple(members), *of_key[key]) for key, members in found.items()]


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
    if group.low is not None and group.high is not None:
        return span(group.low, group.high)
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


def _host(copies: Copies, winner: Explanation | None) -> Iterator[tuple[list[str], str]]:
    """Copies between host memory and the GPUs, as the winning explanation groups them, each with its basis.

    All are one row if there is no explanation.
    """
    found = [row for block in blocks(winner) if block.quantity == "host-copy" for row in block.rows] if winner else []
    rates = sorted(r for link in copies.host_device for r in (link.h2d_gb_s, link.d2h_gb_s) if r is not None)
    for row in found:
        out = f" (**{len(row.outside)} of {len(row.values)} outside**)" if row.outside else ""
        cells = [f"host memory, {row.where}", "", "", "", "", f"{_ends(row.values)}{out}", span(row.low, row.high)]
        yield [*cells, "", ""], row.basis
    if rates and not found:
        cells = [f"host memory, {plural(len(copies.host_device), 'GPU')}", "", "", "", "", _ends(rates), "", "", ""]
        yield cells, ""


def _ends(ordered: Sequence[float]) -> str:
    return span(ordered[0], ordered[-1]) if ordered else ""
