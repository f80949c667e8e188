"""Run the plan on a bench and collect what each device measured."""

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from statistics import median
from typing import Any, TypeAlias

from msgspec.structs import asdict, replace

from gpucheck.compute.engines.simulated import SimulatedBench
from gpucheck.compute.values import ALONE_S, MOST_ALONE, Answer, ComputeStep, Failure, Kind, Opened, Setup, steps
from gpucheck.knowledge.compute import ceiling_tflops, memory_ceiling_gb_s, operations_per_clock
from gpucheck.measure.values import Watch, spread
from gpucheck.model.compute import TORCH, ComputeDevice, Low, MatrixRate, MemoryRates, Rate, Repeats, Sample
from gpucheck.model.device import Device
from gpucheck.processes.environment import python_module
from gpucheck.processes.worker import Lost, Worker, workplace

Bench: TypeAlias = "Workers | SimulatedBench"
# Which rates look too low, the largest loss first.
Doubtful = Callable[[Sequence[ComputeDevice]], Sequence[Low]]
RATE_PLACES = 1


class Collected:
    """What one device did so far. Rates that were measured several times are medians.

    last: readings of the last step. most: readings that are kept of a run, evenly over its time; 0 keeps all.
    """

    def __init__(self, device: Device, first: Opened | Failure, most: int = 0) -> None:
        self.opened = first if isinstance(first, Opened) else None
        self.most, self.every, self.seen = most, 1, 0
        self.hottest: float | None = None
        self.last: tuple[Sample, ...] = ()
        self.traces: list[Sample] = []
        self.errors: dict[str, int] = {}
        self.digests: dict[str, Counter[str]] = {}
        self.values: Counter[str] = Counter()
        self.rates: dict[tuple[Kind, str], list[Rate]] = {}
        self.alone: dict[tuple[Kind, str], Rate] = {}
        self.made = ComputeDevice(**asdict(device))
        if isinstance(first, Failure):
            self.made = replace(self.made, failed=first.kind, failure=first.detail, capability=first.capability)
            return
        self.made = replace(
            self.made,
            gemm={type_: MatrixRate(note=why) for type_, why in first.rejected.items()},
            capability=first.capability,
            multiprocessors=first.multiprocessors,
            memory_bus_bits=first.memory_bus_bits,
            memory_clock_mhz=first.memory_clock_mhz,
        )

    def add(self, step: ComputeStep, answer: Answer | Failure, at: float, *, alone: bool = False) -> None:
        """Add what a step measured. at: seconds since the start of the run."""
        if isinstance(answer, Failure):
            self.made = replace(self.made, failed=answer.kind, failure=f"{step.label}: {answer.detail}")
            return
        before = self.opened.errors if self.opened is not None else {}
        rising = {name: count - before.get(name, count) for name, count in answer.errors.items()}
        self.errors = {name: count for name, count in rising.items() if count > 0}
        self._read(tuple(replace(sample, at=round(at + sample.at, 3)) for sample in answer.samples))
        if step.kind == "results":
            self.digests.setdefault(step.what, Counter()).update(answer.digests)
            self.values[step.what] += answer.values * len(answer.digests)
        elif step.kind != "rest" and alone:
            self.alone[step.kind, step.what] = rate_of(answer, step.kind)
        elif step.kind != "rest":
            self.rates.setdefault((step.kind, step.what), []).append(rate_of(answer, step.kind))

    def _read(self, samples: tuple[Sample, ...]) -> None:
        self.last = samples
        degrees = (sample.temperature_c for sample in samples if sample.temperature_c is not None)
        self.hottest = max(filter(None, (self.hottest, *degrees)), default=None)
        for sample in samples:
            if self.seen % self.every == 0:
                self.traces.append(sample)
            self.seen += 1
            if self.most and len(self.traces) > self.most:
                self.traces, self.every = self.traces[::2], 2 * self.every

    def result(self) -> ComputeDevice:
        """Return the device with all that is known of it."""
        middle = {key: _middle(found) for key, found in self.rates.items()}
        memory = {what: rate for (kind, what), rate in middle.items() if kind == "memory"}
        bits, mhz = self.made.memory_bus_bits, self.made.memory_clock_mhz
        common = {what: found.most_common(1)[0] for what, found in self.digests.items()}
        return replace(
            self.made,
            traces=tuple(self.traces),
            errors=self.errors,
            gemm=self.made.gemm
            | {
                what: replace(matrix_rate(self.made, what, rate), alone=self.alone.get((kind, what)))
                for (kind, what), rate in middle.items()
                if kind == "matrix"
            },
            memory=MemoryRates(
                **{f"{way}_gb_s": rate.median for way, rate in memory.items()},
                ceiling_gb_s=round(memory_ceiling_gb_s(bits, mhz), RATE_PLACES) if memory and bits and mhz else None,
                mad_percent={way: rate.mad_percent for way, rate in memory.items()},
                samples={way: rate.samples for way, rate in memory.items()},
                alone={what: rate for (kind, what), rate in self.alone.items() if kind == "memory"},
            ),
            digests={what: digest for what, (digest, _) in common.items()},
            repeats={
                what: Repeats(
                    repeats=found.total(), differing=found.total() - common[what][1], values=self.values[what]
                )
                for what, found in self.digests.items()
            },
        )


