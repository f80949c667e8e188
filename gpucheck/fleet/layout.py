"""What the keys of a measured entry mean: numbers by their unit, the GPUs they are about, what qualifies them."""

from typing import Any, NamedTuple

UNITS = ("gb_s", "us", "ms", "seconds", "s", "percent", "ratio", "w", "c", "mhz", "bytes", "count", "per_second")
# Keys that are a unit themselves.
RATES = ("tflops",)
QUALIFIERS = ("class", "op", "transport", "ranks", "bytes", "engine", "direction", "size_bytes")
PLACES = (("a", "b"), ("source", "destination"), ("gpu",))
# An expected value, or the confidence of a number, is not a measurement of its own.
NOT_MEASURED = (
    "expected",
    "wanted",
    "spread",
    "mad",
    "deadline",
    "timeout",
    "started",
    "samples",
    "min",
    "max",
    "ceiling",
    "alone",
)
MAX_KNOWN = 10_000
MAX_WORD = 64

_known: dict[tuple[str, ...], "Layout"] = {}


class Layout(NamedTuple):
    """The keys of an entry by meaning. numbers may also hold a matrix or vector; others may hold more entries."""

    place: tuple[str, ...]
    qualifiers: tuple[str, ...]
    numbers: tuple[str, ...]
    others: tuple[str, ...]

    def place_of(self, entry: dict[str, Any]) -> tuple[str, ...] | None:
        """Return the GPU or GPUs that the entry is about, None if unknown."""
        words = []
        for key in self.place:
            word = entry[key]
            if type(word) is not int and type(word) is not str:
                return None
            words.append(str(word)[:MAX_WORD])
        return tuple(words) or None

    def qualifier_of(self, entry: dict[str, Any]) -> str:
        """``[NV18]``, ``[all_reduce 8]``, or nothing."""
        words = []
        for key in self.qualifiers:
            word = entry[key]
            if type(word) is int or type(word) is str:
                words.append(str(word)[:MAX_WORD])
        return f"[{' '.join(words)}]" if words else ""


def layout_of(entry: dict[str, Any]) -> Layout:
    """Remembered: a fleet has a million entries and a dozen layouts."""
    keys = tuple(entry)
    layout = _known.get(keys)
    if layout is None:
        layout = _layout(keys)
        if len(_known) < MAX_KNOWN:
            _known[keys] = layout
    return layout


def ends_in(key: str, units: tuple[str, ...]) -> bool:
    """Whether the key ends in one of the units."""
    return any(key.endswith(f"_{unit}") for unit in units)


def _layout(keys: tuple[str, ...]) -> Layout:
    measured = [key for key in keys if not key.startswith(NOT_MEASURED) and key not in QUALIFIERS]
    numbers = tuple(key for key in measured if key in RATES or ends_in(key, UNITS))
    return Layout(
        place=next((place for place in PLACES if all(key in keys for key in place)), ()),
        qualifiers=tuple(key for key in QUALIFIERS if key in keys),
        numbers=numbers,
        others=tuple(key for key in measured if key not in numbers),
    )
