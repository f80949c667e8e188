"""Compute on the GPUs of a host and return what was measured: choose devices and engine, run the plan.

The level burn-in: rounds of cold and hot load for minutes to days. After each, a file has the report so far.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from gpucheck.compute.engines.simulated import TICK_S, ComputeGpu, SimulatedBench, read
from gpucheck.compute.running.run import Bench, ComputeRun, Doubtful, Workers
from gpucheck.compute.values import MOST_ALONE, Opened, not_tested, untested
from gpucheck.host.simulated import machine_directory
from gpucheck.knowledge.codes import Subject
from gpucheck.measure.planning.selection import Unmeasurable, admit, choose, device
from gpucheck.measure.values import Watch
from gpucheck.model import Finding, Gpu, Verdict
from gpucheck.model.answer import Clock
from gpucheck.model.compute import CUBLAS, FATAL, TORCH, BurnIn, ComputeReport, Sample
from gpucheck.model.device import Device
from gpucheck.model.facts import Source
from gpucheck.processes.signals import Cut

NAME = "compute"
# Of Health, what explains a clock or a rate.
SETTINGS = (
    "power_limit_w", "power_default_w", "application_clock_mhz", "default_application_clock_mhz", "licensed",
    "gsp_firmware",
)  # fmt: skip
INTERRUPTED = "interrupted: the remaining steps unknown"
METHOD = (
    "every step runs on all GPUs at the same time; a rate that looks low is measured again alone",
    "ceiling of matrices: multiprocessors x operations per clock x SM clock measured meanwhile; of memory: bus width x "
    "two transfers per memory clock",
    "FP4 (NVFP4, MXFP4) is not tested, on any GPU",
    "operations on equal data are repeated cold, hot and with pauses; every computed value is part of a digest",
)


class ComputeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of one run. devices: cpu,cpu are two CPU processes. contended: use GPUs that other processes use.

    tick_s: between the readings of simulated GPUs.
    """

    devices: str | None = None
    contended: bool = False
    tick_s: float = TICK_S


class Chosen(NamedTuple):
    """A bench and its devices. gpus: by NVML, in the same order; empty for CPU processes. shared: as ComputeReport."""

    bench: Bench
    devices: tuple[Device, ...]
    gpus: tuple[Gpu, ...]
    engine: str
    notes: tuple[str, ...] = ()
    shared: bool = False


def measure(
    source: Source,
    options: ComputeOptions,
    doubtful: Doubtful,
    evaluate: Callable[[ComputeReport], ComputeReport],
    watch: Watch = Watch(),  # noqa: B008 - immutable
) -> ComputeReport:
    """Run everything. Raises Unmeasurable if there is nothing to compute on, or not as asked.

    doubtful: what is measured again alone. The findings list only what could not be run; evaluate adds the others.
    """
    clock = Clock()
    chosen = chosen_for(source, options)
    with closing(chosen.bench):
        run = ComputeRun(chosen.bench, chosen.devices, doubtful, watch, small=not chosen.gpus)
        cut = Cut(lambda: run.seconds > 0)
        with cut:
            run.standard()

    def made() -> ComputeReport:
        findings = (Subject(check=NAME).unknown("compute.run-interrupted", INTERRUPTED),) if cut.signal else ()
        many = f"{run.low} rates look low, and {MOST_ALONE} were measured alone"
        return evaluate(report_of(source, chosen, run, clock, findings, (many,) if run.low > MOST_ALONE else ()))

    return cut.report(made, watch.keep)


def report_of(
    source: Source, chosen: Chosen, run: ComputeRun, clock: Clock, findings: tuple[Finding, ...], notes: Sequence[str]
) -> ComputeReport:
    """Return the report of level standard. NVML's limits, license and firmware of a GPU explain a clock or a rate."""
    opened = next(iter(run.opened), None)
    without, devices = not_tested(opened), run.devices
    if chosen.gpus:
        settings = [{name: getattr(gpu.health, name) for name in SETTINGS} for gpu in chosen.gpus]
        devices = tuple(replace(device, **own) for device, own in zip(devices, settings, strict=True))
    return ComputeReport(
        **clock.answer(source.read("system", "simulation"), findings),
        engine=chosen.engine,
        level="standard",
        versions=opened.versions if opened else {},
        load_seconds=round(run.seconds, 1),
        gpus=devices,
        method=METHOD,
        notes=(*chosen.notes, *untested(without), *notes),
        shared=chosen.shared,
        not_tested=without,
    )


