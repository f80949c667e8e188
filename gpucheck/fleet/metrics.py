"""From a report's numbers to named metrics: one walk over whatever was measured, whoever measured it.

A number counts when its key ends in a unit. What surrounds it gives its name and its subject:

    {"p2p-bandwidth": {"pairs": [{"a": 0, "b": 1, "class": "NV18", "unidirectional_gb_s": 381.2}]}}
        -> p2p.unidirectional_gb_s[NV18] of pair 0-1

An entry of a list is named by its ``class``, ``op``, ``ranks`` ... and placed by ``a`` and ``b``, or ``gpu``. A square
matrix under a unit key (row = source GPU) is placed by row and column.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeGuard

from gpucheck.model import Finding, HostMetric, Report, Topology, Verdict

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


STEP = "compute"
HOTTEST = {"temperature_c": "compute.temperature_c", "memory_temperature_c": "compute.memory_temperature_c"}
# Reasons that show a fault of cooling or power. Healthy GPUs reach their power limit under load.
REASONS = ("hw-power-brake", "hw-slowdown", "hw-thermal", "sw-thermal")
THROTTLED, ERRORS = "compute.throttled_percent", "compute.errors_count"
UNDER_LOAD = frozenset({*HOTTEST.values(), THROTTLED, ERRORS})
MAX_GPUS, MAX_READINGS = 64, 100_000


def load_numbers(measurements: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...], float]]:
    """Yield metric, GPU and value. What has not the form of the step is left out."""
    step = measurements.get(STEP)
    gpus = step.get("gpus") if isinstance(step, dict) else None
    for gpu in gpus[:MAX_GPUS] if isinstance(gpus, list) else ():
        place = gpu.get("gpu") if isinstance(gpu, dict) else None
        if type(place) is int and isinstance(gpu.get("bus_id"), str):
            for metric, value in _load_of(gpu):
                yield metric, (str(place),), value


def _load_of(gpu: dict[str, Any]) -> Iterator[tuple[str, float]]:
    traces, errors = gpu.get("traces"), gpu.get("errors")
    if not isinstance(traces, list) or not traces:
        return
    readings = [reading for reading in traces[:MAX_READINGS] if isinstance(reading, dict)]
    for key, metric in HOTTEST.items():
        degrees = [float(value) for reading in readings if _is_number(value := reading.get(key))]
        if degrees and -300 < max(degrees) < 1000:
            yield metric, max(degrees)
    reported = [reasons for reading in readings if isinstance(reasons := reading.get("reasons"), list)]
    if reported:
        for reason in REASONS:
            yield f"{THROTTLED}[{reason}]", 100 * sum(reason in reasons for reasons in reported) / len(reported)
    if isinstance(errors, dict):
        counts = [value for value in errors.values() if type(value) is int and 0 < value < 2**63]
        yield ERRORS, float(sum(counts))


def _is_number(value: Any) -> TypeGuard[float]:
    return type(value) is float or (type(value) is int and abs(value) < 2**63)


LOWER_IS_WORSE = ("gb_s", "per_second", "per_s")
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
Numbers = dict[str, dict[Place, list[float]]]
LISTINGS = ("pairs", "gpus", "results", "variants", "performance")


class Where(NamedTuple):
    """What surrounds a number. words: its own qualifiers; settings: those of everything around it."""

    place: Place = ()
    words: str = ""
    settings: str = ""

    @property
    def suffix(self) -> str:
        """Return ``[all_reduce 1 MiB 8 ranks]``, or nothing."""
        words = " ".join(filter(None, (self.words, self.settings)))
        return f"[{words}]" if words else ""


def worse(metric: str) -> Worse:
    """Return which side of a metric is unhealthy, by its unit; ``either`` if the unit does not decide."""
    # ``measured.gb_s`` is a rate as well.
    name = metric.partition("[")[0].replace(".gb_s", "_gb_s")
    if ends_in(name, LOWER_IS_WORSE) or name.endswith(RATES):
        return "lower"
    return "higher" if ends_in(name, HIGHER_IS_WORSE) or name in UNDER_LOAD else "either"


def host_metrics(report: Report) -> dict[str, HostMetric]:
    """Return every metric of the report, reduced; at most MAX_METRICS, by name. Names beyond MAX_NAME are dropped."""
    places = {metric: found for metric, found in numbers(report).items() if len(metric) <= MAX_NAME}
    low = _low(report.topology)
    names = _names(report.topology)
    return {
        metric: _reduce(places[metric], worse(metric), names, low.get(_class(metric)) if _is_p2p(metric) else None)
        for metric in sorted(places)[:MAX_METRICS]
    }


def numbers(report: Report) -> Numbers:
    """Every number of the measurements, and of the findings that saw one."""
    walk = _Walk(_classes(report.topology))
    for step, measured in report.measurements.items():
        walk.node(step.removesuffix("-bandwidth").removesuffix("-latency"), measured, Where(), 0)
    for metric, place, value in load_numbers(report.measurements):
        walk.add(metric, place, value)
    for finding in report.findings:
        walk.seen(finding)
    return walk.found


class _Walk:
    """Collects while it descends: a generator a level would cost more than all the rest."""

    def __init__(self, classes: dict[Place, str]) -> None:
        self.classes = classes
        self.found: Numbers = {}

    def add(self, metric: str, place: Place, value: float) -> None:
        places = self.found.get(metric)
        if places is None:
            places = self.found[metric] = {}
        values = places.get(place)
        if values is None:
            places[place] = [float(value)]
        else:
            values.append(float(value))

    def node(self, name: str, node: Any, where: Where, depth: int) -> None:
        """The numbers below one dict or list."""
        if depth > MAX_DEPTH:
            return
        if type(node) is list:
            for item in node:
                if type(item) is dict:
                    self.entry(name, item, where, depth + 1)
                elif type(item) is list:
                    self.node(name, item, where, depth + 1)
        elif type(node) is dict:
            self.entry(name, node, where, depth)

    def entry(self, name: str, entry: dict[str, Any], where: Where, depth: int) -> None:
        """The numbers of one entry, then those of the entries inside it."""
        layout = layout_of(entry)
        if layout.deciding and layout.of_processors(entry):
            return
        if layout.place:
            where = where._replace(place=layout.place_of(entry) or where.place)
        if layout.qualifiers:
            where = where._replace(words=layout.qualifier_of(entry) or where.words)
        if layout.settings:
            around = "" if layout.is_run else where.settings
            where = where._replace(settings=" ".join(filter(None, (around, layout.settings_of(entry)))))
        self.values(name, entry, layout, where)
        for key in layout.others:
            value = entry[key]
            kind = type(value)
            # Most of what a report holds is neither: asked here, it costs no call.
            if kind is list or kind is dict:
                # A container that only lists its entries adds nothing to the name.
                listing = kind is list or key in LISTINGS
                self.node(name if listing else f"{name}.{key}", value, where, depth + 1)

    def values(self, name: str, entry: dict[str, Any], layout: Layout, where: Where) -> None:
        place, words = where.place, where.suffix if layout.numbers else ""
        for key in layout.numbers:
            value = entry[key]
            kind = type(value)
            if kind is float or kind is int:
                if -LARGEST < value < LARGEST:
                    self.add(f"{name}.{key}{words}", place, value)
            elif kind is list:
                self.listed(f"{name}.{key}", value, words)

    def listed(self, name: str, rows: list[Any], words: str) -> None:
        """A matrix of pairs, or a vector: one number a GPU."""
        for i, row in enumerate(rows[:MAX_GPUS]):
            if isinstance(row, list) and len(row) == len(rows):
                for j, value in enumerate(row):
                    if i != j and _finite(value):
                        cls = self.classes.get((str(min(i, j)), str(max(i, j))))
                        self.add(f"{name}[{cls}]" if cls else name + words, (str(i), str(j)), value)
            elif _finite(row):
                self.add(name + words, (str(i),), row)

    def seen(self, finding: Finding) -> None:
        """Return the number that a finding observed, if it has a unit."""
        value = finding.seen
        if finding.unit and isinstance(value, int | float) and _finite(value) and finding.verdict is not Verdict.SKIP:
            kind, _, where = finding.subject.partition(":")
            metric = f"finding.{finding.check}.{finding.unit.translate(_UNIT).lower()}"
            self.add(metric, (where,) if kind == "gpu" and where else (), value)


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST < value < LARGEST


def _class(metric: str) -> str:
    return metric.partition("[")[2].partition(" ")[0].removesuffix("]")


def _is_p2p(metric: str) -> bool:
    """Return whether the model of the machine has a limit for it: copies of a pair in one direction."""
    return "unidirectional_gb_s" in metric or "p2p_uni_gb_s" in metric


def _classes(topology: Topology | None) -> dict[Place, str]:
    return {(str(p.a), str(p.b)): p.cls for p in topology.pairs if p.cls} if topology else {}


def _low(topology: Topology | None) -> dict[str, float]:
    """The smallest bandwidth that the model of the machine still allows, by path class."""
    found: dict[str, float] = {}
    for pair in topology.pairs if topology else ():
        if pair.cls and pair.expected:
            found[pair.cls] = min(pair.expected.low_gb_s, found.get(pair.cls, math.inf))
    return found


def _names(topology: Topology | None) -> dict[str, str]:
    """Return the GPU's bus id if the topology knows it: an index changes."""
    return {str(g.index): g.pci_bus_id for g in topology.gpus if g.pci_bus_id} if topology else {}


