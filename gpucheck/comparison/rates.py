"""Measured rates of two reports of one host: what is slower than noise explains."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from gpucheck.checks.nvlink.links import NAME as NVLINK
from gpucheck.checks.pcie.errors import PER_HOUR
from gpucheck.knowledge.codes import Subject
from gpucheck.model import AerCounts, Finding, Gpu, NvLink, PciDevice, PcieErrors, Report, Verdict, measurements
from gpucheck.model.bandwidth import BandwidthReport
from gpucheck.model.collectives import CollectivesReport
from gpucheck.model.compute import ComputeDevice, ComputeReport, MatrixRate
from gpucheck.model.measurements import Measurements
from gpucheck.model.smoke import Performance, SmokeResult

# A counter that is lower than before was set to zero in between (a reboot, a reload of the driver, another board): then
# all that it shows now came after that. The time in between is the reports' distance, or the uptime where that is less.
NAME = "baseline"
LEAST_HOURS = 1.0
"""Shorter intervals are treated as this long: a few errors must not look like a high rate."""


class Counter(NamedTuple):
    """A counter, then and now. fatal: any rise is a failure; else a rate is evaluated, or any rise where rate is 0."""

    name: str
    before: int | None
    now: int | None
    code: str
    fails: bool = False
    per_hour: float = 0.0


def of_gpu(before: Gpu, now: Gpu) -> Iterator[Counter]:
    old, new = before.health.pcie_errors, now.health.pcie_errors
    yield Counter("PCIe replays", old.replays, new.replays, "comparison.pcie-repeats", per_hour=PER_HOUR)
    yield from _pcie("PCIe", old, new)
    yield Counter("ECC uncorrected", *_ecc(before, now, "uncorrected"), "comparison.ecc-uncorrected", fails=True)
    # NVIDIA publishes no limit for corrected ones (Xid 92 is logged when its own is reached): the PCIe limit applies.
    yield Counter("ECC corrected", *_ecc(before, now, "corrected"), "comparison.ecc-corrected", per_hour=PER_HOUR)
    for name, was, rows in _replaced(before, now):
        yield Counter(name, was, rows, "comparison.memory-retired")
    yield from _nvlinks(before, now)


NOT_READ = NVLINK, Verdict.UNKNOWN


def unread_nvlinks(findings: Iterable[Finding]) -> set[str]:
    """Return the subjects of GPUs with NVLinks whose state NVML did not report."""
    known = "nvlink.model-unknown"
    return {one.subject for one in findings if (one.check, one.verdict) == NOT_READ and one.code != known}


def _pcie(name: str, old: PcieErrors | AerCounts, new: PcieErrors | AerCounts) -> Iterator[Counter]:
    yield Counter(f"{name} corrected", old.correctable, new.correctable, "comparison.pcie-repeats", False, PER_HOUR)
    yield Counter(f"{name} non-fatal", old.non_fatal, new.non_fatal, "comparison.pcie-losses", fails=True)
    yield Counter(f"{name} fatal", old.fatal, new.fatal, "comparison.pcie-losses", fails=True)


def _ecc(before: Gpu, now: Gpu, kind: str) -> tuple[int | None, int | None]:
    """Return both counts over the life of the board if both reports have them, else those since boot."""
    aggregate = tuple(getattr(gpu.health.ecc_counts, f"aggregate_{kind}") for gpu in (before, now))
    volatile = tuple(getattr(gpu.health.ecc_counts, f"volatile_{kind}") for gpu in (before, now))
    was, count = volatile if None in aggregate else aggregate
    return was, count


def _replaced(before: Gpu, now: Gpu) -> Iterator[tuple[str, int, int]]:
    """Yield remapped rows (Ampere and newer) and retired pages (older), by the kind of error."""
    was, rows = before.health.row_remap, now.health.row_remap
    if was and rows:
        yield "rows remapped (uncorrectable)", was.uncorrected, rows.uncorrected
        yield "rows remapped (corrected)", was.corrected, rows.corrected
    then, pages = before.health.retired_pages, now.health.retired_pages
    if then and pages:
        yield "pages retired (double-bit)", then.double_bit, pages.double_bit
        yield "pages retired (single-bit)", then.single_bit, pages.single_bit


def _nvlinks(before: Gpu, now: Gpu) -> Iterator[Counter]:
    then, repeats = {link.link: link for link in before.nvlinks}, "comparison.nvlink-repeats"
    for link in now.nvlinks:
        old = then.get(link.link, NvLink(link=link.link, active=False))
        name = f"NVLink {link.link}"
        yield Counter(f"{name} replays", old.replay_errors, link.replay_errors, repeats, per_hour=PER_HOUR)
        yield Counter(f"{name} CRC", old.crc_errors, link.crc_errors, repeats, per_hour=PER_HOUR)
        recoveries = "comparison.nvlink-recoveries"
        yield Counter(f"{name} recoveries", old.recovery_errors, link.recovery_errors, recoveries)


def of_port(before: PciDevice, now: PciDevice) -> Iterator[Counter]:
    if before.aer is not None and now.aer is not None:
        yield from _pcie("AER", before.aer, now.aer)


def rises(subject: str, counters: Iterable[Counter], hours: float, uptime: float | None) -> Iterator[Finding]:
    """Yield a finding for every counter that rose too much. hours: time between the reports; uptime: of the host."""
    for counter in counters:
        if counter.before is None or counter.now is None:
            continue
        zeroed = counter.now < counter.before
        rise = counter.now if zeroed else counter.now - counter.before
        over = min(hours, uptime) if zeroed and uptime is not None else hours
        rate = rise / max(over, LEAST_HOURS)
        if rise == 0 or rate <= counter.per_hour:
            continue
        change = f"{counter.before} then, {counter.now} now{', set to zero in between' if zeroed else ''}"
        evidence = (f"{counter.name}: {change}", f"{rise} in {over:.2f} h")
        seen = f"{counter.name}: {rise} more, {rate:,.0f} an hour" if rate >= 10 else f"{counter.name}: {rise} more"
        wanted = f"at most {counter.per_hour:g} an hour" if counter.per_hour else "none more"
        verdict = Verdict.FAIL if counter.fails else Verdict.WARN
        yield Subject(check=NAME, name=subject, evidence=evidence).finding(verdict, counter.code, seen, wanted)


# Of copies. One missing NVLink of 18 costs 5.6 %; two runs of a healthy machine differ by less than half of that.
WARN_BELOW, FAIL_BELOW = 0.95, 0.85
# Deviations that noise explains, of both runs together.
SIGMAS = 3.0
MAD_TO_SIGMA = 1.4826
# Temperature and clocks differ between two runs of a healthy GPU, which the spread within one run does not show.
BETWEEN_RUNS = 0.03
SHOWN = 12
SETTINGS = ("model", "precision", "backend", "placement", "world_size", "batch_per_rank")
WAYS = ("read", "write", "copy")
CODES = {
    "matrix products": "comparison.products-slower",
    "memory": "comparison.memory-slower",
    "training": "comparison.training-slower",
}
HOST = Subject(check=NAME)


class Drop(NamedTuple):
    """One value, then and now. limit: the lost part from which noise of both runs does not explain it."""

    kind: str
    subject: str
    before: float
    now: float
    limit: float
    unit: str = "GB/s"
    what: str = ""

    @property
    def ratio(self) -> float:
        return self.now / self.before


def slower(before: Report, now: Report) -> Iterator[Finding]:
    """Yield one finding for each kind of rate that is lower, and one for what is not comparable."""
    kinds: dict[str, list[Drop]] = defaultdict(list)
    for part in PARTS:
        old, new = part.read(before.measurements), part.read(now.measurements)
        if not old or not new:
            yield from _missing(part, old, new)
            continue
        then, today = (getattr(side, part.setting, None) for side in (old, new))
        if then != today:
            if part.setting == "ranks":
                yield HOST.skips("comparison.ranks-changed", then=then, now=today)
            else:
                yield HOST.skips("comparison.engine-changed", what=part.what, then=then, now=today)
            continue
        for found in part.compare(old, new):
            if isinstance(found, Finding):
                yield found
            elif found.ratio < 1 - found.limit:
                kinds[found.kind].append(found)
    for kind, drops in kinds.items():
        yield _finding(kind, sorted(drops, key=lambda drop: drop.ratio))


def _missing(part: "Compared", old: object, new: object) -> Iterator[Finding]:
    if bool(old) is not bool(new) and part.read is not measurements.gpu_copies_of:
        yield HOST.skips("comparison.numbers-missing", what=part.what, report="report" if old else "baseline")


def _copies(old: BandwidthReport, new: BandwidthReport) -> Iterator[Drop]:
    """Of slots with the model that was in them; another one has other links."""
    models = {(one.bus_id, one.name) for one in old.devices}
    swapped = {new.bus_id(place) for place, one in enumerate(new.devices) if (one.bus_id, one.name) not in models}
    pairs = {(old.bus_id(pair.src), old.bus_id(pair.dst)): pair.measured for pair in old.pairs}
    for pair in new.pairs:
        ends = (new.bus_id(pair.src), new.bus_id(pair.dst))
        was = None if swapped.intersection(ends) else pairs.get(ends)
        if was is not None and pair.measured is not None and was.gb_s > 0:
            limit = max(1 - WARN_BELOW, _noise(was.mad_percent, pair.measured.mad_percent))
            yield Drop(f"{pair.cls or 'P2P'} pairs", f"pair:{'-'.join(ends)}", was.gb_s, pair.measured.gb_s, limit)
    links = {old.bus_id(link.device): link for link in old.host_device}
    for link in new.host_device:
        bus_id = new.bus_id(link.device)
        for name, kind in (("h2d_gb_s", "host to device"), ("d2h_gb_s", "device to host")):
            earlier, value = getattr(links.get(bus_id), name, None), getattr(link, name)
            if earlier and value is not None and bus_id not in swapped:
                yield Drop(kind, f"gpu:{bus_id}", earlier, value, 1 - WARN_BELOW)


def _compute(old: ComputeReport, new: ComputeReport) -> Iterator[Drop | Finding]:
    then = {gpu.bus_id: gpu for gpu in old.gpus}
    for gpu in new.gpus:
        was = then.get(gpu.bus_id)
        if was is not None and was.uuid != gpu.uuid:
            yield HOST.skips("comparison.slot-changed", slot=gpu.bus_id)
        elif was is not None:
            yield from _of_gpu(was, gpu)


def _of_gpu(was: ComputeDevice, now: ComputeDevice) -> Iterator[Drop]:
    subject = f"gpu:{now.bus_id}"
    for type_, rate in now.gemm.items():
        earlier = was.gemm.get(type_)
        if earlier is not None and earlier.tflops and rate.tflops is not None:
            clocks = f", {earlier.clock_mhz:.0f} and {rate.clock_mhz:.0f} MHz" if _both(earlier, rate) else ""
            limit = _limit(earlier.mad_percent, rate.mad_percent)
            yield Drop("matrix products", subject, earlier.tflops, rate.tflops, limit, "TFLOPS", f"{type_}{clocks}")
    for way in WAYS:
        earlier_gb_s, gb_s = getattr(was.memory, f"{way}_gb_s"), getattr(now.memory, f"{way}_gb_s")
        if earlier_gb_s and gb_s is not None:
            limit = _limit(was.memory.mad_percent.get(way), now.memory.mad_percent.get(way))
            yield Drop("memory", subject, earlier_gb_s, gb_s, limit, "GB/s", way)


def _both(earlier: MatrixRate, now: MatrixRate) -> bool:
    return earlier.clock_mhz is not None and now.clock_mhz is not None


def _collectives(old: CollectivesReport, new: CollectivesReport) -> Iterator[Drop]:
    then = {(one.operation, one.size_bytes, one.variant): one for one in old.results}
    for one in new.results:
        was = then.get((one.operation, one.size_bytes, one.variant))
        if was is not None and was.busbw_gb_s and one.busbw_gb_s is not None:
            what = f"{one.operation} of {one.size_bytes / 2**20:g} MiB, {one.variant}"
            limit = _limit(was.mad_percent, one.mad_percent)
            yield Drop("collectives", "host", was.busbw_gb_s, one.busbw_gb_s, limit, "GB/s", what)


def _trainings(old: dict[str, SmokeResult], new: dict[str, SmokeResult]) -> Iterator[Drop | Finding]:
    for name in (name for name in new if name in old):
        was, run = old[name], new[name]
        settings = changed_settings(was, run, SETTINGS)
        if was.device_names != run.device_names:
            settings += ("GPUs",)
        if settings:
            what = f"steps per second of {name}"
            yield HOST.skips("comparison.settings-changed", what=what, changes=settings)
        elif was.performance is not None and run.performance is not None:
            yield from _pace(name, was.performance, run.performance)


def changed_settings(then: SmokeResult, now: SmokeResult, keys: Iterable[str]) -> tuple[str, ...]:
    """Return the settings that two trainings do not share, each with both values."""
    return changes(*({key: getattr(run, key) for key in keys} for run in (then, now)))


def changes(then: Mapping[str, object], now: Mapping[str, object]) -> tuple[str, ...]:
    names = (name for name in dict.fromkeys([*then, *now]) if then.get(name) != now.get(name))
    return tuple(f"{name} {_or_none(then.get(name))} -> {_or_none(now.get(name))}" for name in names)


def _or_none(value: object) -> object:
    return "none" if value in (None, "") else value


def _pace(name: str, was: Performance, run: Performance) -> Iterator[Drop | Finding]:
    if not was.steps_per_s or run.steps_per_s is None:
        return
    if was.steps_mad_percent is None or run.steps_mad_percent is None:
        which = "baseline" if was.steps_mad_percent is None else "report"
        yield HOST.skips("comparison.spread-missing", training=name, report=which)
        return
    limit = _limit(was.steps_mad_percent, run.steps_mad_percent)
    yield Drop("training", "host", was.steps_per_s, run.steps_per_s, limit, "steps/s", name)


def _limit(*mad_percents: float | None) -> float:
    """Return the lost part that the spreads of both runs, and the difference between healthy runs, do not explain."""
    return math.hypot(_noise(*mad_percents), BETWEEN_RUNS)


def _noise(*mad_percents: float | None) -> float:
    return SIGMAS * MAD_TO_SIGMA * math.hypot(*((percent or 0.0) / 100 for percent in mad_percents))


class Compared(NamedTuple):
    """Measurements of one kind. setting: what must be equal for them to be comparable."""

    what: str
    read: Callable[[Measurements], Any]
    compare: Callable[[Any, Any], Iterator[Drop | Finding]]
    setting: str = ""


PARTS = (
    Compared("copies", measurements.gpu_copies_of, _copies, "engine"),
    Compared("compute", measurements.gpu_computed_of, _compute, "engine"),
    Compared("collectives", measurements.gpu_collectives_of, _collectives, "ranks"),
    Compared("training on GPUs", measurements.gpu_trainings_of, _trainings),
)


def _line(drop: Drop) -> str:
    what = f"{drop.what}: " if drop.what else ""
    return f"{drop.subject}: {what}{drop.before:g} then, {drop.now:g} {drop.unit} now"


def _finding(kind: str, drops: list[Drop]) -> Finding:
    worst = drops[0]
    more = (f"{len(drops) - SHOWN} more",) if len(drops) > SHOWN else ()
    # Both directions of one pair are one subject.
    places = {frozenset(drop.subject.partition(":")[2].split("-")) for drop in drops}
    subject = Subject(
        check=NAME,
        name=worst.subject if len(places) == 1 else "host",
        unit=worst.unit,
        evidence=(*map(_line, drops[:SHOWN]), *more),
    )
    verdict = Verdict.FAIL if worst.ratio < FAIL_BELOW else Verdict.WARN
    code, seen, wanted = CODES.get(kind, "comparison.links-slower"), round(worst.now, 2), round(worst.before, 2)
    return subject.finding(verdict, code, seen, wanted, kind=kind, count=len(drops))
