"""The measurements of a report as they are read back: what two reports, a site's limits or many hosts compare."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import UnionType
from typing import Any, NamedTuple, TypeVar, Union, get_args, get_origin

import msgspec

from gpucheck.model.bandwidth import BandwidthReport
from gpucheck.model.collectives import CollectivesReport
from gpucheck.model.compute import ComputeReport
from gpucheck.model.finding import Verdict
from gpucheck.model.smoke import SmokeResult

COPIES, COMPUTE, COLLECTIVES, TRAINING = "p2p", "compute", "collectives", "smoke-"
# A variant in which a switch may round sums in another order: such runs are compared by tolerance only.
ROUNDED = "nvls"
Measurements = Mapping[str, Any]
Kind = TypeVar("Kind", bound=msgspec.Struct)


# What is the same for all pairs of a path class, and is kept once: what is expected of them.
OF_PATH = (
    "expected_gb_s", "low_gb_s", "high_gb_s", "basis", "both_ways_expected_gb_s", "both_ways_low_gb_s",
)  # fmt: skip


def copies_in_short(numbers: dict[str, Any]) -> dict[str, Any]:
    """Return copies with ``expected`` by path class in place of the same in each pair.

    ``copies_of`` reads both forms.
    """
    expected: dict[str, dict[str, Any]] = {}
    pairs = []
    for pair in numbers.get("pairs", ()):
        of_path = {key: pair[key] for key in OF_PATH if key in pair}
        short = {key: value for key, value in pair.items() if key not in of_path}
        if expected.setdefault(pair["class"] or "", of_path) != of_path:
            short |= dict.fromkeys(OF_PATH) | of_path
        pairs.append(short)
    return numbers | {"pairs": pairs, "expected": expected} if pairs else numbers


def copies_of(measurements: Measurements) -> BandwidthReport | None:
    return _read(_in_full(measurements.get(COPIES)), BandwidthReport, "devices")


def _in_full(numbers: Any) -> Any:
    try:
        expected = msgspec.convert(numbers["expected"], dict[str, dict[str, Any]])
        pairs = msgspec.convert(numbers["pairs"], list[dict[str, Any]])
    except (KeyError, TypeError, msgspec.ValidationError):
        return numbers
    return numbers | {"pairs": [expected.get(str(pair.get("class") or ""), {}) | pair for pair in pairs]}


def gpu_copies_of(measurements: Measurements) -> BandwidthReport | None:
    found = copies_of(measurements)
    return None if found is None or found.engine == "cpu" else found


def computed_of(measurements: Measurements) -> ComputeReport | None:
    return _read(measurements.get(COMPUTE), ComputeReport, "gpus")


def gpu_computed_of(measurements: Measurements) -> ComputeReport | None:
    found = computed_of(measurements)
    gpus = () if found is None else tuple(gpu for gpu in found.gpus if gpu.is_gpu)
    return msgspec.structs.replace(found, gpus=gpus) if found is not None and gpus else None


def collectives_of(measurements: Measurements) -> CollectivesReport | None:
    return _read(measurements.get(COLLECTIVES), CollectivesReport, "results")


def gpu_collectives_of(measurements: Measurements) -> CollectivesReport | None:
    found = collectives_of(measurements)
    return None if found is None or found.backend != "nccl" else found


def trainings_of(measurements: Measurements) -> Iterator[tuple[str, SmokeResult]]:
    """Yield every training that ended, on CPUs too, with the name of its step. Failures are in the findings."""
    for step, numbers in measurements.items():
        if step.startswith(TRAINING) and isinstance(numbers, dict):
            variants = numbers.get("variants")
            for one in (numbers, *(variants.values() if isinstance(variants, dict) else ())):
                run = _read(one, SmokeResult)
                if run is not None:
                    yield step, run


def gpu_trainings_of(measurements: Measurements) -> dict[str, SmokeResult]:
    return {
        " ".join(filter(None, (step.removeprefix(TRAINING), run.variant))): run
        for step, run in trainings_of(measurements)
        if run.placement != "cpu"
    }


def _read(numbers: Any, kind: type[Kind], needed: str = "") -> Kind | None:
    """Return a step's numbers as the report that they are of; None for those of another form, as if they were missing.

    needed: a field that is not empty. What the report of the host has itself, and what an earlier version did not
    write, is neutral.
    """
    try:
        found = None if numbers is None else msgspec.convert(_filled(numbers, kind), kind, strict=False)
    except (msgspec.ValidationError, ValueError):
        return None
    return None if needed and not getattr(found, needed, None) else found


class _Field(NamedTuple):
    """A field that is required, or that is a structure. neutral: its value where it is missing, UNSET for none."""

    name: str
    neutral: Any
    inner: type[msgspec.Struct] | None


NEUTRAL = {str: "", int: 0, float: 0.0, bool: False, tuple: (), dict: {}, Verdict: Verdict.UNKNOWN.value}


def _filled(numbers: Any, kind: type[msgspec.Struct]) -> Any:
    if not isinstance(numbers, dict):
        return numbers
    made = dict(numbers)
    for name, neutral, inner in _fields(kind):
        if name not in made:
            made |= {name: neutral} if neutral is not msgspec.UNSET else {}
        elif inner is not None:
            made[name] = _filled(made[name], inner)
    return made


@lru_cache
def _fields(kind: type[msgspec.Struct]) -> tuple[_Field, ...]:
    found = []
    for field in msgspec.structs.fields(kind):
        types = get_args(field.type) if get_origin(field.type) in (Union, UnionType) else (field.type,)
        inner = next((one for one in types if isinstance(one, type) and issubclass(one, msgspec.Struct)), None)
        optional = type(None) in types
        neutral = None if optional else {} if inner else NEUTRAL.get(get_origin(types[0]) or types[0], msgspec.UNSET)
        if field.required or inner is not None:
            found.append(_Field(field.encode_name, neutral if field.required else msgspec.UNSET, inner))
    return tuple(found)


# As keys end -> as people write it. Longest first: per_s ends in s.
UNITS = {
    "tflops": "TFLOPS",
    "per_second": "per s",
    "per_s": "per s",
    "percent": "%",
    "seconds": "s",
    "gbit_s": "Gb/s",
    "gb_s": "GB/s",
    "bytes": "bytes",
    "ratio": "ratio",
    "count": "count",
    "mib": "MiB",
    "mhz": "MHz",
    "us": "us",
    "ms": "ms",
    "s": "s",
    "w": "W",
    "c": "C",
}


def metric_title(metric: str) -> str:
    """Return ``p2p unidirectional [NV18] (GB/s)`` for ``p2p.unidirectional_gb_s[NV18]``."""
    name, bracket, words = metric.partition("[")
    where = f" [{words}" if bracket else ""
    if name.startswith("finding."):
        check, _, unit = name.removeprefix("finding.").rpartition(".")
        symbol = UNITS.get(unit, unit.replace("_", " "))
        return check + where if symbol == check else f"{check}{where} ({symbol})"
    for ending, symbol in UNITS.items():
        if name.endswith((f"_{ending}", f".{ending}")):
            return f"{_words(name[: -len(ending) - 1])}{where} ({symbol})"
    return _words(name) + where


def _words(name: str) -> str:
    return name.replace("_", " ").replace(".", " ")
