"""What an explanation predicted, and what was measured, in groups of equal predictions: one row each."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from gpucheck.model.diagnosis.ranking import Explanation, Predicted, Quantity
from gpucheck.model.finding.naming import BUS_ID
from gpucheck.render.ranking.pairs import describe

Fit = Literal["yes", "nearly", "no, lower", "no, higher"]
# Title and unit of a quantity, in the order in which they are shown.
TITLES: dict[Quantity, tuple[str, str]] = {
    "p2p-one-way": ("Copies between two GPUs, one direction", "GB/s"),
    "p2p-both-ways": ("Copies between two GPUs, bidirectional, sum", "GB/s"),
    "p2p-latency": ("Latency of a small copy between two GPUs", "us"),
    "staged-one-way": ("Copies through host memory, one direction", "GB/s"),
    "staged-both-ways": ("Copies through host memory, bidirectional, sum", "GB/s"),
    "staged-latency": ("Latency of a small copy through host memory", "us"),
    "host-copy": ("Copies between host memory and one GPU", "GB/s"),
    "flows": ("Copies at the same time, sum", "GB/s"),
    "collective": ("Collectives, bus bandwidth", "GB/s"),
}
# More rows of one quantity are merged by rounding the predictions more coarsely.
ROWS = 10
# Nine of ten values lie in the range if the explanation holds: with fewer than this part inside it fits nearly.
INSIDE = 0.8
ENOUGH_IDENTICAL = 4
MISFITS: tuple[Fit, ...] = ("no, lower", "no, higher")


class Row(NamedTuple):
    """Numbers with one prediction that fit it equally well. low to high: predicted. values: measured, ascending.

    where: the GPUs or pairs, as text. outside: the values that lie outside of the range. basis: empty if unknown.
    """

    where: str
    low: float
    high: float
    values: tuple[float, ...]
    outside: frozenset[float]
    fit: Fit
    basis: str


class Block(NamedTuple):
    """All rows of one quantity: those that do not fit first."""

    quantity: Quantity
    title: str
    unit: str
    rows: tuple[Row, ...]


def blocks(explanation: Explanation) -> list[Block]:
    """Return the predictions by quantity."""
    found = []
    for quantity, (title, unit) in TITLES.items():
        predictions = [one for one in explanation.predictions if one.quantity == quantity]
        if predictions:
            found.append(Block(quantity, title, unit, tuple(_rows(predictions))))
    return found


def readings(explanation: Explanation) -> list[str]:
    """Return the readings; if at least ENOUGH_IDENTICAL differ only by the PCI device, they are one line."""
    groups: dict[str, list[str]] = {}
    for line in explanation.readings:
        groups.setdefault(BUS_ID.sub("", line), []).append(line)
    found: list[str] = []
    for lines in groups.values():
        first = BUS_ID.search(lines[0])
        if len(lines) < ENOUGH_IDENTICAL or first is None:
            found += lines
        else:
            at = first.end()
            found.append(f"{lines[0][:at]} and {len(lines) - 1} more{lines[0][at:]}")
    return found


def figure(value: float) -> str:
    """``382``, ``24.1``, ``3.08``: as many digits as a bandwidth or a latency is worth."""
    size = abs(value)
    if size >= 1e6:
        return f"{value:.3g}"
    return f"{value:,.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def span(low: float, high: float) -> str:
    """``24.1 to 26.0``, and one number where both ends read the same."""
    return " to ".join(dict.fromkeys((figure(low), figure(high))))


def percent(probability: float) -> str:
    """``92 %``; never 0 or 100, which nothing weighed can be."""
    if probability >= 0.995:
        return "over 99 %"
    return f"{probability * 100:.0f} %" if probability >= 0.01 else "under 1 %"


def _rows(predictions: Sequence[Predicted]) -> list[Row]:
    groups: list[list[Predicted]] = []
    for digits, with_basis in ((3, True), (2, True), (2, False), (1, False)):
        groups = _grouped(predictions, _key(digits, with_basis=with_basis))
        if len(groups) <= ROWS:
            break
    rows = [_row(group, predictions) for group in groups]
    return sorted(rows, key=lambda row: (row.fit not in MISFITS, row.fit == "yes", -len(row.values)))


def _key(digits: int, *, with_basis: bool) -> Callable[[Predicted], tuple[object, ...]]:
    def key(one: Predicted) -> tuple[object, ...]:
        ends = (f"{one.low:.{digits}g}", f"{one.high:.{digits}g}")
        return (*ends, _side(one), one.basis if with_basis else "")

    return key


def _grouped(predictions: Sequence[Predicted], key: Callable[[Predicted], tuple[object, ...]]) -> list[list[Predicted]]:
    groups: dict[tuple[object, ...], list[Predicted]] = {}
    for one in predictions:
        groups.setdefault(key(one), []).append(one)
    return list(groups.values())


def _side(one: Predicted) -> int:
    """-1 below, 1 above, 0 in the range or not farther outside than noise explains: as far again in proportion."""
    if one.measured < one.low:
        return -1 if one.middle <= 0 or one.measured < one.low * (one.low / one.middle) else 0
    if one.measured > one.high:
        return 1 if one.middle <= 0 or one.measured > one.high * (one.high / one.middle) else 0
    return 0


def _row(group: Sequence[Predicted], predictions: Sequence[Predicted]) -> Row:
    outside = [one.measured for one in group if not one.low <= one.measured <= one.high]
    side = _side(group[0])
    fit: Fit = "yes" if len(outside) <= (1 - INSIDE) * len(group) else "nearly"
    bases = list(dict.fromkeys(one.basis for one in group if one.basis))
    return Row(
        where=describe(group, predictions),
        low=min(one.low for one in group),
        high=max(one.high for one in group),
        values=tuple(sorted(one.measured for one in group)),
        outside=frozenset(outside),
        fit=MISFITS[side > 0] if side else fit,
        basis="; ".join(bases[:2]) + (f"; and {len(bases) - 2} more" if len(bases) > 2 else ""),
    )
