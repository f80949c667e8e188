"""Measured rates of two reports of one host: what is slower than noise explains."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from gpucheck.checks.nvlink.links import NAME as NVLINK
from gpucheck.checks.pcie.errors import PER_HOUR
from gpucheck.knowledge.codes import Subject
from gpucheck.model import AerCounts, Finding, Gpu, NvLink, PciDevice, PcieErrors, Report, Verdict
from gpucheck.model.measurements import WAYS, Number, OfGpus, metric_title, numbers, of_gpus
from gpucheck.model.smoke import SmokeResult

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
        for what, count in link.errors.items():
            was = old.errors.get(what, 0 if old.counts else None)
            yield Counter(f"{name} {what}", was, count, repeats, per_hour=PER_HOUR)
        recoveries = "comparison.nvlink-recoveries"
        yield Counter(f"{name} recoveries", old.recoveries, link.recoveries, recoveries)


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
# What is compared: what a finding names, its code and its unit, by the name of the value.
KINDS = {
    "p2p_uni_gb_s": ("{words} pairs", "comparison.links-slower", "GB/s"),
    "h2d_gb_s": ("host to device", "comparison.links-slower", "GB/s"),
    "d2h_gb_s": ("device to host", "comparison.links-slower", "GB/s"),
    "tflops": ("matrix products", "comparison.products-slower", "TFLOPS"),
    **dict.fromkeys((f"{way}_gb_s" for way in WAYS), ("memory", "comparison.memory-slower", "GB/s")),
    "busbw_gb_s": ("collectives", "comparison.links-slower", "GB/s"),
    "steps_per_s": ("training", "comparison.training-slower", "steps/s"),
}
# Parts of a report, as findings name them, and what must be equal for their numbers to be comparable.
PARTS = (
    ("copies", "copies", "engine"),
    ("compute", "compute", "engine"),
    ("collectives", "collectives", "ranks"),
    ("trainings", "training on GPUs", ""),
)
HOST = Subject(check=NAME)


class Drop(NamedTuple):
    """One number, then and now. clocks: of matrix products, as text."""

    before: Number
    now: Number
    clocks: str

    @property
    def ratio(self) -> float:
        return self.now.value / self.before.value

    def line(self) -> str:
        title = metric_title(self.now.metric.removeprefix("p2p.matrices."))
        return f"{self.now.subject}: {title}: {self.before.value:g} then, {self.now.value:g} now{self.clocks}"


def slower(before: Report, now: Report) -> Iterator[Finding]:
    """Yield one finding for each kind of rate that is lower, and one for what is not comparable."""
    old, new = of_gpus(before.measurements), of_gpus(now.measurements)
    new, skipped = _comparable(old, new)
    yield from skipped
    then, today = ({_key(one): one for one in numbers(side)} for side in (old, new))
    kinds: dict[tuple[str, str, str], list[Drop]] = defaultdict(list)
    for key, one in today.items():
        was = then.get(key)
        if one.key in KINDS and was is not None and was.value > 0:
            clock = (one.metric.replace(".tflops", ".clock_mhz"), one.at)
            at = (
                f", at {then[clock].value:.0f} and {today[clock].value:.0f} MHz"
                if clock in then and clock in today
                else ""
            )
            drop = Drop(was, one, at if one.key == "tflops" else "")
            if drop.ratio < 1 - _limit(was, one):
                kind, code, unit = KINDS[one.key]
                kinds[kind.format(words=one.words or "P2P"), code, unit].append(drop)
    for (kind, code, unit), drops in kinds.items():
        yield _finding(kind, code, unit, sorted(drops, key=lambda drop: drop.ratio))


def _key(one: Number) -> tuple[str, tuple[str, ...]]:
    """Return what the same number has in another report: the path class of a pair may have changed."""
    return one.key if len(one.at) == 2 else one.metric, one.at


def _comparable(old: OfGpus, new: OfGpus) -> tuple[OfGpus, list[Finding]]:
    """Return what of the new numbers can be compared with the old ones, and why the rest cannot."""
    out: list[Finding] = []
    for part, what, setting in PARTS:
        was, run = getattr(old, part), getattr(new, part)
        if not was or not run:
            if bool(was) is not bool(run) and part != "copies":
                out.append(HOST.skips("comparison.numbers-missing", what=what, report="report" if was else "baseline"))
            continue
        then, today = getattr(was, setting, None), getattr(run, setting, None)
        if then == today:
            continue
        nothing: dict[str, Any] = {part: None}
        new = new._replace(**nothing)
        if setting == "ranks":
            out.append(HOST.skips("comparison.ranks-changed", then=then, now=today))
        else:
            out.append(HOST.skips("comparison.engine-changed", what=what, then=then, now=today))
    new, swapped = _of_same_gpus(old, new)
    out += swapped
    reasons = {
        name: _reason(name, old.trainings[name], run) for name, run in new.trainings.items() if name in old.trainings
    }
    out += [reason for reason in reasons.values() if reason is not None]
    return new._replace(trainings={name: new.trainings[name] for name in reasons if reasons[name] is None}), out


def _of_same_gpus(old: OfGpus, new: OfGpus) -> tuple[OfGpus, list[Finding]]:
    """Return the new numbers without those of GPUs that were not in their slots, and which slots these are."""
    out: list[Finding] = []
    if old.copies is not None and new.copies is not None:
        # Another model has other links.
        models = {(one.bus_id, one.name) for one in old.copies.devices}
        kept = {place for place, one in enumerate(new.copies.devices) if (one.bus_id, one.name) in models}
        pairs = tuple(pair for pair in new.copies.pairs if {pair.src, pair.dst} <= kept)
        links = tuple(link for link in new.copies.host_device if link.device in kept)
        new = new._replace(copies=replace(new.copies, pairs=pairs, host_device=links))
    if old.compute is not None and new.compute is not None:
        slots = {gpu.bus_id: gpu.uuid for gpu in old.compute.gpus}
        moved = [gpu for gpu in new.compute.gpus if slots.get(gpu.bus_id, gpu.uuid) != gpu.uuid]
        out += [HOST.skips("comparison.slot-changed", slot=gpu.bus_id) for gpu in moved]
        left = tuple(gpu for gpu in new.compute.gpus if gpu not in moved)
        new = new._replace(compute=replace(new.compute, gpus=left))
    return new, out


def _reason(name: str, was: SmokeResult, run: SmokeResult) -> Finding | None:
    """Return why the speeds of two trainings are not comparable."""
    settings = changed_settings(was, run, SETTINGS)
    if was.device_names != run.device_names:
        settings += ("GPUs",)
    if settings:
        return HOST.skips("comparison.settings-changed", what=f"steps per second of {name}", changes=settings)
    speeds = {"baseline": was.performance, "report": run.performance}
    rated = all(speed is not None and speed.steps_per_s for speed in speeds.values())
    which = next((side for side, speed in speeds.items() if speed and speed.steps_mad_percent is None), None)
    return HOST.skips("comparison.spread-missing", training=name, report=which) if rated and which else None


def changed_settings(then: SmokeResult, now: SmokeResult, keys: Iterable[str]) -> tuple[str, ...]:
    """Return the settings that two trainings do not share, each with both values."""
    return changes(*({key: getattr(run, key) for key in keys} for run in (then, now)))


def changes(then: Mapping[str, object], now: Mapping[str, object]) -> tuple[str, ...]:
    names = (name for name in dict.fromkeys([*then, *now]) if then.get(name) != now.get(name))
    return tuple(f"{name} {_or_none(then.get(name))} -> {_or_none(now.get(name))}" for name in names)


def _or_none(value: object) -> object:
    return "none" if value in (None, "") else value


def _limit(was: Number, now: Number) -> float:
    """Return the lost part from which the spreads and the difference of healthy runs do not explain it."""
    noise = SIGMAS * MAD_TO_SIGMA * math.hypot((was.mad_percent or 0.0) / 100, (now.mad_percent or 0.0) / 100)
    return max(1 - WARN_BELOW, noise) if now.metric.startswith("p2p.") else math.hypot(noise, BETWEEN_RUNS)


def _finding(kind: str, code: str, unit: str, drops: list[Drop]) -> Finding:
    worst = drops[0]
    more = (f"{len(drops) - SHOWN} more",) if len(drops) > SHOWN else ()
    # Both directions of one pair are one subject.
    places = {frozenset(drop.now.at) for drop in drops}
    subject = Subject(
        check=NAME,
        name=worst.now.subject if len(places) == 1 else "host",
        unit=unit,
        evidence=(*(drop.line() for drop in drops[:SHOWN]), *more),
    )
    verdict = Verdict.FAIL if worst.ratio < FAIL_BELOW else Verdict.WARN
    seen, wanted = round(worst.now.value, 2), round(worst.before.value, 2)
    return subject.finding(verdict, code, seen, wanted, kind=kind, count=len(drops))
