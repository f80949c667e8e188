"""A burn-in on a simulated machine without its directory, for tests."""

from pathlib import Path
from typing import NamedTuple

from gpucheck.compute.burnin.measure import Session, Shown
from gpucheck.compute.burnin.plan import BurnInLimits, Identity, State, plan, read
from gpucheck.compute.engines.simulated import SimulatedBench
from gpucheck.compute.evaluation import evaluate
from gpucheck.model import Finding
from gpucheck.model.compute import ComputeDevice
from gpucheck.model.device import Device


class Ran(NamedTuple):
    """The end of a session: its state, its devices and findings, its notes."""

    state: State
    devices: tuple[ComputeDevice, ...]
    findings: tuple[Finding, ...]
    notes: list[str]


class Cut(SimulatedBench):
    """A bench that is interrupted at a step."""

    def __init__(self, gpus, at: int | None) -> None:
        super().__init__(gpus, tick_s=3.0)
        self.left = at

    def run(self, step, places):
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
        return super().run(step, places)


def begun(gpus, seconds: float) -> State:
    ids = tuple(gpu.bus_id for gpu in gpus)
    identity = Identity(host="host", gpucheck="1", driver="1", gpus=ids, engine="simulated", versions={})
    return State(identity=identity, plan=plan(seconds), started="2026-11-23")


def session(
    gpus, path: Path, seconds: float, *, cut: int | None = None, limit: float | None = None, memory: float | None = None
) -> Ran:
    """Run, or continue, until the end or until step number cut."""
    state = read(path) or begun(gpus, seconds)
    devices = [Device(index=number, name=gpu.name, bus_id=gpu.bus_id) for number, gpu in enumerate(gpus)]
    bench = Cut(gpus, cut)
    places = range(len(gpus))
    limited = BurnInLimits(dict.fromkeys(places, limit), False, dict.fromkeys(places, memory) if memory else {})
    made = Session(bench, devices, bench.open(), state, path, limited)
    notes: list[str] = []
    try:
        made.run(evaluate, Shown(step=lambda *_: None, note=notes.append))
    except KeyboardInterrupt:
        notes.append("cut")
    return Ran(state, made.now(), evaluate(made.now()), notes)
