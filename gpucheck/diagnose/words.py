"""How findings name pairs and numbers."""

from collections.abc import Iterable

NAMED = 6


def listed(pairs: Iterable[tuple[int, int]]) -> str:
    """``0-1, 0-2 and 4 more``."""
    words = [f"{i}-{j}" for i, j in pairs]
    more = f" and {len(words) - NAMED} more" if len(words) > NAMED else ""
    return ", ".join(words[:NAMED]) + more


def percent(parts: Iterable[float]) -> str:
    """``100 %`` or ``87 % to 101 %``."""
    return _from_to([100 * part for part in parts], ".0f", " %")


def span(values: Iterable[float]) -> str:
    """``9.5`` or ``9.5 to 12.1``."""
    return _from_to(values, ".3g", "")


def _from_to(values: Iterable[float], form: str, unit: str) -> str:
    ordered = sorted(values)
    if not ordered:
        return "nothing"
    low, high = (f"{value:{form}}{unit}" for value in (ordered[0], ordered[-1]))
    return low if low == high else f"{low} to {high}"
