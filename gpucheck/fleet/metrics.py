"""From a report's numbers to named metrics: one walk over whatever was measured, whoever measured it.

A number counts when its key ends in a unit. What surrounds it gives its name and its subject:

    {"p2p-bandwidth": {"pairs": [{"a": 0, "b": 1, "class": "NV18", "unidirectional_gb_s": 381.2}]}}
        -> p2p.unidirectional_gb_s[NV18] of pair 0-1

An entry of a list is named by its ``class``, ``op``, ``ranks`` ... and placed by ``a`` and ``b``, or ``gpu``. A square
matrix under a unit key (row = source GPU) is placed by row and column.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import Any, Literal, NamedTuple, TypeGuard

from gpucheck.fleet.document import HostReport
from gpucheck.model import Pair, Verdict
from gpucheck.model.compute import ComputeDevice, ComputeReport
from gpucheck.model.fleet import HostMetric

UNITS = (
    "gb_s",
    "gbit_s",
    "us",
    "ms",
    "seconds",
    "s",
    "percent",
    "ratio",
    "w",
    "c",
    "mhz",
    "bytes",
    "count",
    "per_second",
)
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
# Keys of what a step recorded of a GPU and which is compared elsewhere, or not at all: nothing in them has a unit.
RECORDED = ("pcie", "pcie_errors", "ecc_errors", "row_remap", "retired_pages", "nvlinks", "processes")
MAX_KNOWN = 10_000
MAX_WORD = 64
LARGEST_SIZE = 1 << 60


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
        return tuple(words)

    def of_processors(self, entry: dict[str, Any]) -> bool:
        return any(entry[key] in OF_PROCESSORS[key] for key in self.deciding)


def ends_in(key: str, units: tuple[str, ...]) -> bool:
    return key.endswith(tuple(f"_{unit}" for unit in units))


def _words(entry: dict[str, Any], keys: tuple[str, ...]) -> str:
    """Return ``NV18``, ``all_reduce 1 MiB``, ``mlp fp32 8 ranks``, or nothing."""
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


# Remembered: a fleet has a million entries and a dozen layouts.
@lru_cache(MAX_KNOWN)
def _layout(keys: tuple[str, ...]) -> Layout:
    named = (*QUALIFIERS, *SETTINGS, *RECORDED)
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


HOTTEST = {"temperature_c": "compute.temperature_c", "memory_temperature_c": "compute.memory_temperature_c"}
# Reasons that show a fault of cooling or power. Healthy GPUs reach their power limit under load.
REASONS = ("hw-power-brake", "hw-slowdown", "hw-thermal", "sw-thermal")
THROTTLED, ERRORS = "compute.throttled_percent", "compute.errors_count"
UNDER_LOAD = frozenset({*HOTTEST.values(), THROTTLED, ERRORS})
MAX_READINGS = 100_000


def load_numbers(gpus: Iterable[ComputeDevice]) -> Iterator[tuple[str, tuple[str, ...], float]]:
    """Yield metric, GPU and value of each GPU that was read under load."""
    for gpu in gpus:
        readings, place = gpu.traces[:MAX_READINGS], (str(gpu.index),)
        for key, metric in HOTTEST.items():
            degrees = [value for reading in readings if (value := getattr(reading, key)) is not None]
            if degrees and -300 < max(degrees) < 1000:
                yield metric, place, max(degrees)
        reported = [reading.reasons for reading in readings if reading.reasons is not None]
        for reason in REASONS if reported else ():
            share = 100 * sum(reason in reasons for reasons in reported) / len(reported)
            yield f"{THROTTLED}[{reason}]", place, share
        if readings:
            yield ERRORS, place, float(sum(count for count in gpu.errors.values() if 0 < count < 2**63))


LOWER_IS_WORSE = ("gb_s", "gbit_s", "per_second", "per_s")
HIGHER_IS_WORSE = ("us", "ms", "seconds", "s")
# Beyond this nothing is a measurement, and no integer of a thousand digits becomes a float.
LARGEST = 1e30
MAX_DEPTH = 12
MAX_METRICS = 200
MAX_NAME = 200
MAX_GPUS = 64

# GB/s -> gb_s, when in lower case.
_UNIT = str.maketrans("/ ", "__")

Worse = Literal["lower", "higher", "either"]
# () is the host, (gpu,) or (gpu, gpu).
Place = tuple[str, ...]
Numbers = dict[str, list[tuple[Place, float]]]
LISTINGS = ("pairs", "gpus", "results", "variants", "performance")


# What surrounds a number: its place, its own qualifiers, and the settings of everything around it.
Where = tuple[Place, str, str]


def _inside(where: Where, entry: dict[str, Any], layout: Layout) -> Where:
    place, words, settings = where
    if layout.place:
        place = layout.place_of(entry) or place
    if layout.qualifiers:
        words = _words(entry, layout.qualifiers) or words
    if layout.settings:
        around = "" if layout.is_run else settings
        settings = f"{around} {_words(entry, layout.settings)}".strip()
    return place, words, settings


@lru_cache(MAX_KNOWN)
def worse(metric: str) -> Worse:
    """Return which side of a metric is unhealthy, by its unit; ``either`` if the unit does not decide."""
    # ``measured.gb_s`` is a rate as well.
    name = metric.partition("[")[0].replace(".gb_s", "_gb_s")
    if ends_in(name, LOWER_IS_WORSE) or name.endswith(RATES):
        return "lower"
    return "higher" if ends_in(name, HIGHER_IS_WORSE) or name in UNDER_LOAD else "either"


def host_metrics(report: HostReport, computed: ComputeReport | None) -> dict[str, HostMetric]:
    """Return every metric of the report, reduced; at most MAX_METRICS, by name. Names beyond MAX_NAME are dropped."""
    found = numbers(report, computed)
    low, names = _low(report.pairs), {str(gpu.index): gpu.pci_bus_id for gpu in report.gpus if gpu.pci_bus_id}
    return {
        metric: _reduce(found[metric], worse(metric), names, low.get(_class(metric)) if _is_p2p(metric) else None)
        for metric in sorted(metric for metric in found if len(metric) <= MAX_NAME)[:MAX_METRICS]
    }


def numbers(report: HostReport, computed: ComputeReport | None) -> Numbers:
    """Every number of the measurements, and of the findings that saw one."""
    walk = _Walk(report)
    for step, measured in report.measurements.items():
        walk.node(step.removesuffix("-bandwidth").removesuffix("-latency"), measured, ((), "", ""), 0)
    for metric, place, value in load_numbers(computed.gpus[:MAX_GPUS] if computed is not None else ()):
        walk.found[metric].append((place, value))
    for finding in report.findings:
        seen = finding.seen
        if finding.unit and _finite(seen) and finding.verdict is not Verdict.SKIP:
            kind, _, where = finding.subject.partition(":")
            place = (where,) if kind == "gpu" and where else ()
            walk.found[_of_finding(finding.check, finding.unit)].append((place, float(seen)))
    return walk.found


@lru_cache(MAX_KNOWN)
def _of_finding(check: str, unit: str) -> str:
    return f"finding.{check}.{unit.translate(_UNIT).lower()}"


class _Walk:
    """Collects while it descends: a generator a level would cost more than all the rest."""

    def __init__(self, report: HostReport) -> None:
        self.report = report
        self.found: Numbers = defaultdict(list)

    @cached_property
    def classes(self) -> dict[tuple[int, int], str]:
        return {(pair.a, pair.b): pair.cls for pair in self.report.pairs if pair.cls}

    def node(self, name: str, node: Any, where: Where, depth: int) -> None:
        """The numbers below one dict or list. A list is of one kind: what it begins with."""
        if depth > MAX_DEPTH:
            return
        if type(node) is dict:
            self.entry(name, node, where, depth)
            return
        for item in node:
            kind = type(item)
            if kind is dict:
                self.entry(name, item, where, depth + 1)
            elif kind is list and item and type(item[0]) in (dict, list):
                self.node(name, item, where, depth + 1)

    def entry(self, name: str, entry: dict[str, Any], where: Where, depth: int) -> None:
        layout = _layout(tuple(entry))
        if layout.deciding and layout.of_processors(entry):
            return
        if layout.place or layout.qualifiers or layout.settings:
            where = _inside(where, entry, layout)
        if layout.numbers:
            self.values(name, entry, layout.numbers, where)
        for key in layout.others:
            value = entry[key]
            kind = type(value)
            # Most of what a report holds is neither: asked here, it costs no call.
            if (kind is list or kind is dict) and value:
                # A container that only lists its entries adds nothing to the name.
                listing = kind is list or key in LISTINGS
                self.node(name if listing else f"{name}.{key}", value, where, depth + 1)

    def values(self, name: str, entry: dict[str, Any], keys: tuple[str, ...], where: Where) -> None:
        place, words, settings = where
        around = f"{words} {settings}".strip()
        suffix = f"[{around}]" if around else ""
        for key in keys:
            value = entry[key]
            kind = type(value)
            if kind is float or kind is int:
                if -LARGEST < value < LARGEST:
                    self.found[f"{name}.{key}{suffix}"].append((place, float(value)))
            elif kind is list:
                self.listed(f"{name}.{key}", value, suffix)

    def listed(self, name: str, rows: list[Any], words: str) -> None:
        """A matrix of pairs, or a vector: one number a GPU."""
        for i, row in enumerate(rows[:MAX_GPUS]):
            if isinstance(row, list) and len(row) == len(rows):
                for j, value in enumerate(row):
                    if i != j and _finite(value):
                        cls = self.classes.get((min(i, j), max(i, j)))
                        metric = f"{name}[{cls}]" if cls else name + words
                        self.found[metric].append(((str(i), str(j)), float(value)))
            elif _finite(row):
                self.found[name + words].append(((str(i),), float(row)))


def _finite(value: Any) -> TypeGuard[float]:
    return (type(value) is float or type(value) is int) and -LARGEST < value < LARGEST


def _class(metric: str) -> str:
    return metric.partition("[")[2].partition(" ")[0].removesuffix("]")


def _is_p2p(metric: str) -> bool:
    """Return whether the model of the machine has a limit for it: copies of a pair in one direction."""
    return "unidirectional_gb_s" in metric or "p2p_uni_gb_s" in metric


def _low(pairs: Iterable[Pair]) -> dict[str, float]:
    """The smallest bandwidth that the model of the machine still allows, by path class."""
    found: dict[str, float] = {}
    for pair in pairs:
        if pair.cls and pair.expected:
            found[pair.cls] = min(pair.expected.low_gb_s, found.get(pair.cls, math.inf))
    return found


def _reduce(found: list[tuple[Place, float]], bad_side: Worse, names: dict[str, str], low: float | None) -> HostMetric:
    """The host's own value, its worst GPU and its worst pair (both directions together)."""
    gpu, pair = _worst_parts(found, bad_side) if bad_side != "either" else (None, None)
    return HostMetric(
        n=len(found),
        host=_short(middle([value for _, value in found])),
        gpu=_short(gpu[1]) if gpu else None,
        gpu_at=names.get(gpu[0], gpu[0]) if gpu else None,
        pair=_short(pair[1]) if pair else None,
        pair_at="-".join(names.get(gpu, gpu) for gpu in pair[0]) if pair else None,
        low=low,
    )


