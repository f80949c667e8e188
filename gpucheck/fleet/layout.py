"""What the keys of a measured entry mean: numbers by their unit, the GPUs they are about, what qualifies them."""

from typing import Any, NamedTuple

UNITS = ("gb_s", "us", "ms", "seconds", "s", "percent", "ratio", "w", "c", "mhz", "bytes", "count", "per_second")
# Keys that are a unit themselves.
RATES = ("tflops",)
QUALIFIERS = ("class", "op", "operation", "transport", "bytes", "engine", "direction", "size_bytes")
# These also hold for what is inside the entry: a training is compared with one of the same model, precision and ranks.
SETTINGS = ("model", "precision", "ranks", "world_size", "variant", "placement")
# Values that add nothing to a name: the usual variant and placement.
USUAL = ("", "as is", "gpus")
SIZES = ("bytes", "size_bytes")
COUNTS = ("ranks", "world_size")
# Ranks and copies on the processors of a host state nothing about its GPUs.
OF_PROCESSORS = {"backend": ("gloo",), "placement": ("cpu",), "engine": ("cpu", "torch on the CPU")}
PLACES = (("a", "b"), ("source", "destination"), ("gpu",))
# Beginnings of keys. An expected value, a setting, or the confidence of a number is not a measurement of its own; the
# same number in another form (time and algorithm bandwidth of a collective, the observations) is not one either.
NOT_MEASURED = (
    "expected",
    "wanted",
    "both_ways_expected",
    "both_ways_low",
    "low_",
    "high_",
    "fastest",
    "slowest",
    "planned",
    "device_s",
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
    "limits",
    "memory_kept",
    "power_default",
    "application_clock",
    "default_application_clock",
    "temperature_slowdown",
    "algbw",
    "time_us",
    "observations",
    "traces",
)
MAX_KNOWN = 10_000
MAX_WORD = 64
LARGEST_SIZE = 1 << 60

_known: dict[tuple[str, ...], "Layout"] = {}


class Layout(NamedTuple):
    """The keys of an entry by meaning. numbers may also hold a matrix or vector; others may hold more entries.

    deciding: keys that may show that the entry is not about GPUs. is_run: its settings replace those around it.
    """

    place: tuple[str, ...]
    qualifiers: tuple[str, ...]
    settings: tuple[str, ...]
    numbers: tuple[str, ...]
    others: tuple[str, ...]
    deciding: tuple[str, ...]
    is_run: bool

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
        """Return ``NV18``, ``all_reduce 1 MiB``, or nothing."""
        return _words(entry, self.qualifiers)

    def settings_of(self, entry: dict[str, Any]) -> str:
        """Return ``mlp fp32 8 ranks``, or nothing."""
        return _words(entry, self.settings)

    def of_processors(self, entry: dict[str, Any]) -> bool:
        """Return whether the entry is about processors, not GPUs."""
        return any(entry[key] in OF_PROCESSORS[key] for key in self.deciding)


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


def _words(entry: dict[str, Any], keys: tuple[str, ...]) -> str:
    words = []
    for key in keys:
        word = entry[key]
        if type(word) is int:
            words.append(f"{word} ranks" if key in COUNTS else _size(word) if key in SIZES else str(word)[:MAX_WORD])
        elif type(word) is str and word not in USUAL:
            words.append(word[:MAX_WORD])
    return " ".join(words)


def _size(size: int) -> str:
    """Return ``1 MiB``; bytes where it is not a whole number of a larger unit."""
    for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if 0 < size < LARGEST_SIZE and size % (1 << shift) == 0:
            return f"{size >> shift} {unit}"
    return f"{size} B"[:MAX_WORD]


def _layout(keys: tuple[str, ...]) -> Layout:
    named = (*QUALIFIERS, *SETTINGS)
    measured = [key for key in keys if not key.startswith(NOT_MEASURED) and key not in named]
    numbers = tuple(key for key in measured if key in RATES or ends_in(key, UNITS))
    return Layout(
        place=next((place for place in PLACES if all(key in keys for key in place)), ()),
        qualifiers=tuple(key for key in QUALIFIERS if key in keys),
        settings=tuple(key for key in SETTINGS if key in keys),
        numbers=numbers,
        others=tuple(key for key in measured if key not in numbers),
        deciding=tuple(key for key in OF_PROCESSORS if key in keys),
        is_run=any(key in keys for key in COUNTS),
    )
