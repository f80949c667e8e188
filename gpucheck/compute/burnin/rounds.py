"""What each GPU did in each round, as the file of a burn-in keeps it, and all rounds of a GPU as one device."""

from collections import Counter
from collections.abc import Sequence
from random import Random
from statistics import median
from typing import Annotated

import msgspec
from msgspec.structs import replace

from gpucheck.compute.running.run import matrix_rate, memory_ceiling
from gpucheck.compute.values import FailureKind
from gpucheck.model.compute import ComputeDevice, MemoryRates, Rate, Repeats, Sample

READINGS = 600  # of a GPU in a whole run


class OfGpu(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One GPU in one round, or in a part of one; empty if it took no part. Fields as in ComputeDevice.

    rates, alone: by the name of the step. traces: some readings. hottest: of all readings.
    """

    digests: dict[str, str] = {}
    repeats: dict[str, Repeats] = {}
    rates: dict[str, Rate] = {}
    alone: dict[str, Rate] = msgspec.field(default_factory=dict)
    traces: tuple[Sample, ...] = ()
    hottest: float | None = None
    errors: dict[str, int] = {}
    failed: FailureKind | None = None
    failure: str = ""


class Round(msgspec.Struct, kw_only=True):
    """seconds: of load and rest. whole: all its steps were run. gpus: in the order of the devices."""

    seconds: Annotated[float, msgspec.Meta(ge=0)]
    whole: bool
    gpus: list[OfGpu]


def of_gpu(made: ComputeDevice, number: int, rounds: int) -> OfGpu:
    """Return what is kept of round ``number`` of so many. Readings are drawn: they are of all its parts."""
    traces, kept = made.traces, max(1, READINGS // rounds)
    if len(traces) > kept:
        traces = tuple(sorted(Random(number).sample(traces, kept), key=lambda sample: sample.at))  # noqa: S311
    degrees = (sample.temperature_c for sample in made.traces if sample.temperature_c is not None)
    return OfGpu(
        digests=made.digests,
        repeats=made.repeats,
        rates=_rates(made),
        traces=traces,
        hottest=max(degrees, default=None),
        errors=made.errors,
        failed=made.failed,
        failure=made.failure,
    )


def together(known: ComputeDevice, parts: Sequence[OfGpu]) -> ComputeDevice:
    """Return the device with what it did in all rounds. known: as it was opened."""
    digests: dict[str, Counter[str]] = {}
    differing: Counter[str] = Counter()
    values: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    rates: dict[str, list[Rate]] = {}
    alone: dict[str, Rate] = {}
    for part in parts:
        for what, found in part.repeats.items():
            digests.setdefault(what, Counter())[part.digests[what]] += found.repeats - found.differing
            differing[what] += found.differing
            values[what] += found.values
        for name, rate in part.rates.items():
            rates.setdefault(name, []).append(rate)
        alone |= part.alone
        errors.update(part.errors)
    common = {what: found.most_common(1)[0] for what, found in digests.items()}
    whole = {what: found.total() + differing[what] for what, found in digests.items()}
    ends: list[tuple[FailureKind | None, str]] = [(known.failed, known.failure)]
    ends += [(part.failed, part.failure) for part in parts]
    failed, failure = next((end for end in ends if end[0] is not None), (None, ""))
    middle = {name: _middle(found) for name, found in rates.items()}
    return replace(
        known,
        gemm=known.gemm
        | {
            name.removeprefix("matrix "): replace(
                matrix_rate(known, name.removeprefix("matrix "), rate), alone=alone.get(name)
            )
            for name, rate in middle.items()
            if name.startswith("matrix ")
        },
        memory=_memory(known, _of_memory(middle), _of_memory(alone)),
        digests={what: digest for what, (digest, _) in common.items()},
        repeats={
            what: Repeats(repeats=whole[what], differing=whole[what] - equal, values=values[what])
            for what, (_, equal) in common.items()
        },
        traces=tuple(sample for part in parts for sample in part.traces),
        errors=dict(errors),
        failed=failed,
        failure=failure,
    )


def _of_memory(rates: dict[str, Rate]) -> dict[str, Rate]:
    return {name.removeprefix("memory "): rate for name, rate in rates.items() if name.startswith("memory ")}


def _memory(known: ComputeDevice, found: dict[str, Rate], alone: dict[str, Rate]) -> MemoryRates:
    return MemoryRates(
        **{f"{way}_gb_s": rate.median for way, rate in found.items()},
        ceiling_gb_s=memory_ceiling(known) if found else None,
        mad_percent={way: rate.mad_percent for way, rate in found.items()},
        samples={way: rate.samples for way, rate in found.items()},
        alone=alone,
    )


def _rates(made: ComputeDevice) -> dict[str, Rate]:
    matrices = {
        f"matrix {type_}": Rate(
            median=rate.tflops, mad_percent=rate.mad_percent or 0.0, samples=rate.samples, clock_mhz=rate.clock_mhz
        )
        for type_, rate in made.gemm.items()
        if rate.tflops is not None
    }
    memory = {
        f"memory {way}": Rate(median=value, mad_percent=made.memory.mad_percent[way], samples=count)
        for way, count in made.memory.samples.items()
        if (value := getattr(made.memory, f"{way}_gb_s")) is not None
    }
    return matrices | memory


def _middle(rates: list[Rate]) -> Rate:
    clocks = [rate.clock_mhz for rate in rates if rate.clock_mhz is not None]
    return Rate(
        median=median(rate.median for rate in rates),
        mad_percent=median(rate.mad_percent for rate in rates),
        samples=sum(rate.samples for rate in rates),
        clock_mhz=median(clocks) if clocks else None,
    )
