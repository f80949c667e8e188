"""How findings name and count what was measured."""

from collections.abc import Sequence

from gpucheck.measure.results import Pair, Results

NAMED = 4
UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def pair_subject(results: Results, pairs: Sequence[Pair]) -> str:
    """Return ``pair:<bus id>-<bus id>`` if all ordered pairs are the same two devices, else ``host``."""
    ends = {frozenset(pair) for pair in pairs}
    if len(ends) != 1:
        return "host"
    a, b = min(pairs)[0], min(pairs)[1]
    if a == b:
        return f"gpu:{results.devices[a].label}"
    return f"pair:{results.devices[a].label}-{results.devices[b].label}"


def pairs_text(results: Results, pairs: Sequence[Pair]) -> str:
    """Return ``GPU 0 <-> 1, 2 -> 3 and 4 more``: one arrow for each two devices, both ways if both are among them."""
    names: dict[frozenset[int], str] = {}
    for a, b in pairs:
        arrow = "<->" if a != b and (b, a) in pairs else "->"
        names.setdefault(frozenset((a, b)), f"{results.devices[a].index} {arrow} {results.devices[b].index}")
    texts = list(names.values())
    more = f" and {len(texts) - NAMED} more" if len(texts) > NAMED else ""
    return f"GPU {', '.join(texts[:NAMED])}{more}"


def count_text(number: int, noun: str) -> str:
    """Return ``1 GPU pair`` or ``56 GPU pairs``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def span_text(values: Sequence[float], unit: str) -> str:
    """Return ``2.2 us``, or ``2.1 to 2.4 us`` if the ends differ as printed."""
    low, high = f"{min(values):.1f}", f"{max(values):.1f}"
    return f"{low} {unit}" if low == high else f"{low} to {high} {unit}"


def percent_text(ratios: Sequence[float]) -> str:
    """Return ``all at 100 %``, or ``97 % to 101 %``."""
    low, high = f"{100 * min(ratios):.0f} %", f"{100 * max(ratios):.0f} %"
    return f"all at {low}" if low == high and len(ratios) > 1 else low if low == high else f"{low} to {high}"


def bytes_text(count: int) -> str:
    """Return ``30.4 GB``; decimal units."""
    return next((f"{count / unit:.1f} {name}" for unit, name in UNITS if count >= unit), f"{count} B")