def _reduce(places: dict[Place, list[float]], bad_side: Worse, names: dict[str, str], low: float | None) -> HostMetric:
    """The host's own value, its worst GPU and its worst pair (both directions together)."""
    pairs: dict[Place, list[float]] = {}
    gpus: dict[str, list[float]] = {}
    values: list[float] = []
    for place, found in places.items():
        values += found
        if len(place) == 2:
            a, b = place
            pairs.setdefault(place if a <= b else (b, a), []).extend(found)
        for gpu in place:
            gpus.setdefault(gpu, []).extend(found)
    worst_gpu = _worst({(gpu,): _of_gpu(v) for gpu, v in gpus.items()} if len(gpus) > 1 else {}, bad_side)
    worst_pair = _worst({pair: sum(v) / len(v) for pair, v in pairs.items()} if len(pairs) > 1 else {}, bad_side)
    return HostMetric(
        n=len(values),
        host=_short(middle(values)),
        gpu=_short(worst_gpu[1]) if worst_gpu else None,
        gpu_at=_named(worst_gpu[0], names) if worst_gpu else None,
        pair=_short(worst_pair[1]) if worst_pair else None,
        pair_at=_named(worst_pair[0], names) if worst_pair else None,
        low=low,
    )


def _worst(found: dict[Place, float], bad_side: Worse) -> tuple[Place, float] | None:
    if not found or bad_side == "either":
        return None
    pick = min if bad_side == "lower" else max
    return pick(found.items(), key=lambda item: item[1])


def _named(place: Place, names: dict[str, str]) -> str:
    return "-".join(names.get(gpu, gpu) for gpu in place)


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
