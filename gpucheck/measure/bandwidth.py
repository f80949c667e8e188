"""One measuring run of a host: choose devices and engine, open the child, plan, run, judge, report."""

import importlib.util
import os
import secrets
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Literal, NamedTuple

import msgspec

from gpucheck.host.child import ask_child, child_command
from gpucheck.host.simulated import machine_directory
from gpucheck.measure import report
from gpucheck.measure.facts import Facts, iommu_translates, redirecting, refused
from gpucheck.measure.judge import judge, repeat
from gpucheck.measure.paths import Path, paths, ports_to_host
from gpucheck.measure.plan import Depth, Machine, Wish, buffer_bytes, plan
from gpucheck.measure.results import Results
from gpucheck.measure.runner import run
from gpucheck.measure.sampler import Sampler
from gpucheck.measure.selection import Unmeasurable, admit, choose, device, room
from gpucheck.measure.simulated_machine import describe, read_faults
from gpucheck.measure.subjects import count_text
from gpucheck.measure.supervisor import Supervised
from gpucheck.measure.values import Device, Failure, Setup, Simulated, Step
from gpucheck.model import Finding, Host, NvmlFailure, NvmlReading, Verdict, named, worst
from gpucheck.model.bandwidth import BandwidthReport
from gpucheck.topology import build, identify

