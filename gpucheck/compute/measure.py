"""Compute on the GPUs of a host and return what was measured: choose devices and engine, run the plan."""

from collections.abc import Callable, Sequence
from contextlib import closing
from importlib.util import find_spec
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from gpucheck.compute.engines.simulated import TICK_S, ComputeGpu, SimulatedBench, read
from gpucheck.compute.running.run import ComputeRun, Doubtful, Workers
from gpucheck.compute.values import CUBLAS, MOST_ALONE, TORCH, Bench, not_tested, untested
from gpucheck.host.simulated import machine_directory
from gpucheck.knowledge.codes import Subject
from gpucheck.measure.planning.selection import Unmeasurable, admit, choose, device
from gpucheck.measure.values import Watch
from gpucheck.model import Finding, Gpu
from gpucheck.model.answer import Clock
from gpucheck.model.compute import ComputeReport
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
    watch: Watch = Watch(),  # noqa: B008 - immutable
    evaluate: Callable[[ComputeReport], ComputeReport] = lambda report: report,
) -> ComputeReport:
    """Run everything. Raises Unmeasurable if there is nothing to compute on, or not as asked.

    The findings list only what could not be run; evaluate adds the others. doubtful: what is measured again alone.
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
    gpus = choose(listed, options.devices).gpus
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
