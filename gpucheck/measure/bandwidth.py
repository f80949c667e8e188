"""Measure the links of a host: choose devices and engine, open the child, plan, run, report observations."""

import os
import secrets
from collections.abc import Callable
from typing import Literal

import msgspec

from gpucheck.host.nvml.supervisor import query_child
from gpucheck.measure.planning.plan import (
    CopyPaths,
    Depth,
    MeasurementRequest,
    Path,
    buffer_bytes,
    paths,
    plan,
    ports_to_host,
)
from gpucheck.measure.planning.selection import COPIES, Unmeasurable, admit, choose, device, room
from gpucheck.measure.reporting import report
from gpucheck.measure.reporting.observed import observations
from gpucheck.measure.reporting.surroundings import NEEDS, Scene
from gpucheck.measure.running.runner import Doubts, Results, Supervised, run
from gpucheck.measure.running.sampler import Sampler
from gpucheck.measure.values import CopyStep, Opened, Setup, Watch
from gpucheck.model import NvmlFailure, NvmlReading
from gpucheck.model.answer import Clock
from gpucheck.model.bandwidth import BandwidthReport
from gpucheck.model.copies import Copied, Failure
from gpucheck.model.device import Device
from gpucheck.model.diagnosis.observations import Observations
from gpucheck.model.facts import Facts, Source
from gpucheck.printable import counted
from gpucheck.processes.signals import Cut
from gpucheck.topology import of

EngineName = Literal["driver", "cpu"]
# Minimum time limit of a step, without the time that it waits for a processor (processes.contention). A simulated copy
# takes no time of its own: its step is a fraction of a second of CPU time.
PATIENCE_S, SIMULATED_PATIENCE_S = 20.0, 5.0
KIND = {
    "driver": "GPU copies by the CUDA driver API",
    "cpu": "CPU processes through shared memory: no GPU was measured",
}
SIMULATED = "SIMULATED copies by the CUDA driver API on a simulated driver library: no GPU was measured"
READING_S = 20.0
CHANNELS = "/dev/nvidia-caps-imex-channels"
CPUS, CPU_BYTES, CPU_DEVICES = "cpu,cpu", 16 << 20, 2


class BandwidthOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the command line. devices: cpu,cpu are two CPU processes."""

    devices: str | None = None
    depth: Depth = "default"
    sizes: tuple[int, ...] = ()
    tensor_bytes: int | None = None
    contended: bool = False


# The machine, the host as it was read (None for CPU processes), and a note on other processes that use its GPUs.
Place = tuple[CopyPaths, Scene | None, str]


def measure(
    source: Source,
    options: BandwidthOptions,
    watch: Watch = Watch(),  # noqa: B008 - immutable
    doubts: Callable[[Observations], Doubts] = lambda _: ((), ()),
    evaluate: Callable[[BandwidthReport, Copied], BandwidthReport] = lambda report, _: report,
) -> BandwidthReport:
    """Measure the links of this host. evaluate: adds the findings.

    doubts: pairs with low values, to measure again alone. Raises Unmeasurable if there is nothing to measure, or not
    with these options.
    """
    clock = Clock()
    engine: EngineName = "cpu" if options.devices == CPUS else "driver"
    facts = source.read("system", "simulation", f"folder:{CHANNELS}")
    simulation = facts.simulation if engine != "cpu" else None
    simulated = simulation is not None
    patience = SIMULATED_PATIENCE_S if simulated else PATIENCE_S
    machine, scene, busy = _cpu_place() if engine == "cpu" else _gpu_place(source, options)
    sizes = (*options.sizes, options.tensor_bytes or 0)
    wanted = buffer_bytes(machine, sizes) if engine != "cpu" else max(CPU_BYTES, sizes[-1])
    notes: tuple[str, ...] = (busy,) if busy else ()
    if scene is not None:
        wanted, note = room(scene.gpus, wanted)
        notes += (note,) if note else ()
    setup = Setup(engine=engine, devices=machine.devices, buffer_bytes=wanted, parent_pid=os.getpid())
    results = Results(devices=machine.devices)
    planned_s, after = 0.0, None
    cut = Cut(lambda: results.device_s > 0)
    with cut:
        with Supervised(setup, patience) as child:
            notes += tuple(f"environment variable removed for the measurement: {pair}" for pair in child.removed)
            opened = child.open()
            if isinstance(opened, Failure):
                results.failures.append(opened)
            else:
                results.opened = opened
                request = MeasurementRequest(
                    depth=options.depth,
                    sizes=options.sizes,
                    tensor_bytes=options.tensor_bytes,
                    seed=1 if simulated else secrets.randbits(63),
                    methods=opened.methods,
                    buffer_bytes=opened.buffer_bytes,
                    peer_access=opened.peer_access,
                    numa_nodes=opened.numa_nodes,
                    fabric=_shares(scene, opened),
                )
                steps = plan(machine, request)
                planned_s = sum(step.planned_s for step in steps)
                watch.note(f"gpucheck: {_planned(engine, machine, steps, planned_s)}")

                def low(so_far: Results) -> Doubts:
                    return doubts(observations(so_far, machine, scene)) if scene is not None else ((), ())

                bus_ids = dict.fromkeys(gpu.pci_bus_id for gpu in scene.gpus) if scene is not None else ()
                with Sampler((*bus_ids,), simulated=simulated) as sampler:
                    run(steps, child.run_step, results, machine=machine, request=request, low=low, watch=watch)
                results.unread = sampler.rejected
                if scene is not None:
                    scene = msgspec.structs.replace(scene, during=tuple(sampler.readings))
                notes += opened.notes
        if scene is not None and isinstance(after := query_child(max(patience, READING_S)), NvmlReading):
            scene = msgspec.structs.replace(scene, after=after)

    def evaluated() -> BandwidthReport:
        results.interrupted = cut.signal is not None
        seen = observations(results, machine, scene) if scene is not None else Observations()
        loaded, channels = bool(seen.measured.under_load), bool(facts.folders[CHANNELS])
        copied = report.copied(results, gpus=scene is not None, loaded=loaded, channels=channels, after=after)
        made = BandwidthReport(
            **clock.answer(facts, ()) | {"simulated": simulated, "simulation": simulation},
            engine=engine,
            kind=SIMULATED if simulated else KIND[engine],
            depth=options.depth,
            versions=results.opened.versions if results.opened else {},
            planned_s=round(planned_s, 3),
            device_s=round(results.device_s, 3),
            rounds=results.rounds,
            devices=report.devices(results, machine),
            method=report.method(results),
            notes=notes,
            contended=bool(busy),
            pairs=report.measured_pairs(results, machine),
            matrices=report.matrices(results, machine),
            peer_access=report.peer_access(results, scene),
            host_device=report.host_links(results, machine),
            local_gb_s=report.local(results, machine),
            sizes=report.sizes(results, machine),
            tensor=report.tensor(results) if options.tensor_bytes is not None else None,
            integrity=report.integrity(results),
            observations=seen,
        )
        return evaluate(made, copied)

    return cut.report(evaluated, watch.keep)


def _cpu_place() -> Place:
    devices = tuple(Device(index=i, name="CPU process") for i in range(CPU_DEVICES))
    between = {(a, b): Path(cls="CPU", resources=()) for a in range(CPU_DEVICES) for b in range(CPU_DEVICES) if a != b}
    machine = CopyPaths(devices=devices, between=between, to_host=((),) * CPU_DEVICES)
    return machine, None, ""


def _gpu_place(source: Source, options: BandwidthOptions) -> Place:
    facts, topology = source.read(*NEEDS), of(source)
    reading, pci = facts.nvml, facts.pci
    if isinstance(reading, NvmlFailure) or topology is None or not reading.gpus:
        raise _no_gpus(facts)
    gpus = choose(reading.gpus, options.devices)
    busy = admit(gpus, contended=options.contended)
    devices, between = tuple(device(gpu) for gpu in gpus), paths(gpus, pci, topology)
    machine = CopyPaths(devices=devices, between=between, to_host=ports_to_host(gpus, pci))
    return machine, Scene(gpus=gpus, before=reading, facts=facts, topology=topology), busy


def _shares(scene: Scene | None, opened: Opened) -> tuple[int, ...]:
    fabrics = (gpu.fabric for gpu in scene.gpus) if scene is not None else ()
    ready = (fabric is not None and fabric.state == "completed" and fabric.spans_hosts for fabric in fabrics)
    offered = zip(ready, opened.fabric_handles, strict=False)
    return tuple(place for place, both in enumerate(offered) if all(both))


def _no_gpus(facts: Facts) -> Unmeasurable:
    reading = facts.nvml
    shown = counted(sum(d.is_nvidia_gpu for d in facts.pci), "NVIDIA GPU")
    seen = f"copies unknown: no GPU to measure, {shown} on the PCI bus"
    if not isinstance(reading, NvmlFailure):
        return Unmeasurable(COPIES.unknown("measure.nvml-lists-no-gpu", seen, because_of="inventory"))
    found = COPIES.unknown("measure.nvml-failed", seen, because_of="driver", call=reading.call, error=reading.name)
    return Unmeasurable(found)


def _planned(engine: str, machine: CopyPaths, steps: tuple[CopyStep, ...], seconds: float) -> str:
    one_way = sum(step.purpose == "one direction" and step.flows[0].method == "ce-write" for step in steps)
    rounds = f", one direction in {one_way} rounds" if one_way else ""
    devices = f"{len(machine.devices)} devices, {len(steps)} steps{rounds}"
    return f"{devices}: about {seconds:.1f} s of device time (engine {engine})"