EngineName = Literal["torch", "cupy", "cpu", "simulated"]
PATIENCE_S: dict[EngineName, float] = {"torch": 20.0, "cupy": 20.0, "cpu": 20.0, "simulated": 3.0}
KIND = {
    "torch": "GPU copies by torch (CUDA)",
    "cupy": "GPU copies by CuPy (CUDA)",
    "cpu": "CPU processes through shared memory: no GPU was measured",
    "simulated": "SIMULATED copies: no GPU was measured",
}
BUSY = "GPUCHECK_SIMULATOR_LOAD=1"
SIMULATED_READING_S = 20.0
CPU_BYTES, CPU_DEVICES = 16 << 20, 2


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for, in the words of the command line."""

    devices: str | None = None
    engine: Literal["auto", "torch", "cupy", "cpu", "simulated"] = "auto"
    depth: Depth = "default"
    sizes: tuple[int, ...] = ()
    tensor_bytes: int | None = None
    contended: bool = False
    timeout_s: float | None = None


class Planned(NamedTuple):
    """What is about to happen, before it does. rounds: of one direction."""

    engine: str
    devices: int
    steps: int
    rounds: int
    seconds: float


class Watch(NamedTuple):
    """Who is told how far the run is."""

    planned: Callable[[Planned], None] = lambda planned: None  # noqa: ARG005 - nobody watches
    step: Callable[[Step, int], None] = lambda step, number: None  # noqa: ARG005 - nobody watches


class _Place(NamedTuple):
    """The machine, what is known about it, and what its devices are."""

    machine: Machine
    facts: Facts
    local: bool
    notes: tuple[str, ...]
    simulated: Simulated | None = None


def measure(host: Host, options: Options, watch: Watch = Watch()) -> BandwidthReport:  # noqa: B008 - immutable
    """Measure the links of this host. Raises Unmeasurable when there is nothing to measure, or not as asked."""
    started, clock = datetime.now(timezone.utc), time.monotonic()
    engine = choose_engine(host, options.engine)
    place = _cpu_place(options) if engine == "cpu" else _gpu_place(host, engine, options)
    wish = Wish(
        depth=options.depth,
        sizes=options.sizes,
        tensor_bytes=options.tensor_bytes,
        local=place.local and options.tensor_bytes is None,
        seed=secrets.randbits(63) if place.simulated is None else 1,
    )
    wanted = buffer_bytes(place.machine, wish) if engine != "cpu" else max(CPU_BYTES, options.tensor_bytes or 0)
    notes = place.notes
    if place.facts.before is not None:
        chosen = [g for g in place.facts.before.gpus if g.pci_bus_id in {d.bus_id for d in place.machine.devices}]
        wanted, note = room(chosen, wanted)
        notes += (note,) if note else ()
    setup = Setup(
        engine=engine,
        devices=place.machine.devices,
        buffer_bytes=wanted,
        parent_pid=os.getpid(),
        simulated=place.simulated,
    )
    results = Results(devices=place.machine.devices)
    planned_s, facts = 0.0, place.facts
    with Supervised(setup, options.timeout_s or PATIENCE_S[engine]) as child:
        notes += tuple(f"environment variable removed for the measurement: {pair}" for pair in child.removed)
        opened = child.open()
        if isinstance(opened, Failure):
            results.failures.append(opened)
        else:
            results.opened = opened
            wish = msgspec.structs.replace(wish, methods=opened.methods, buffer_bytes=opened.buffer_bytes)
            steps = plan(place.machine, wish)
            planned_s = sum(step.planned_s for step in steps)
            watch.planned(_planned(engine, place.machine, steps))
            low = (lambda r: repeat(r, place.machine)) if engine != "cpu" else (lambda _: [])
            with _sampler(engine, facts, options) as sampler:
                run(steps, child, results, machine=place.machine, wish=wish, low=low, progress=watch.step)
            during = sampler.readings()
            facts = msgspec.structs.replace(facts, during=during, after=during[-1] if during else None)
            notes += opened.notes
    findings = named(judge(results, place.machine, facts), facts.before.gpus if facts.before else ())
    if options.contended and any(note.startswith("contended") for note in notes):
        findings = tuple(_cannot_fail(finding) for finding in findings)
    return _report(
        host,
        options,
        engine,
        results,
        place.machine,
        findings,
        notes,
        planned_s,
        started.isoformat(timespec="seconds"),
        time.monotonic() - clock,
    )


def _sampler(engine: EngineName, facts: Facts, options: Options) -> Sampler:
    """NVML beside the copies. A simulated machine is told that it is busy, for nothing that copies shows it."""
    if engine == "cpu":
        return Sampler(None)
    patience_s = options.timeout_s or PATIENCE_S[engine]
    if engine != "simulated":
        return Sampler(lambda: ask_child(patience_s))
    if machine_directory() is None:
        return Sampler(None, facts.before)
    busy = ask_child(max(patience_s, SIMULATED_READING_S), ["env", BUSY, *child_command()])
    return Sampler(None, busy if isinstance(busy, NvmlReading) else None)


def choose_engine(host: Host, wanted: str) -> EngineName:
    """The engine of an ``auto``: simulated on a simulated machine, else torch, else CuPy. Raises Unmeasurable."""
    simulated = host.simulation() is not None
    if wanted == "simulated" and not simulated:
        raise Unmeasurable(
            "--engine simulated needs a simulated machine. Add --simulate PROFILE (gpucheck profiles lists them).",
            usage=True,
        )
    if wanted in ("torch", "cupy") and simulated:
        raise Unmeasurable(
            f"--engine {wanted} copies on real GPUs, and this machine's are simulated. Leave --engine away.", usage=True
        )
    if wanted != "auto":
        return wanted  # type: ignore[return-value]  # click allows no other words
    if simulated:
        return "simulated"
    names: tuple[EngineName, ...] = ("torch", "cupy")
    for name in names:
        if importlib.util.find_spec(name) is not None:
            return name
    raise Unmeasurable(
        "neither torch nor CuPy is installed, so nothing can copy between GPUs. python -m pip install torch numpy, or "
        "--engine cpu for the same method between CPU processes."
    )


def _cpu_place(options: Options) -> _Place:
    if options.devices is not None:
        raise Unmeasurable("--devices names GPUs, and --engine cpu copies between two CPU processes.", usage=True)
    devices = tuple(Device(index=i, name="CPU process") for i in range(CPU_DEVICES))
    between = {(a, b): Path(cls="CPU", resources=()) for a in range(CPU_DEVICES) for b in range(CPU_DEVICES) if a != b}
    machine = Machine(devices=devices, between=between, to_host=((),) * CPU_DEVICES)
    return _Place(machine, Facts(kind="cpu"), local=False, notes=())


def _gpu_place(host: Host, engine: EngineName, options: Options) -> _Place:
    reading = host.nvml()
    if isinstance(reading, NvmlFailure) or not reading.gpus:
        raise _no_gpus(host, reading)
    chosen = choose(reading.gpus, options.devices)
    notes = admit(chosen.gpus, contended=options.contended)
    pci, simulation = host.pci(), host.simulation()
    cpu = identify(host.read_text("/proc/cpuinfo"))
    topology = build(reading, pci, simulated=simulation is not None, cpu=cpu)
    machine = Machine(
        devices=tuple(device(gpu) for gpu in chosen.gpus),
        between=paths(chosen.gpus, pci, topology),
        to_host=ports_to_host(chosen.gpus, pci),
    )
    facts = Facts(
        virtual=host.system().virtual,
        refused=refused(chosen.gpus, reading),
        iommu_translates=iommu_translates(chosen.gpus, pci),
        redirecting=redirecting(pci),
        before=reading,
    )
    described = None
    if engine == "simulated":
        try:
            described = describe(reading, pci, chosen.gpus, read_faults(machine_directory()), cpu)
        except ValueError as error:
            raise Unmeasurable(str(error)) from error
    return _Place(machine, facts, chosen.local, notes, described)


def _no_gpus(host: Host, reading: NvmlReading | NvmlFailure) -> Unmeasurable:
    why = f"{reading.call} ended with {reading.name}" if isinstance(reading, NvmlFailure) else "NVML lists no GPU"
    shown = sum(d.is_nvidia_gpu for d in host.pci())
    fix = "gpucheck verify --only driver says why" if shown else "--engine cpu shows the method on CPU processes"
    return Unmeasurable(
        f"no GPU to measure: {why}, {count_text(shown, 'NVIDIA GPU')} on the PCI bus. Do this: {fix}; without a GPU "
        "try: gpucheck bandwidth --simulate hgx-h100-x8.",
        finding=Finding(
            check="p2p-copies",
            verdict=Verdict.UNKNOWN,
            subject="host",
            seen=f"copies unknown: no GPU to measure, {count_text(shown, 'NVIDIA GPU')} on the PCI bus",
            because_of="driver" if isinstance(reading, NvmlFailure) else "inventory",
            why=why,
            fix=fix,
        ),
    )


def _planned(engine: str, machine: Machine, steps: tuple[Step, ...]) -> Planned:
    one_way = sum(s.purpose == "one direction" and s.flows[0].method == "ce-write" for s in steps)
    return Planned(engine, len(machine.devices), len(steps), one_way, sum(step.planned_s for step in steps))


def _cannot_fail(finding: Finding) -> Finding:
    if finding.verdict is Verdict.FAIL and finding.check != "p2p-integrity":
        why = f"{finding.why} (or the process that used the GPU meanwhile)"
        return msgspec.structs.replace(finding, verdict=Verdict.WARN, why=why, confidence="possible")
    return finding


def _report(
    host: Host,
    options: Options,
    engine: EngineName,
    results: Results,
    machine: Machine,
    findings: tuple[Finding, ...],
    notes: tuple[str, ...],
    planned_s: float,
    started: str,
    seconds: float,
) -> BandwidthReport:
    counts = Counter(finding.verdict for finding in findings)
    return BandwidthReport(
        host=host.system().hostname,
        simulated=engine == "simulated",
        simulation=host.simulation() if engine == "simulated" else None,
        engine=engine,
        kind=KIND[engine],
        depth=options.depth,
        versions=results.opened.versions if results.opened else {},
        started=started,
        seconds=round(seconds, 3),
        planned_s=round(planned_s, 3),
        device_s=round(results.device_s, 3),
        rounds=results.rounds,
        devices=report.devices(machine),
        method=report.method(results),
        notes=notes,
        pairs=report.measured_pairs(results, machine),
        matrices=report.matrices(results, machine),
        host_device=report.host_links(results, machine),
        local_gb_s=report.local(results, machine),
        crowds=report.crowds(results),
        sizes=report.sizes(results, machine),
        tensor=report.tensor(results) if options.tensor_bytes is not None else None,
        integrity=report.integrity(results),
        verdict=worst(counts),
        findings=findings,
        counts={verdict.value: counts[verdict] for verdict in Verdict},
    )
