"""A burn-in on a simulated machine without its directory, for tests."""

from typing import NamedTuple

from gpucheck.compute.burnin import BurnInLimits, Run, plan
from gpucheck.compute.engines.simulated import SimulatedBench
from gpucheck.compute.evaluation import doubtful, evaluate
from gpucheck.compute.measure import Chosen
from gpucheck.measure.values import Watch
from gpucheck.model import Finding
from gpucheck.model.compute import ComputeDevice
from gpucheck.model.device import Device


class Ran(NamedTuple):
    """The end of a burn-in: the run, its devices and findings, its notes."""

    run: Run
    devices: tuple[ComputeDevice, ...]
    findings: tuple[Finding, ...]
    notes: list[str]


def burnt(gpus, seconds: float, *, limit: float | None = None, memory: float | None = None) -> Ran:
    """Run to the end."""
    devices = tuple(Device(index=number, name=gpu.name, bus_id=gpu.bus_id) for number, gpu in enumerate(gpus))
    bench, places = SimulatedBench(gpus, tick_s=3.0), range(len(gpus))
    notes: list[str] = []
    limited = BurnInLimits(dict.fromkeys(places, limit), False, dict.fromkeys(places, memory) if memory else {})
    run = Run(Chosen(bench, devices, (), "simulated"), bench.open(), plan(seconds), limited, doubtful)
    watch = Watch(note=notes.append)
    for _ in run.rounds(watch):
        run.notice(evaluate([one.result() for one in run.collected]), watch)
    made = tuple(one.result() for one in run.collected)
    return Ran(run, made, evaluate(made), notes)