def _middle(rates: Sequence[Rate]) -> Rate:
    clocks = [rate.clock_mhz for rate in rates if rate.clock_mhz is not None]
    return Rate(
        median=median(rate.median for rate in rates),
        mad_percent=median(rate.mad_percent for rate in rates),
        samples=sum(rate.samples for rate in rates),
        clock_mhz=median(clocks) if clocks else None,
    )


def matrix_rate(device: ComputeDevice, type_: str, rate: Rate) -> MatrixRate:
    """Return a rate in TFLOPS with the ceiling at its clock, without one if a number is missing."""
    per_clock = operations_per_clock(device.capability, device.name).get(type_)
    ceiling = None
    if per_clock is not None and rate.clock_mhz is not None and device.multiprocessors is not None:
        ceiling = ceiling_tflops(per_clock, device.multiprocessors, rate.clock_mhz)
    return MatrixRate(
        tflops=rate.median,
        of_ceiling=round(rate.median / ceiling, 4) if ceiling else None,
        ceiling_tflops=round(ceiling, RATE_PLACES) if ceiling else None,
        clock_mhz=rate.clock_mhz,
        mad_percent=rate.mad_percent,
        samples=rate.samples,
    )


class ComputeRun:
    """A run so far. collected: of the devices in their order. seconds: of load. low: how many rates looked low last.

    doubtful: what is measured again alone. small, most: as those of steps and Collected.
    """

    def __init__(
        self,
        bench: Bench,
        devices: Sequence[Device],
        doubtful: Doubtful,
        watch: Watch = Watch(),  # noqa: B008 - immutable
        *,
        small: bool = False,
        most: int = 0,
    ) -> None:
        self.bench, self.doubtful, self.watch, self.small = bench, doubtful, watch, small
        self.collected = [Collected(*one, most) for one in zip(devices, bench.open(), strict=True)]
        self.seconds, self.low = 0.0, 0

    @property
    def devices(self) -> tuple[ComputeDevice, ...]:
        return tuple(one.result() for one in self.collected)

    @property
    def opened(self) -> list[Opened]:
        """Return what opened."""
        return [one.opened for one in self.collected if one.opened]

    @property
    def able(self) -> list[int]:
        """Return the places of the devices that opened and have not failed."""
        return [place for place, one in enumerate(self.collected) if one.opened and one.made.failed is None]

    def steps(self, round_s: float | None = None) -> tuple[ComputeStep, ...]:
        """Return the steps for the types of all devices. round_s: as that of steps."""
        opened = self.opened
        types = tuple({type_ for one in opened for type_ in one.types})
        planned = steps(types, small=self.small, without=opened[0].without, round_s=round_s) if types else ()
        return tuple(planned)

    def run(self, step: ComputeStep, only: Sequence[int] | None = None) -> None:
        """Run one step on every device that can, at the same time. only: on these, which is a measurement alone."""
        places = [place for place in self.able if (only is None or place in only) and self._has(place, step)]
        answers: Mapping[int, Answer | Failure] = self.bench.run(step, places) if places else {}
        self.watch.answered(step, answers)
        for place, answer in answers.items():
            self.collected[place].add(step, answer, self.seconds, alone=only is not None)
        self.seconds += max((one.seconds for one in answers.values() if isinstance(one, Answer)), default=0.0)

    def standard(self) -> None:
        """Run every step on all devices, then what looks slow on its own."""
        planned = self.steps()
        for number, step in enumerate(planned):
            self.watch.step(step.label, number, len(planned))
            self.run(step)
        self.repeat_low(len(planned), len(planned))

    def repeat_low(self, number: int, count: int) -> None:
        """Measure alone what looks slow, each rate once in a run. number, count: of the step before."""
        low = self.doubtful(self.devices)
        new = [one for one in low if (one.kind, one.what) not in self.collected[one.place].alone]
        self.low = len(low)
        for at, one in enumerate(new[:MOST_ALONE], number):
            step = ComputeStep(kind=one.kind, what=one.what, seconds=ALONE_S)
            self.watch.step(step.label, at, max(count, number + len(new)))
            self.run(step, (one.place,))

    def _has(self, place: int, step: ComputeStep) -> bool:
        opened, type_ = self.collected[place].opened, step.what.rpartition("-")[2]
        return opened is not None and (step.kind in ("memory", "rest") or type_ in opened.types)


