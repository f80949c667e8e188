"""What one GPU did in all rounds so far, in a bounded size, however long the run is."""

from collections import Counter
from collections.abc import Mapping
from statistics import median
from typing import Annotated

import msgspec
from msgspec.structs import replace

from gpucheck.compute.running.run import matrix_rate, memory_ceiling
from gpucheck.compute.values import FailureKind
from gpucheck.model.compute import ComputeDevice, MatrixRate, MemoryRates, Rate, Repeats, Sample

MOST_SAMPLES = 600
MOST_ROUNDS = 128
MOST_DIGESTS = 8  # of one operation that are distinguished; more are counted together
MULTIPLIER, BITS = 2654435761, 32  # of Knuth's multiplicative hash
OTHER = "other"
Count = Annotated[int, msgspec.Meta(ge=0)]


class RoundRate(msgspec.Struct, frozen=True, array_like=True):
    """A rate in one round."""

    round: Count
    rate: Rate


class Totals(msgspec.Struct, kw_only=True):
    """Of one GPU. digests: repeats by digest, by operation. rates: by the name of the step. sparse: of 2**sparse
    readings one is kept, and of 2**thin rounds. hottest: degrees, and the second of load.
    """

    digests: dict[str, dict[str, Count]] = msgspec.field(default_factory=dict)
    values: dict[str, Count] = msgspec.field(default_factory=dict)
    rates: dict[str, list[RoundRate]] = msgspec.field(default_factory=dict)
    alone: dict[str, Rate] = msgspec.field(default_factory=dict)
    traces: list[Sample] = msgspec.field(default_factory=list)
    sparse: Annotated[int, msgspec.Meta(ge=0, le=BITS)] = 0
    thin: Annotated[int, msgspec.Meta(ge=0, le=BITS)] = 0
    errors: dict[str, Count] = msgspec.field(default_factory=dict)
    hottest: tuple[float, float] | None = None
    failed: FailureKind | None = None
    failure: str = ""

    def add(self, made: ComputeDevice, number: int, errors: Mapping[str, int]) -> None:
        """Add one round, or a part of one. errors: counters that rose in it."""
        self.failed, self.failure = made.failed, made.failure
        for what, found in made.repeats.items():
            counts = Counter({made.digests[what]: found.repeats - found.differing, OTHER: found.differing})
            for digest, count in counts.items():
                self._count(self.digests.setdefault(what, {}), digest, count)
            self.values[what] = self.values.get(what, 0) + found.values
        for name, rate in _rates(made).items():
            self.rates.setdefault(name, []).append(RoundRate(number, rate))
        for name, count in errors.items():
            self.errors[name] = self.errors.get(name, 0) + count
        for sample in made.traces:
            if sample.temperature_c is not None and (self.hottest is None or sample.temperature_c > self.hottest[0]):
                self.hottest = (sample.temperature_c, sample.at)
        self.traces += made.traces
        self._thin()

    @staticmethod
    def _count(counts: dict[str, int], digest: str, count: int) -> None:
        if not count:
            return
        known = digest if digest in counts or len(counts) < MOST_DIGESTS else OTHER
        counts[known] = counts.get(known, 0) + count

    def _thin(self) -> None:
        """Keep a part of the readings that has no rhythm, so that it is true to all phases of a round."""
        self.traces = [sample for sample in self.traces if _kept(sample.at, self.sparse)]
        while len(self.traces) > MOST_SAMPLES:
            self.sparse += 1
            self.traces = [sample for sample in self.traces if _kept(sample.at, self.sparse)]
        while any(len(rates) > MOST_ROUNDS for rates in self.rates.values()):
            self.thin += 1
            self.rates = {n: [r for r in rates if r.round % (1 << self.thin) == 0] for n, rates in self.rates.items()}

    def device(self, known: ComputeDevice) -> ComputeDevice:
        """Return the device with what it did in all rounds. known: as it was opened."""
        common = {what: max(counts, key=lambda d: (d != OTHER, counts[d])) for what, counts in self.digests.items()}
        repeats = {
            what: Repeats(
                repeats=sum(counts.values()),
                differing=sum(counts.values()) - counts[common[what]],
                values=self.values.get(what, 0),
            )
            for what, counts in self.digests.items()
        }
        return replace(
            known,
            gemm=known.gemm | self._gemm(known),
            memory=self._memory(known),
            digests=common,
            repeats=repeats,
            traces=tuple(self.traces),
            errors=dict(self.errors),
            failed=self.failed,
            failure=self.failure,
        )

    def _all(self, kind: str) -> dict[str, Rate]:
        found = {name.partition(" "): rates for name, rates in self.rates.items() if rates}
        return {what: _together([one.rate for one in rates]) for (k, _, what), rates in found.items() if k == kind}

    def _gemm(self, known: ComputeDevice) -> dict[str, MatrixRate]:
        return {
            type_: replace(matrix_rate(known, type_, rate), alone=self.alone.get(f"matrix {type_}"))
            for type_, rate in self._all("matrix").items()
        }

    def _memory(self, known: ComputeDevice) -> MemoryRates:
        found = self._all("memory")
        return MemoryRates(
            **{f"{way}_gb_s": rate.median for way, rate in found.items()},
            ceiling_gb_s=memory_ceiling(known) if found else None,
            mad_percent={way: rate.mad_percent for way, rate in found.items()},
            samples={way: rate.samples for way, rate in found.items()},
            alone={n.partition(" ")[2]: rate for n, rate in self.alone.items() if n.startswith("memory ")},
        )


def _kept(at: float, sparse: int) -> bool:
    """Return whether a reading is kept. It depends on its time alone, so a cut changes nothing."""
    return (round(at * 1000) * MULTIPLIER % (1 << BITS)) >> (BITS - sparse) == 0


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


def _together(rates: list[Rate]) -> Rate:
    """Return the medians over the rounds."""
    clocks = [rate.clock_mhz for rate in rates if rate.clock_mhz is not None]
    return Rate(
        median=median(rate.median for rate in rates),
        mad_percent=median(rate.mad_percent for rate in rates),
        samples=sum(rate.samples for rate in rates),
        clock_mhz=median(clocks) if clocks else None,
    )
