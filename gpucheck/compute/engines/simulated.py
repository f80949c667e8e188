"""Simulated GPUs with the ceilings of a machine: rates, clocks, heat and power, and what is wrong with them.

Time is simulated: a step of three seconds takes as long as its arithmetic. The clock follows the power limit and the
temperature as a driver's governor does: P = idle + dynamic * (f / f_max) ** 3, and a body of one heat capacity that
its cooler connects to the air.
"""

import hashlib
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean

import msgspec

from gpucheck.compute.values import Answer, ComputeStep, Failure, Opened
from gpucheck.knowledge.compute import ceiling_tflops, memory_ceiling_gb_s, operations_per_clock
from gpucheck.model.compute import Sample

TICK_S = 0.1
GOVERNED_S = 0.5  # of long runs, near the limit of the temperature
# Part of the ceiling that a good kernel reaches, and the power it draws at the highest clock, of the power limit.
MATRIX_PART = {"fp32": 0.90, "tf32": 0.78, "bf16": 0.78, "fp16": 0.79, "fp8": 0.72, "int8": 0.60}
MATRIX_POWER = {"fp32": 0.95, "tf32": 1.15, "bf16": 1.25, "fp16": 1.25, "fp8": 1.20, "int8": 1.10}
MEMORY_PART = {"read": 0.90, "write": 0.92, "copy": 0.89}
MEMORY_POWER, RESULTS_POWER = 0.60, 1.00
IDLE_PART, AIR_C, HEAT_S = 0.12, 28.0, 9.0  # HEAT_S: until a change of power is 63 % of the change in degrees
MEMORY_ABOVE_C = 6.0  # memory above the edge of the GPU
HEALTHY_RISE_C = 38.0  # above the air at the power limit
LOTTERY, SAMPLE_NOISE = 0.012, 0.003  # standard deviations: of the power from chip to chip, and of one rate
RESULTS_SHARE, DEPTH = 0.5, 1024
REPEATS = 24
STEP_DOWN, STEP_UP, RECOVERS_C = 0.96, 1.02, 2.0


class ComputeGpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU of compute.json. Degrees and watts as NVML reports them.

    held_mhz, held_by: a clock that something holds, with the reasons. rise: part by which it gets hotter than a healthy
    one at the same power. matrix_loss, memory_loss: parts of the rates that are lost. wrong: probability that a
    computed value is wrong; always: every repeat is wrong in the same place.
    """

    name: str
    bus_id: str
    capability: str
    clock_mhz: float
    power_limit_w: float
    power_default_w: float
    slowdown_c: float | None = None
    memory_limit_c: float | None = None
    multiprocessors: int | None = None
    memory_bus_bits: int | None = None
    memory_clock_mhz: float | None = None
    held_mhz: float | None = None
    held_by: tuple[str, ...] = ()
    rise: float = 1.0
    matrix_loss: float = 0.0
    memory_loss: float = 0.0
    wrong: float = 0.0
    always: bool = False


def read(directory: Path) -> tuple[ComputeGpu, ...]:
    """Return the GPUs of a simulated machine. Raises ValueError for a machine without a readable compute.json."""
    file = directory / "compute.json"
    try:
        return msgspec.json.decode(file.read_bytes(), type=tuple[ComputeGpu, ...])
    except (OSError, msgspec.DecodeError) as error:
        raise ValueError(f"{file}: {error}. Make the simulated machine again.") from error


class _Gpu:
    """The state of one GPU while time passes. tick_s: between readings where the governor has nothing to do."""

    def __init__(self, about: ComputeGpu, place: int, seed: int, tick_s: float = TICK_S) -> None:
        self.about, self.tick_s = about, tick_s
        self.random = random.Random(f"{seed} {place} {about.bus_id}")  # noqa: S311 - a simulation
        self.hungry = self.random.gauss(1.0, LOTTERY)
        self.quick = self.random.gauss(1.0, LOTTERY / 4)
        self.degrees = AIR_C + HEALTHY_RISE_C * about.rise * IDLE_PART
        self.heat_factor = 1.0

    def pass_time(self, seconds: float, load: float) -> Iterator[Sample]:
        """Yield a reading each tick. load: power at the highest clock, as a part of the default limit."""
        about, at = self.about, 0.0
        dynamic = max(0.0, load * self.hungry - IDLE_PART) * about.power_default_w
        idle = IDLE_PART * about.power_default_w
        while at < seconds - 1e-6:
            room = max(0.05, (about.power_limit_w - idle) / dynamic) if dynamic else 1.0
            capped = min(1.0, room ** (1 / 3))
            part = min(capped, self.heat_factor)
            reasons = ["sw-power-cap"] if capped < 1.0 and capped <= self.heat_factor else []
            if self.heat_factor < capped:
                reasons.append("sw-thermal")
            clock = about.clock_mhz * part
            if about.held_mhz is not None and about.held_mhz < clock:
                clock, reasons = about.held_mhz, list(about.held_by)
            watts = idle + dynamic * (clock / about.clock_mhz) ** 3
            aim = AIR_C + HEALTHY_RISE_C * about.rise * watts / about.power_default_w
            tick = min(self._tick(aim), max(TICK_S, seconds - at))
            at += tick
            self.degrees += (aim - self.degrees) * (1 - math.exp(-tick / HEAT_S))
            self._govern()
            yield Sample(
                at=round(at, 3),
                sm_clock_mhz=round(clock / 15) * 15.0,
                memory_clock_mhz=about.memory_clock_mhz,
                power_w=round(watts, 1),
                temperature_c=round(self.degrees),
                margin_c=None if about.slowdown_c is None else about.slowdown_c - round(self.degrees),
                memory_temperature_c=round(self.degrees + MEMORY_ABOVE_C),
                reasons=tuple(reasons),
            )

    def _tick(self, aim: float) -> float:
        limit = self.about.slowdown_c
        if limit is None or (aim < limit - 2 * RECOVERS_C and self.heat_factor == 1.0):
            return self.tick_s
        held = limit - 2 * RECOVERS_C <= min(aim, self.degrees) and max(aim, self.degrees) <= limit - RECOVERS_C
        return self.tick_s if held else min(self.tick_s, GOVERNED_S)

    def _govern(self) -> None:
        limit = self.about.slowdown_c
        if limit is None:
            return
        if self.degrees > limit - RECOVERS_C:
            self.heat_factor *= STEP_DOWN
        elif self.degrees < limit - 2 * RECOVERS_C:
            self.heat_factor = min(1.0, self.heat_factor * STEP_UP)

    def rates(self, rate: float, samples: Sequence[Sample], *, by_clock: bool) -> tuple[float, ...]:
        """Return a sample around a rate for each reading. by_clock: rate is that of one MHz."""
        clocks = [(sample.sm_clock_mhz or 0.0) if by_clock else 1.0 for sample in samples]
        return tuple(rate * clock * self.quick * self.random.gauss(1.0, SAMPLE_NOISE) for clock in clocks)


class SimulatedBench:
    """A bench of simulated GPUs. Everything random follows from seed."""

    def __init__(self, gpus: Sequence[ComputeGpu], seed: int = 0, *, tick_s: float = TICK_S) -> None:
        self.gpus = [_Gpu(gpu, place, seed, tick_s) for place, gpu in enumerate(gpus)]

    def open(self) -> Sequence[Opened | Failure]:
        return [
            Opened(
                types=tuple(operations_per_clock(gpu.about.capability, gpu.about.name)) or ("fp32",),
                capability=gpu.about.capability,
                multiprocessors=gpu.about.multiprocessors,
                memory_bus_bits=gpu.about.memory_bus_bits,
                memory_clock_mhz=gpu.about.memory_clock_mhz,
                memory_limit_c=gpu.about.memory_limit_c,
                versions={"engine": "simulated"},
            )
            for gpu in self.gpus
        ]

    def run(self, step: ComputeStep, places: Sequence[int]) -> Mapping[int, Answer | Failure]:
        """Let the time of the step pass on these GPUs."""
        kinds = {"matrix": self._matrix, "memory": self._memory, "results": self._results, "rest": self._rest}
        run = kinds[step.kind]
        return {place: run(self.gpus[place], step) for place in places}

    def close(self) -> None:
        """Nothing was started."""

    def _matrix(self, gpu: _Gpu, step: ComputeStep) -> Answer:
        samples = tuple(gpu.pass_time(step.seconds, MATRIX_POWER[step.what]))
        rate = self._flops(gpu.about, step.what, 1.0) * MATRIX_PART[step.what] * (1 - gpu.about.matrix_loss)
        return Answer(rates=gpu.rates(rate, samples, by_clock=True), samples=samples, seconds=step.seconds)

    @staticmethod
    def _rest(gpu: _Gpu, step: ComputeStep) -> Answer:
        for _ in gpu.pass_time(step.seconds, 0.0):
            pass
        return Answer(seconds=step.seconds)

    @staticmethod
    def _flops(about: ComputeGpu, type_: str, mhz: float) -> float:
        per_clock = operations_per_clock(about.capability, about.name).get(type_, 128)
        return ceiling_tflops(per_clock, about.multiprocessors or 64, mhz) * 1e12

    @staticmethod
    def _memory(gpu: _Gpu, step: ComputeStep) -> Answer:
        about = gpu.about
        samples = tuple(gpu.pass_time(step.seconds, MEMORY_POWER))
        ceiling = memory_ceiling_gb_s(about.memory_bus_bits or 256, about.memory_clock_mhz or 5000.0) * 1e9
        rate = ceiling * MEMORY_PART[step.what] * (1 - about.memory_loss)
        return Answer(rates=gpu.rates(rate, samples, by_clock=False), samples=samples, seconds=step.seconds)

    def _results(self, gpu: _Gpu, step: ComputeStep) -> Answer:
        """The values that are computed follow from the rate of the products; each may be wrong."""
        samples = tuple(gpu.pass_time(step.seconds, RESULTS_POWER))
        clock = fmean(sample.sm_clock_mhz for sample in samples if sample.sm_clock_mhz is not None)
        flops = self._flops(gpu.about, step.what.rpartition("-")[2], clock)
        values = int(flops * RESULTS_SHARE / (2 * DEPTH) * step.seconds / REPEATS)
        right = hashlib.sha256(f"{gpu.about.name} {step.what}".encode()).hexdigest()[:16]
        hit = -math.expm1(values * math.log1p(-gpu.about.wrong)) if gpu.about.wrong < 1 else 1.0
        digests = tuple(
            f"{gpu.random.getrandbits(64):016x}" if gpu.random.random() < hit else right for _ in range(REPEATS)
        )
        if gpu.about.always:
            digests = (hashlib.sha256(f"{gpu.about.bus_id} {step.what}".encode()).hexdigest()[:16],) * REPEATS
        return Answer(digests=digests, values=values, samples=samples, seconds=step.seconds)