def _worst_parts(
    found: list[tuple[Place, float]], bad_side: Worse
) -> tuple[tuple[str, float] | None, tuple[Place, float] | None]:
    pairs: dict[Place, list[float]] = defaultdict(list)
    gpus: dict[str, list[float]] = defaultdict(list)
    for place, value in found:
        if len(place) == 2:
            a, b = place
            pairs[place if a <= b else (b, a)].append(value)
        for gpu in place:
            gpus[gpu].append(value)
    pick = min if bad_side == "lower" else max
    of_gpus = ((gpu, _of_gpu(values)) for gpu, values in gpus.items())
    of_pairs = ((pair, sum(values) / len(values)) for pair, values in pairs.items())
    return (
        pick(of_gpus, key=itemgetter(1)) if len(gpus) > 1 else None,
        pick(of_pairs, key=itemgetter(1)) if len(pairs) > 1 else None,
    )


def _short(value: float) -> float:
    """Six digits: more than any of this can be measured, and half the bytes of a fleet."""
    return float(f"{value:.6g}")


def middle(values: list[float], cut: float = 0.25) -> float:
    """The mean without the highest and lowest part: what is odd does not move it, noise still averages."""
    left_out = int(len(values) * cut)
    kept = sorted(values)[left_out : len(values) - left_out] if left_out else values
    return math.fsum(kept) / len(kept)


def _of_gpu(values: list[float]) -> float:
    """One bad pair, both its directions, does not move a GPU; each number kept makes a small loss easier to see."""
    return middle(values, 2 / 14 if len(values) >= 14 else 0.25)