def chosen_for(source: Source, options: ComputeOptions) -> Chosen:
    """Choose devices and engine. Raises Unmeasurable, also for CPUs and GPUs together."""
    names = [name.strip() for name in (options.devices or "").split(",")]
    if "cpu" not in names:
        return _gpus(source, options)
    if set(names) != {"cpu"}:
        seen = f"--devices {options.devices}"
        raise Unmeasurable(Subject(check=NAME).unknown("compute.devices-mixed", seen), usage=True)
    devices = tuple(Device(index=number, name="CPU process") for number in range(len(names)))
    return Chosen(Workers(devices, small=True), devices, (), "torch on the CPU")


def _gpus(source: Source, options: ComputeOptions) -> Chosen:
    listed = source.read("nvml").gpus
    if not listed:
        raise Unmeasurable(Subject(check=NAME).unknown("compute.no-usable-gpu", "no usable GPU on this host"))
    gpus = choose(listed, options.devices)
    directory = machine_directory()
    divided = {gpu.index: gpu.mig_uuids[0] for gpu in gpus if gpu.health.mig and gpu.mig_uuids and not directory}
    busy = admit([gpu for gpu in gpus if gpu.index not in divided], contended=options.contended)
    devices = tuple(replace(device(gpu), uuid=divided.get(gpu.index, gpu.uuid)) for gpu in gpus)
    part = f"MIG: on GPU {', '.join(map(str, divided))} only the first instance computes" if divided else ""
    notes = tuple(filter(None, (busy, part)))
    if directory is None:
        engine = CUBLAS if find_spec(TORCH) is None else TORCH
        return Chosen(Workers(devices, engine=engine), devices, gpus, engine, notes, bool(notes))
    try:
        known = {gpu.bus_id: gpu for gpu in read(directory)}
    except ValueError as error:
        raise Unmeasurable(Subject(check=NAME).unknown("compute.simulation-unreadable", str(error))) from error
    simulated: list[ComputeGpu] = [known[gpu.pci_bus_id] for gpu in gpus]
    return Chosen(SimulatedBench(simulated, tick_s=options.tick_s), devices, gpus, "simulated", notes, bool(notes))


BURN_IN = "compute-burn-in"
LEAST_S, MOST_S = 600, 48 * 3600
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
# A round is short enough for ten minutes to have four, and long enough to heat up; a power cut costs one at most.
ROUND_S, LONG_ROUND_S, MOST_ROUNDS_WANTED = 150.0, 600.0, 24
SIMULATED_TICK_S = 3.0
READINGS = 1200  # of a GPU in a whole run
ROUNDS = (
    "each round rests, computes cold, loads memory and matrices, computes hot, then with pauses that make the power "
    "step; digests are compared within a round, between rounds and between GPUs",
    "rates are medians over the rounds; of the readings some of each round are kept",
)
BELOW_SHUTDOWN_C = 2
SHUTDOWN, SLOWDOWN = "compute.burn-in-shutdown-limit", "compute.burn-in-slowdown-limit"
OWN, OF_MEMORY = "compute.burn-in-own-limit", "compute.burn-in-memory-limit"
# Codes of limits: the reading of Sample, what it is, and the source of the limit.
LIMITS = {
    OWN: ("temperature_c", "temperature of a GPU", "--max-temperature"),
    SHUTDOWN: ("temperature_c", "temperature of a GPU", f"NVML's shutdown temperature less {BELOW_SHUTDOWN_C}"),
    OF_MEMORY: ("memory_temperature_c", "temperature of the memory", "NVML's limit of that memory"),
    SLOWDOWN: ("margin_c", "margin of a GPU to its slowdown", "NVML's T.Limit of that GPU"),
}
Limits = dict[int, dict[str, float]]  # degrees by GPU index and code


class Reached(NamedTuple):
    """A limit that the device at this place reached. values: of the code."""

    place: int
    code: str
    values: dict[str, Any]


class BurnInOptions(msgspec.Struct, frozen=True, kw_only=True):
    """seconds: of the run. state: the file of its rounds. max_temperature_c: None is the limit of each GPU."""

    seconds: float
    state: Path
    options: ComputeOptions = ComputeOptions()
    max_temperature_c: float | None = None


