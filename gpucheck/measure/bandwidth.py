"""Measure the links of a host: choose devices and engine, open the child, plan, run, report observations."""

import os
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import NamedTuple

import msgspec

from gpucheck.host.nvml.supervisor import query_child
from gpucheck.measure.planning.plan import (
    CopyPaths,
    Depth,
    MeasurementRequest,
    buffer_bytes,
    paths,
    plan,
    ports_to_host,
)
from gpucheck.measure.planning.selection import COPIES, Unmeasurable, admit, choose, device, room
from gpucheck.measure.reporting import report
from gpucheck.measure.reporting.observed import count_text, observations
from gpucheck.measure.reporting.report import CHANNELS, gaps, lost
from gpucheck.measure.reporting.surroundings import NEEDS, Scene
from gpucheck.measure.running.runner import Doubts, Results, Supervised, again, run
from gpucheck.measure.running.sampler import Sampler
from gpucheck.measure.values import Answer, CopyStep, Failure, Flow, Opened, Setup
from gpucheck.model import NvmlFailure, NvmlReading, Verdict, named, worst
from gpucheck.model.bandwidth import BandwidthReport
from gpucheck.model.diagnosis.observations import Observations
from gpucheck.model.facts import Facts, Source
from gpucheck.processes.signals import TerminatedError, undisturbed
from gpucheck.topology import of

# Minimum time limit of a step, without the time that it waits for a processor (processes.contention). A simulated copy
# takes no time of its own: its step is a fraction of a second of CPU time.
PATIENCE_S, SIMULATED_PATIENCE_S = 20.0, 5.0
READING_S = 20.0
ENGINE, KIND = "driver", "GPU copies by the CUDA driver API"
SIMULATED = f"SIMULATED {KIND.removeprefix('GPU ')} on a simulated driver library: no GPU was measured"


class BandwidthOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the command line."""

    devices: str | None = None
    depth: Depth = "default"
    sizes: tuple[int, ...] = ()
    tensor_bytes: int | None = None
    contended: bool = False


class Planned(NamedTuple):
    """Summary of the planned run. rounds: of one direction."""

    engine: str
    devices: int
    steps: int
    rounds: int
    seconds: float


class Watch(NamedTuple):
    """Callbacks for progress. answered: for each step with a result.

    keep: gets the report as soon as it is made: of what was measured when a signal ends the run, too.
    """

    planned: Callable[[Planned], None] = lambda planned: None  # noqa: ARG005 - no progress shown
    step: Callable[[CopyStep, int], None] = lambda step, number: None  # noqa: ARG005 - no progress shown
    answered: Callable[[CopyStep, Answer], None] = lambda step, answer: None  # noqa: ARG005 - not kept
    keep: Callable[[BandwidthReport], None] | None = None


class _Heard(NamedTuple):
    """A child whose results are also passed to a callback."""

    child: Supervised
    answered: Callable[[CopyStep, Answer], None]

    def run_step(self, step: CopyStep) -> Answer | Failure:
        answer = self.child.run_step(step)
        if isinstance(answer, Answer):
            self.answered(step, answer)
        return answer


class _Place(NamedTuple):
    """The machine and the host as it was read. local: the copies stay inside one GPU."""

    machine: CopyPaths
    scene: Scene
    local: bool
    notes: tuple[str, ...]


def measure(
    source: Source,
    options: BandwidthOptions,
    watch: Watch = Watch(),  # noqa: B008 - immutable
    doubts: Callable[[Observations], Doubts] | None = None,
) -> BandwidthReport:
    """Measure the links of this host. Its findings list what could not be measured; they do not evaluate links.

    doubts: pairs with low values, to measure again alone. Raises Unmeasurable if there is nothing to measure, or not
    with these options.
    """
    started, clock = datetime.now(timezone.utc), time.monotonic()
    facts = source.read("system", "simulation", f"folder:{CHANNELS}")
    simulation = facts.simulation
    simulated = simulation is not None
    patience = SIMULATED_PATIENCE_S if simulated else PATIENCE_S
    place = _place(source, options)
    scene = place.scene
    request = MeasurementRequest(
        depth=options.depth,
        sizes=options.sizes,
        tensor_bytes=options.tensor_bytes,
        local=place.local and options.tensor_bytes is None,
        seed=1 if simulated else secrets.randbits(63),
    )
    wanted, note = room(scene.gpus, buffer_bytes(place.machine, request))
    notes = (*place.notes, *((note,) if note else ()))
    setup = Setup(devices=place.machine.devices, buffer_bytes=wanted, parent_pid=os.getpid())
    results = Results(devices=place.machine.devices)
    planned_s, after = 0.0, None
    with _kept(results, watch) as stopped:
        with Supervised(setup, patience) as child:
            notes += tuple(f"environment variable removed for the measurement: {pair}" for pair in child.removed)
            opened = child.open()
            if isinstance(opened, Failure):
                results.failures.append(opened)
            else:
                results.opened = opened
                request = msgspec.structs.replace(
                    request,
                    methods=opened.methods,
                    buffer_bytes=opened.buffer_bytes,
                    peer_access=opened.peer_access,
                    numa_nodes=opened.numa_nodes,
                    fabric=_shares(scene, opened),
                )
                steps = plan(place.machine, request)
                planned_s = sum(step.planned_s for step in steps)
                watch.planned(_planned(place.machine, steps))

                def low(so_far: Results) -> Iterable[tuple[Flow, ...]]:
                    if doubts is None:
                        return ()
                    return again(so_far, doubts(observations(so_far, place.machine, scene)))

                bus_ids = dict.fromkeys(gpu.pci_bus_id for gpu in scene.gpus)
                with Sampler((*bus_ids,), simulated=simulated) as sampler:
                    runner = _Heard(child, watch.answered)
                    run(steps, runner, results, machine=place.machine, request=request, low=low, progress=watch.step)
                results.unread = sampler.rejected
                scene = msgspec.structs.replace(scene, during=sampler.readings())
                notes += opened.notes
        if isinstance(after := query_child(max(patience, READING_S)), NvmlReading):
            scene = msgspec.structs.replace(scene, after=after)
    with undisturbed():
        seen = observations(results, place.machine, scene)
        loaded = bool(seen.measured.under_load) or results.interrupted
        findings = gaps(results, loaded=loaded, channels=bool(facts.folders[CHANNELS]))
        if after is not None and results.failures:
            findings = (*lost(results.devices, after), *findings)
        findings = named(findings, scene.gpus)
        counts = Counter(finding.verdict for finding in findings)
        made = BandwidthReport(
            host=facts.system.hostname,
            simulated=simulated,
            simulation=simulation,
            engine=ENGINE,
            kind=SIMULATED if simulated else KIND,
            depth=options.depth,
            versions=results.opened.versions if results.opened else {},
            started=started.isoformat(timespec="seconds"),
            seconds=round(time.monotonic() - clock, 3),
            planned_s=round(planned_s, 3),
            device_s=round(results.device_s, 3),
            rounds=results.rounds,
            devices=report.devices(results, place.machine),
            method=report.method(results),
            notes=notes,
            pairs=report.measured_pairs(results, place.machine),
            matrices=report.matrices(results, place.machine),
            peer_access=report.peer_access(results, scene),
            host_device=report.host_links(results, place.machine),
            local_gb_s=report.local(results, place.machine),
            crowds=report.crowds(results, place.machine),
            sizes=report.sizes(results, place.machine),
            tensor=report.tensor(results) if options.tensor_bytes is not None else None,
            integrity=report.integrity(results),
            observations=seen,
            verdict=worst(counts),
            findings=findings,
            counts={verdict.value: counts[verdict] for verdict in Verdict},
        )
        if watch.keep is not None:
            watch.keep(made)
    if stopped:
        raise stopped[0]
    return made


@contextmanager
def _kept(results: Results, watch: Watch) -> Iterator[list[BaseException]]:
    """Yield what ended the run: a signal, if something was measured and is wanted. Otherwise the signal goes on."""
    stopped: list[BaseException] = []
    try:
        yield stopped
    except (KeyboardInterrupt, TerminatedError) as signal:
        if watch.keep is None or not results.device_s:
            raise
        stopped.append(signal)
        results.interrupted = True


def _place(source: Source, options: BandwidthOptions) -> _Place:
    facts, topology = source.read(*NEEDS), of(source)
    reading, pci = facts.nvml, facts.pci
    if isinstance(reading, NvmlFailure) or topology is None or not reading.gpus:
        raise _no_gpus(facts)
    chosen = choose(reading.gpus, options.devices)
    notes = admit(chosen.gpus, contended=options.contended)
    machine = CopyPaths(
        devices=tuple(device(gpu) for gpu in chosen.gpus),
        between=paths(chosen.gpus, pci, topology),
        to_host=ports_to_host(chosen.gpus, pci),
    )
    return _Place(machine, Scene.of(facts, chosen.gpus, reading, topology), chosen.local, notes)


def _shares(scene: Scene, opened: Opened) -> tuple[int, ...]:
    """Return the GPUs by position that are in an NVLink domain of several hosts, and offer their memory there."""
    fabrics = (gpu.fabric for gpu in scene.gpus)
    ready = (fabric is not None and fabric.state == "completed" and fabric.spans_hosts for fabric in fabrics)
    offered = zip(ready, opened.fabric_handles, strict=False)
    return tuple(place for place, both in enumerate(offered) if all(both))


def _no_gpus(facts: Facts) -> Unmeasurable:
    reading = facts.nvml
    shown = count_text(sum(d.is_nvidia_gpu for d in facts.pci), "NVIDIA GPU")
    seen = f"copies unknown: no GPU to measure, {shown} on the PCI bus"
    if not isinstance(reading, NvmlFailure):
        return Unmeasurable(COPIES.unknown("measure.nvml-lists-no-gpu", seen, because_of="inventory"))
    found = COPIES.unknown("measure.nvml-failed", seen, because_of="driver", call=reading.call, error=reading.name)
    return Unmeasurable(found)


def _planned(machine: CopyPaths, steps: tuple[CopyStep, ...]) -> Planned:
    one_way = sum(s.purpose == "one direction" and s.flows[0].method == "ce-write" for s in steps)
    return Planned(ENGINE, len(machine.devices), len(steps), one_way, sum(step.planned_s for step in steps))