def rate_of(answer: Answer, kind: Kind) -> Rate:
    """Return the rate of a step, in TFLOPS or GB/s. Raises ValueError without samples."""
    unit = 1e12 if kind == "matrix" else 1e9
    found = spread(answer.rates)
    clocks = [sample.sm_clock_mhz for sample in answer.samples if sample.sm_clock_mhz is not None]
    return Rate(
        median=float(f"{found.median / unit:.6g}"),
        mad_percent=round(100 * found.mad / found.median, 3),
        samples=found.samples,
        clock_mhz=round(median(clocks), 1) if clocks else None,
    )


# Bit-equal repeats need a fixed cuBLAS workspace.
SETTINGS = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "OMP_NUM_THREADS": "1"}
CHILD = python_module("gpucheck.compute.running.child")
OPEN_S = 180.0  # eight imports of torch from a cold disk, contexts, and kernels that the driver compiles
# Around the time of a step: the first product loads its kernels, a slow GPU takes seconds for seven samples.
SLACK_S = 60.0


class Workers:
    """A bench: several devices, each known by its place, that open and run at the same time. One that failed is not to
    be used again. small: sizes for CPUs. engine: TORCH or CUBLAS. command: of the child.
    """

    def __init__(
        self, devices: Sequence[Device], *, small: bool = False, engine: str = TORCH, command: Sequence[str] = CHILD
    ) -> None:
        self.devices = tuple(devices)
        self.small, self.engine = small, engine
        self.command = command
        self._place = ExitStack()
        self._workers: dict[int, Worker] = {}

    def open(self) -> Sequence[Opened | Failure]:
        """Start all children, then wait for each."""
        environment, _ = self._place.enter_context(workplace("compute"))
        failed: dict[int, Failure] = {}
        divided = any(device.is_mig for device in self.devices)  # CUDA then shows no other device by itself
        for place, device in enumerate(self.devices):
            own = {"CUDA_VISIBLE_DEVICES": str(device.uuid)} if divided else {}
            try:
                self._workers[place] = Worker(self.command, environment | SETTINGS | own)
            except OSError as error:
                failed[place] = Failure(kind="no-process", detail=f"no child process: {error}")
                continue
            setup = Setup(device=device, parent_pid=os.getpid(), small=self.small, engine=self.engine)
            self._workers[place].send(setup)
        since = time.monotonic()
        places = range(len(self.devices))
        return [failed.get(place) or self._answer(place, since, OPEN_S, "start", Opened) for place in places]

    def run(self, step: ComputeStep, places: Sequence[int]) -> Mapping[int, Answer | Failure]:
        """Send the step to all, then wait for each until the same deadline."""
        there = [place for place in places if place in self._workers]
        for place in there:
            self._workers[place].send(step)
        since = time.monotonic()
        return {place: self._answer(place, since, step.seconds + SLACK_S, step.label, Answer) for place in there}

    def close(self) -> None:
        """End the children: those that are idle by the end of their input, the others by a signal."""
        for place in tuple(self._workers):
            self._workers.pop(place).end(by_itself=True)
        self._place.close()

    def _answer(self, place: int, since: float, limit_s: float, what: str, shape: Any) -> Any:
        worker = self._workers[place]
        try:
            answer = worker.answer(shape | Failure, limit_s, since)
        except Lost as lost:
            del self._workers[place]
            kind = "crashed" if lost.kind == "killed" else lost.kind
            return Failure(kind=kind, detail=lost.detail, step=what)
        if isinstance(answer, Failure):  # after a CUDA error a context may be broken: nothing more is asked of it
            self._workers.pop(place).end()
        return answer