def duration(text: str) -> int:
    """Return the seconds of ``10m``, ``36h`` or ``1h30m``. Raises ValueError, with what is accepted."""
    parts = re.findall(r"([0-9]{1,6})([smhd])", text)
    if not parts or "".join(map("".join, parts)) != text:
        raise ValueError(f"{text!r} is not a duration. Write 10m, 12h or 1h30m")
    seconds = sum(int(count) * UNITS[unit] for count, unit in parts)
    if not LEAST_S <= seconds <= MOST_S:
        raise ValueError(f"{text} is outside 10m to 48h")
    return seconds


def rounds_of(seconds: float) -> int:
    """Return the number of rounds, of equal length, of a run."""
    return max(2, round(seconds / min(LONG_ROUND_S, max(ROUND_S, seconds / MOST_ROUNDS_WANTED))))


def span(seconds: float) -> str:
    """Return ``47 h 50 min``, ``12 min`` or ``40 s``."""
    minutes = int(seconds // 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{max(0, round(seconds))} s"


def limits(gpus: Sequence[Gpu], opened: Sequence[Opened | None], limit_c: float | None) -> Limits:
    """Return the limits. opened: the same GPUs, or CPU processes. limit_c: the temperature that the user gave.

    GPUs that report no temperature to stop at report the margin to their slowdown: Ada and newer. Raises Unmeasurable
    if no limit of a GPU is known: hours of load would have no end.
    """
    found: Limits = {}
    for gpu, one in zip(gpus, opened, strict=bool(gpus)):
        own = found[gpu.index] = {}
        if limit_c is not None:
            own[OWN] = limit_c
        elif gpu.health.temperature_shutdown_c:
            own[SHUTDOWN] = gpu.health.temperature_shutdown_c - BELOW_SHUTDOWN_C
        elif gpu.health.temperature_margin_c is not None:
            own[SLOWDOWN] = 0.0
        if own and one is not None and one.memory_limit_c is not None:
            own[OF_MEMORY] = one.memory_limit_c
    if unknown := tuple(index for index, own in found.items() if not own):
        seen = "limit of temperature unknown"
        raise Unmeasurable(Subject(check=BURN_IN).unknown("compute.no-temperature-limit", seen, gpus=unknown))
    return found


def words(limits: Limits) -> tuple[str, ...]:
    """Return the limits of a run as text, each with its source."""
    degrees = {code: sorted({own[code] for own in limits.values() if code in own}) for code in LIMITS}
    found = (
        f"{what}: {', '.join(f'{limit:g} C' for limit in degrees[code])} (source: {source})"
        for code, (_, what, source) in LIMITS.items()
        if degrees[code]
    )
    return (*found, f"errors: any of {', '.join(FATAL)} (source: NVML's counters, while gpucheck computes)")


def reached(
    place: int, limits: Mapping[str, float], samples: Sequence[Sample], errors: Mapping[str, int]
) -> Reached | None:
    """Return which limit these readings and counters reached."""
    if rose := tuple(f"{errors[name]} {name}" for name in FATAL if errors.get(name)):
        return Reached(place, "compute.burn-in-errors", {"errors": rose})
    for code, limit in limits.items():
        found = [degrees for sample in samples if (degrees := getattr(sample, LIMITS[code][0])) is not None]
        if code == SLOWDOWN and min(found, default=1) <= limit:
            return Reached(place, code, {"margin_c": min(found)})
        if code != SLOWDOWN and max(found, default=-1) >= limit:
            return Reached(place, code, {"reached_c": max(found), "limit_c": limit, "below_c": BELOW_SHUTDOWN_C})
    return None


class Progress(NamedTuple):
    """How far a run came: rounds that are done, and the limit that ended it."""

    done: int = 0
    stopped: Reached | None = None

    def ended(self, run: ComputeRun, planned: float) -> Literal["complete", "interrupted", "limit", "no-device"]:
        """Return why a run of so many seconds ended; interrupted, as long as there is more to do."""
        if self.stopped is not None:
            return "limit"
        if not run.able:
            return "no-device"
        rounds = rounds_of(planned)
        return "complete" if self.done >= rounds or run.seconds > planned * (1 - 0.5 / rounds) else "interrupted"


def rounds(run: ComputeRun, planned: float, limits: Limits) -> Iterator[Progress]:
    """Run round after round for so many seconds, and yield after each, also after one that a limit ended."""
    at, count = Progress(), rounds_of(planned)
    steps = run.steps(planned / count)
    while at.ended(run, planned) == "interrupted":
        for number, step in enumerate(steps, at.done * len(steps)):
            text = f"round {at.done + 1} of {count}, {step.label}, {span(planned - run.seconds)} left"
            run.watch.step(text, number, count * len(steps))
            asked = [(place, run.collected[place]) for place in run.able]
            run.run(step)
            found = (reached(place, limits.get(one.made.index, {}), one.last, one.errors) for place, one in asked)
            at = at._replace(stopped=next(filter(None, found), None))
            if at.stopped is not None:
                break
        else:
            at = Progress(at.done + 1)
            run.repeat_low(at.done * len(steps), count * len(steps))
        yield at


def burn_in(
    source: Source,
    options: BurnInOptions,
    doubtful: Doubtful,
    evaluate: Callable[[ComputeReport], ComputeReport],
    watch: Watch,
    store: Callable[[ComputeReport], None],
) -> ComputeReport:
    """Run it. Raises Unmeasurable, OSError if the file is not writable.

    doubtful, evaluate: as those of measure. store: writes the report of the rounds so far to the file, before the first
    and after each.
    """
    clock, planned = Clock(), options.seconds
    chosen = chosen_for(source, replace(options.options, tick_s=SIMULATED_TICK_S))
    with closing(chosen.bench):
        run = ComputeRun(chosen.bench, chosen.devices, doubtful, watch, small=not chosen.gpus, most=READINGS)
        limited = limits(chosen.gpus, [one.opened for one in run.collected], options.max_temperature_c)
        at, not_written, shown = Progress(), "", set[tuple[object, ...]]()

        def report() -> ComputeReport:
            ending = _ending(run, at, planned, words(limited) if chosen.gpus else ())
            made = BurnIn(
                planned_seconds=planned,
                seconds=round(run.seconds, 1),
                planned_rounds=rounds_of(planned),
                rounds=at.done,
                ended=at.ended(run, planned),
                reason=ending.why if at.stopped else "",
                limits=ending.evidence[1:],
                hottest={str(one.made.index): one.hottest for one in run.collected if one.hottest is not None},
                state=str(options.state),
            )
            lost = (f"{options.state}: not written: {not_written}",) if not_written else ()
            whole = report_of(source, chosen, run, clock, (ending,), lost)
            return evaluate(replace(whole, level="burn-in", burn_in=made, method=(*METHOD, *ROUNDS)))

        if run.able:
            store(report())  # what cannot be kept is known before hours of load
        cut = Cut()
        with cut:
            for at in rounds(run, planned, limited):  # noqa: B007 - the report has it
                made = report()
                for one in made.findings:
                    key = (one.check, one.subject, one.cause, one.verdict)
                    if one.verdict in (Verdict.WARN, Verdict.FAIL) and key not in shown:
                        shown.add(key)
                        after = f"after {span(run.seconds)}"
                        watch.note(f"{after}: {one.verdict.value} {one.check} {one.subject}: {one.why}")
                try:
                    store(made)
                    not_written = ""
                except OSError as error:  # a disk that is full does not end the run: what it proves is still reported
                    if not not_written:
                        watch.note(f"{options.state}: not written: {error.strerror}. The run goes on.")
                    not_written = error.strerror or str(error)
        return cut.report(report, watch.keep)  # and the bench is closed, which takes a while


def _ending(run: ComputeRun, at: Progress, planned: float, limits: Sequence[str]) -> Finding:
    """Return the finding about the run as a whole: what was planned and what is proven."""
    evidence = (f"{at.done} of {rounds_of(planned)} rounds", *limits)
    subject, done = Subject(check=BURN_IN, evidence=evidence), span(run.seconds)
    seen, wanted = f"ended after {done} of {span(planned)}", f"{span(planned)} of load"
    if at.stopped is not None:
        place, code, values = at.stopped
        subject = replace(subject, name=run.collected[place].made.subject)
        return (subject.fails if code == SHUTDOWN else subject.warns)(code, seen, wanted, **values)
    ended = at.ended(run, planned)
    if ended == "complete":
        return subject.passes(f"{done} of cold and hot load, {at.done} rounds")
    code = "compute.burn-in-interrupted" if ended == "interrupted" else "compute.burn-in-no-gpu"
    return subject.unknown(code, seen, wanted)
