"""Compute on the GPUs of a host and return what was measured: choose devices and engine, run the plan."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from importlib.util import find_spec
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from gpucheck.compute.engines.simulated import TICK_S, ComputeGpu, SimulatedBench, read
from gpucheck.compute.running.run import Doubtful, OnStep, Workers, run
from gpucheck.compute.values import CUBLAS, TORCH, Answer, Bench, ComputeStep, Failure, Opened
from gpucheck.host.simulated import machine_directory
from gpucheck.knowledge.codes import Subject
from gpucheck.measure.planning.selection import Unmeasurable, admit, choose, device
from gpucheck.model import Finding, Gpu, Verdict, worst
from gpucheck.model.compute import ComputeDevice, ComputeReport
from gpucheck.model.device import Device
from gpucheck.model.facts import Source
from gpucheck.processes.signals import undisturbed

NAME = "compute"
# Of Health, what explains a clock or a rate.
SETTINGS = (
    "power_limit_w", "power_default_w", "application_clock_mhz", "default_application_clock_mhz", "licensed",
    "gsp_firmware",
)  # fmt: skip
Answered = Callable[[ComputeStep, Mapping[int, Answer | Failure]], None]
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
    """A bench and its devices. gpus: by NVML, in the same order; empty for CPU processes."""

    bench: Bench
    devices: tuple[Device, ...]
    gpus: tuple[Gpu, ...]
    engine: str
    notes: tuple[str, ...] = ()


class Heard(NamedTuple):
    """A bench whose answers are reported as they arise, by the place of the device."""

    bench: Bench
    answered: Answered

    def open(self) -> Sequence[Opened | Failure]:
        return self.bench.open()

    def run(self, step: ComputeStep, places: Sequence[int]) -> Mapping[int, Answer | Failure]:
        answers = self.bench.run(step, places)
        self.answered(step, answers)
        return answers

    def close(self) -> None:
        self.bench.close()


def measure(
    source: Source,
    options: ComputeOptions,
    doubtful: Doubtful,
    on_step: OnStep = lambda *_: None,
    answered: Answered = lambda *_: None,
    keep: Callable[[ComputeReport], None] | None = None,
) -> ComputeReport:
    """Run everything. Raises Unmeasurable if there is nothing to compute on, or not as asked.

    The findings list only what could not be run. doubtful: what is measured again alone.
    keep: gets the report as soon as it is made: of what was computed when a signal ends the run, too.
    """
    started, clock = datetime.now(timezone.utc), time.monotonic()
    chosen = chosen_for(source, options)
    try:
        ran = run(
            Heard(chosen.bench, answered),
            chosen.devices,
            small=not chosen.gpus,
            doubtful=doubtful,
            on_step=on_step,
            keep=keep is not None,
        )
    finally:
        chosen.bench.close()
    with undisturbed():
        devices = with_settings(ran.devices, chosen.gpus)
        cut = Subject(check=NAME).unknown("compute.run-interrupted", "interrupted: the remaining steps unknown")
        findings = (cut,) if ran.stopped is not None else ()
        made = replace(
            report_of(source, chosen, devices, findings),
            versions=ran.versions,
            started=started.isoformat(timespec="seconds"),
            seconds=round(time.monotonic() - clock, 3),
            load_seconds=ran.load_seconds,
            notes=(*chosen.notes, *ran.notes),
        )
        if keep is not None:
            keep(made)
    if ran.stopped is not None:
        raise ran.stopped
    return made


def report_of(
    source: Source, chosen: Chosen, devices: tuple[ComputeDevice, ...], findings: tuple[Finding, ...]
) -> ComputeReport:
    """Return the report without times and versions, which differ by level."""
    counts = Counter(finding.verdict for finding in findings)
    facts = source.read("system", "simulation")
    return ComputeReport(
        host=facts.system.hostname,
        simulated=facts.simulation is not None,
        simulation=facts.simulation,
        engine=chosen.engine,
        level="standard",
        versions={},
        started="",
        seconds=0.0,
        load_seconds=0.0,
        gpus=devices,
        method=METHOD,
        verdict=worst(counts),
        findings=findings,
        counts={verdict.value: counts[verdict] for verdict in Verdict},
    )


def chosen_for(source: Source, options: ComputeOptions) -> Chosen:
    """Choose devices and engine. Raises Unmeasurable."""
    cpus = _cpus(options)
    return _cpu(cpus) if cpus else _gpus(source, options)


def _cpus(options: ComputeOptions) -> int:
    """Return the number of CPU processes, 0 for GPUs. Raises Unmeasurable for CPUs and GPUs together."""
    names = [name.strip() for name in options.devices.split(",")] if options.devices is not None else []
    if "cpu" not in names:
        return 0
    if set(names) != {"cpu"}:
        seen = f"--devices {options.devices}"
        raise Unmeasurable(Subject(check=NAME).unknown("compute.devices-mixed", seen), usage=True)
    return len(names)


def _cpu(count: int) -> Chosen:
    devices = tuple(Device(index=number, name="CPU process") for number in range(count))
    return Chosen(Workers(devices, small=True), devices, (), "torch on the CPU")


def _gpus(source: Source, options: ComputeOptions) -> Chosen:
    listed = source.read("nvml").gpus
    if not listed:
        raise Unmeasurable(Subject(check=NAME).unknown("compute.no-usable-gpu", "no usable GPU on this host"))
    gpus = choose(listed, options.devices).gpus
    directory = machine_directory()
    divided = {gpu.index: gpu.mig_uuids[0] for gpu in gpus if gpu.health.mig and gpu.mig_uuids and not directory}
    notes = admit([gpu for gpu in gpus if gpu.index not in divided], contended=options.contended)
    devices = tuple(replace(device(gpu), uuid=divided.get(gpu.index, gpu.uuid)) for gpu in gpus)
    if divided:
        notes = (*notes, f"MIG: on GPU {', '.join(map(str, divided))} only the first instance computes")
    if directory is None:
        engine = CUBLAS if find_spec(TORCH) is None else TORCH
        return Chosen(Workers(devices, engine=engine), devices, gpus, engine, notes)
    try:
        known = {gpu.bus_id: gpu for gpu in read(directory)}
    except ValueError as error:
        raise Unmeasurable(Subject(check=NAME).unknown("compute.simulation-unreadable", str(error))) from error
    simulated: list[ComputeGpu] = [known[gpu.pci_bus_id] for gpu in gpus]
    return Chosen(SimulatedBench(simulated, tick_s=options.tick_s), devices, gpus, "simulated", notes)


def with_settings(devices: tuple[ComputeDevice, ...], gpus: tuple[Gpu, ...]) -> tuple[ComputeDevice, ...]:
    """Add what NVML reports about limits, license and firmware, which explains a clock or a rate."""
    if not gpus:
        return devices
    return tuple(
        replace(device, **{name: getattr(gpu.health, name) for name in SETTINGS})
        for device, gpu in zip(devices, gpus, strict=True)
    )
