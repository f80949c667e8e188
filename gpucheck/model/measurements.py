"""The measurements of a report as they are read back: what two reports, a site's limits or many hosts compare."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from types import UnionType
from typing import Any, NamedTuple, TypeVar, Union, get_args, get_origin

import msgspec

from gpucheck.model.bandwidth import BandwidthReport
from gpucheck.model.collectives import CollectivesReport
from gpucheck.model.compute import ComputeDevice, ComputeReport
from gpucheck.model.finding import Verdict
from gpucheck.model.record import RECORD
from gpucheck.model.smoke import Performance, SmokeResult

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


def computed_of(measurements: Measurements) -> ComputeReport | None:
    return _read(measurements.get(COMPUTE), ComputeReport, "gpus")


def collectives_of(measurements: Measurements) -> CollectivesReport | None:
    return _read(measurements.get(COLLECTIVES), CollectivesReport, "results")


def trainings_of(measurements: Measurements) -> Iterator[tuple[str, SmokeResult]]:
    """Yield every training that ended, on CPUs too, with the name of its step. Failures are in the findings."""
    for step, numbers in measurements.items():
        if step.startswith(TRAINING) and isinstance(numbers, dict):
            variants = numbers.get("variants")
            for one in (numbers, *(variants.values() if isinstance(variants, dict) else ())):
                run = _read(one, SmokeResult)
                if run is not None:
                    yield step, run


class _Port(msgspec.Struct):
    rate_gbit_s: float | None = None


class Card(msgspec.Struct):
    """Of a network card in the record of a host: what hosts are compared by."""

    model: str | None = None
    ports: tuple[_Port, ...] = ()


class OfGpus(NamedTuple):
    """What was measured on GPUs; ranks and copies of processors state nothing about them. trainings: by name."""

    copies: BandwidthReport | None
    compute: ComputeReport | None
    collectives: CollectivesReport | None
    trainings: dict[str, SmokeResult]
    cards: tuple[Card, ...]


def of_gpus(measurements: Measurements) -> OfGpus:
    copies, computed, collectives = copies_of(measurements), computed_of(measurements), collectives_of(measurements)
    gpus = tuple(gpu for gpu in computed.gpus if gpu.is_gpu) if computed is not None else ()
    return OfGpus(
        copies=copies if copies is not None and copies.engine != "cpu" else None,
        compute=msgspec.structs.replace(computed, gpus=gpus) if computed is not None and gpus else None,
        collectives=collectives if collectives is not None and collectives.backend == "nccl" else None,
        trainings={
            " ".join(filter(None, (step.removeprefix(TRAINING), run.variant))): run
            for step, run in trainings_of(measurements)
            if run.placement != "cpu"
        },
        cards=_cards(measurements),
    )


def _cards(measurements: Measurements) -> tuple[Card, ...]:
    try:
        nics = msgspec.convert(measurements.get(RECORD, {}).get("nics"), tuple[dict[str, Any], ...] | None) or ()
        return tuple(msgspec.convert(nic.get("device", {}), Card, strict=False) for nic in nics)
    except (msgspec.ValidationError, AttributeError):
        return ()


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


class Number(NamedTuple):
    """One number that was measured on GPUs. metric: ``compute.gemm.bf16.tflops[torch]``, which names the unit.

    at: bus ids (the index where one is unknown) of the GPU, or of source and destination; empty for the host.
    mad_percent: the spread, None if unknown. low: what a healthy machine of the model reaches, None if unknown.
    """

    metric: str
    at: tuple[str, ...]
    value: float
    mad_percent: float | None = None
    low: float | None = None

    @property
    def subject(self) -> str:
        """Return what findings name."""
        return f"{('host', 'gpu:', 'pair:')[len(self.at)]}{'-'.join(self.at)}"

    @property
    def key(self) -> str:
        """Return the name of the value: ``p2p_uni_gb_s`` of ``p2p.matrices.p2p_uni_gb_s[NV18]``."""
        return self.metric.partition("[")[0].rpartition(".")[2]

    @property
    def words(self) -> str:
        """Return what is in brackets: a path class, an engine or settings."""
        return self.metric.partition("[")[2].removesuffix("]")


# Of a pair, by what its matrix is called in the report of copies.
OF_PAIR = {
    "p2p_bidir_gb_s": "both_ways_gb_s", "staged_uni_gb_s": "staged_gb_s", "p2p_latency_us": "latency_us",
    "load_latency_us": "load_latency_us",
}  # fmt: skip
OF_HOST_LINK = ("h2d_gb_s", "d2h_gb_s", "h2d_kernel_gb_s", "d2h_kernel_gb_s")
WAYS = ("read", "write", "copy")
HOTTEST = ("temperature_c", "memory_temperature_c")
# Reasons that show a fault of cooling or power. Healthy GPUs reach their power limit under load.
REASONS = ("hw-power-brake", "hw-slowdown", "hw-thermal", "sw-thermal")
# Temperatures, throttling and errors under load.
UNDER_LOAD = (*(f"compute.{key}" for key in HOTTEST), "compute.throttled_percent", "compute.errors_count")
# Values that add nothing to a name: the usual variant and placement.
USUAL = ("", "as is", "gpus")


def numbers(found: OfGpus) -> Iterator[Number]:
    """Yield every number that can be compared between hosts, with an earlier run, or with a limit of your site."""
    if found.copies is not None:
        yield from _copied(found.copies)
    if found.compute is not None:
        suffix = _in_brackets(found.compute.engine)
        for gpu in found.compute.gpus:
            yield from _computed(gpu, suffix)
    if found.collectives is not None:
        for one in found.collectives.results:
            if one.busbw_gb_s is not None:
                suffix = _in_brackets(
                    one.operation, size_title(one.size_bytes), f"{found.collectives.ranks} ranks", one.variant
                )
                yield Number(f"collectives.busbw_gb_s{suffix}", (), one.busbw_gb_s, one.mad_percent)
    for name, run in found.trainings.items():
        if run.performance is not None:
            suffix = _in_brackets(run.model, run.precision, f"{run.world_size} ranks", run.variant, run.placement)
            yield from _trained(f"{TRAINING}{name.replace(' ', '.')}", suffix, run, run.performance)
    for card in found.cards:
        for rate in (port.rate_gbit_s for port in card.ports if port.rate_gbit_s is not None):
            yield Number(f"{RECORD}.device.rate_gbit_s{_in_brackets(card.model or '')}", (), rate)


def _in_brackets(*words: str) -> str:
    shown = " ".join(word for word in words if word not in USUAL)
    return f"[{shown}]" if shown else ""


def size_title(size: int) -> str:
    """Return ``1 MiB``; bytes where it is not a whole number of a larger unit."""
    for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size > 0 and size % (1 << shift) == 0:
            return f"{size >> shift} {unit}"
    return f"{size} B"


def _trained(name: str, suffix: str, run: SmokeResult, speed: Performance) -> Iterator[Number]:
    if speed.steps_per_s is not None:
        yield Number(f"{name}.steps_per_s{suffix}", (), speed.steps_per_s, speed.steps_mad_percent)
    if speed.single_samples_per_s is not None:
        yield Number(f"{name}.single_samples_per_s{suffix}", (), speed.single_samples_per_s)
    for bus_id, rate in zip(run.bus_ids, speed.samples_per_s, strict=False):
        yield Number(f"{name}.samples_per_s{suffix}", (bus_id,) if bus_id else (), rate)


def _copied(copies: BandwidthReport) -> Iterator[Number]:
    ids = [device.bus_id or str(device.index) for device in copies.devices]
    classes = {(pair.src, pair.dst): pair.cls for pair in copies.pairs}
    for pair in copies.pairs:
        if not (0 <= pair.src < len(ids) and 0 <= pair.dst < len(ids)):
            continue
        at, suffix = (ids[pair.src], ids[pair.dst]), _in_brackets(pair.cls or "")
        if pair.measured is not None:
            rate, mad_percent = pair.measured.gb_s, pair.measured.mad_percent
            yield Number(f"p2p.matrices.p2p_uni_gb_s{suffix}", at, rate, mad_percent, pair.low_gb_s)
        for key, field in OF_PAIR.items():
            value = getattr(pair, field)
            if value is not None:
                yield Number(f"p2p.matrices.{key}{suffix}", at, value)
    for src, row in enumerate(copies.matrices.get("staged_latency_us", ())[: len(ids)]):
        for dst, value in enumerate(row[: len(ids)]):
            if value is not None:
                suffix = _in_brackets(classes.get((src, dst)) or "")
                yield Number(f"p2p.matrices.staged_latency_us{suffix}", (ids[src], ids[dst]), value)
    yield from _linked(copies, ids)


def _linked(copies: BandwidthReport, ids: Sequence[str]) -> Iterator[Number]:
    """Yield copies between a GPU and the host, and inside a GPU."""
    suffix = _in_brackets(copies.engine)
    for link in copies.host_device:
        for key in OF_HOST_LINK if 0 <= link.device < len(ids) else ():
            value = getattr(link, key)
            if value is not None:
                yield Number(f"p2p.{key}{suffix}", (ids[link.device],), value)
    for bus_id, value in zip(ids, copies.local_gb_s, strict=False):
        if value is not None:
            yield Number(f"p2p.local_gb_s{suffix}", (bus_id,), value)


def _computed(gpu: ComputeDevice, suffix: str) -> Iterator[Number]:
    """Yield rates, and a few numbers of the readings under load."""
    at = (gpu.bus_id or str(gpu.index),)
    for type_, rate in gpu.gemm.items():
        if rate.tflops is not None:
            yield Number(f"compute.gemm.{type_}.tflops{suffix}", at, rate.tflops, rate.mad_percent)
        if rate.clock_mhz is not None:
            yield Number(f"compute.gemm.{type_}.clock_mhz{suffix}", at, rate.clock_mhz)
    for way in WAYS:
        gb_s = getattr(gpu.memory, f"{way}_gb_s")
        if gb_s is not None:
            yield Number(f"compute.memory.{way}_gb_s{suffix}", at, gb_s, gpu.memory.mad_percent.get(way))
    for key in HOTTEST:
        degrees = [value for reading in gpu.traces if (value := getattr(reading, key)) is not None]
        if degrees:
            yield Number(f"compute.{key}", at, max(degrees))
    reported = [reading.reasons for reading in gpu.traces if reading.reasons is not None]
    for reason in REASONS if reported else ():
        share = 100 * sum(reason in reasons for reasons in reported) / len(reported)
        yield Number(f"compute.throttled_percent[{reason}]", at, share)
    if gpu.traces:
        rose = sum(count for count in gpu.errors.values() if 0 < count < 2**63)
        yield Number("compute.errors_count", at, float(rose))


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
    """Return ``p2p matrices p2p uni [NV18] (GB/s)`` for ``p2p.matrices.p2p_uni_gb_s[NV18]``."""
    name, bracket, words = metric.partition("[")
    where = f" [{words}" if bracket else ""
    if name.startswith("finding."):
        check, _, unit = name.removeprefix("finding.").rpartition(".")
        symbol = UNITS.get(unit, unit.replace("_", " "))
        return check + where if symbol == check else f"{check}{where} ({symbol})"
    ending = _ending(name)
    title = (name[: -len(ending) - 1] if ending else name).replace("_", " ").replace(".", " ")
    return f"{title}{where} ({UNITS[ending]})" if ending else title + where


def metric_unit(metric: str) -> str | None:
    """Return ``GB/s``; None if the name ends in no unit."""
    return UNITS.get(_ending(metric.partition("[")[0]))


def _ending(name: str) -> str:
    return next((one for one in UNITS if name.endswith((f"_{one}", f".{one}"))), "")
