"""A copy engine for tests without a driver library: a clock that only copies move, and copies that all arrive.

Copies that share a link share its rate, so a schedule that lets two pairs meet shows. Numbers depend on the seed alone.
The simulated driver library computes the same rates in C (tests/simulator/cuda/test_time.py). As a program it is the
child of a measurement: ``python -m tests.measure.formulas RATES FD``.
"""

import sys
import time
from collections import Counter
from collections.abc import Sequence
from random import Random

import msgspec

from gpucheck.knowledge.xid import cuda_error_text
from gpucheck.measure.engines.pattern import WORD, words_at
from gpucheck.measure.planning.plan import Path, flow_resources
from gpucheck.measure.values import Comparison, Opened, Region, Setup, TimingWay
from gpucheck.model.copies import HOST, Flow
from gpucheck.simulator.cuda.copies import PCIE_DUPLEX, Link, Rates

LOCAL_GB_S = 500.0  # copies inside one GPU are not modelled: a round number, which nothing judges
LOCAL_LATENCY_S = 1e-6
HOST_LATENCY_S = 2e-6
STAGED_LATENCY_S = 14e-6
QUEUED_S = 1e-6  # what a copy in a queue costs beside its bytes: small copies never reach the rate of large ones
LEAST_FACTOR = 0.05  # noise never makes a copy instant
FOREVER_S = 86400.0


class CopyError(Exception):
    """What a copy of a pair with the fault p2p-error ends with. code: cudaError_t."""

    def __init__(self, code: int) -> None:
        super().__init__(cuda_error_text(code))
        self.code = code


class FormulaEngine:
    """gpucheck.measure.values.CopyEngine over the rates of a machine."""

    way: TimingWay = "gate"

    def __init__(self, rates: Rates) -> None:
        self.machine = rates

    def open(self, setup: Setup) -> Opened:
        """Nothing to allocate."""
        self.links = {(link.src, link.dst): link for link in self.machine.links}
        self.between = {pair: Path(cls=None, resources=link.resources) for pair, link in self.links.items()}
        self.random = Random(self.machine.seed)
        self.now = 0.0
        self.sources: dict[int, int] = {}
        self.poisoned: dict[int, int] = {}
        self.memory: dict[int, tuple[Region, int]] = {}
        return Opened(
            buffer_bytes=setup.buffer_bytes,
            methods=("ce-write", "ce-read", "sm-write", "staged"),
            clock="simulated clock",
        )

    def error_code(self, error: Exception) -> int | None:
        """The code of the fault."""
        return error.code if isinstance(error, CopyError) else None

    def time(self, flows: Sequence[Flow], size: int, repeats: Sequence[int]) -> tuple[float, ...]:
        """Each flow at its rate, divided by how many share its most crowded link."""
        use = [flow_resources(flow, self.between, self.machine.to_host) for flow in flows]
        crowd = Counter(resource for taken in use for resource in taken)
        seconds = []
        for flow, taken, count in zip(flows, use, repeats, strict=True):
            share = max((crowd[resource] for resource in taken), default=1)
            opposite = flow.src != flow.dst and (crowd[f"in:{flow.src}"] or crowd[f"out:{flow.dst}"])
            rate = self._rate(flow) * (self._duplex(flow) if opposite else 1) / share
            seconds.append(count * (size / rate / 1e9 + self._setup_s(flow, queued=True)) * self._noise())
        self.now += max(seconds)
        return tuple(seconds)

    def latency(self, flow: Flow, repeats: int) -> float:
        """The pair's latency."""
        self._link(flow)
        seconds = self._setup_s(flow, queued=False) * self._noise()
        self.now += seconds * repeats
        return seconds

    def fill(self, device: int, key: int, region: Region) -> None:
        """Remember the key."""
        self.sources[device] = key
        self._touch(region)

    def poison(self, device: int, value: int, region: Region) -> None:
        """Remember the word."""
        self.poisoned[device] = value
        self._touch(region)

    def copy(self, flows: Sequence[Flow], region: Region) -> None:
        """Let every destination hold what its source holds."""
        self.time(flows, region.size, [1] * len(flows))
        self.memory |= {flow.dst: (region, self.sources[flow.src]) for flow in flows}

    def compare(self, device: int, key: int, region: Region) -> Comparison:
        """Every word is right, or none is."""
        self._touch(region)
        count = region.size // WORD
        return Comparison(words=count, mismatches=0 if self.memory[device] == (region, key) else count)

    def words(self, device: int, region: Region, *, source: bool = False) -> tuple[int, ...]:
        """What was copied; around it, the poison. The source is asked for words that arrived wrong: none do."""
        held, key = self.memory[device]
        first, count = (region.offset - held.offset) // WORD, region.size // WORD
        if not 0 <= first * WORD <= held.size - region.size:
            return (self.poisoned[device],) * count
        return tuple(words_at(key, first, count))

    def device_seconds(self) -> float:
        """The simulated clock."""
        return self.now

    def close(self) -> None:
        """Nothing to give back."""

    def _link(self, flow: Flow) -> Link | None:
        """The pair's link, with what it does to whoever uses it; None for host, local and staged copies."""
        link = self.links.get((flow.src, flow.dst))
        if link is None or flow.method == "staged":
            return None
        if link.stuck:
            time.sleep(FOREVER_S)
        if link.error is not None:
            raise CopyError(link.error)
        return link

    def _rate(self, flow: Flow) -> float:
        link = self._link(flow)
        if link is not None:
            return link.gb_s
        if flow.src == flow.dst:
            return LOCAL_GB_S
        if HOST in (flow.src, flow.dst):
            return self.machine.host_gb_s[max(flow.src, flow.dst)]
        return self.links[flow.src, flow.dst].staged_gb_s

    def _duplex(self, flow: Flow) -> float:
        link = self.links.get((flow.src, flow.dst))
        return PCIE_DUPLEX if link is None or flow.method == "staged" else link.duplex

    def _setup_s(self, flow: Flow, *, queued: bool) -> float:
        """What a copy costs beside its bytes. A queued one starts while the one before still runs."""
        link = self.links.get((flow.src, flow.dst))
        if flow.src == flow.dst:
            seconds = LOCAL_LATENCY_S
        elif HOST in (flow.src, flow.dst) or link is None:
            seconds = HOST_LATENCY_S
        else:
            seconds = STAGED_LATENCY_S if flow.method == "staged" else link.latency_us * 1e-6
        return QUEUED_S if queued else seconds

    def _noise(self) -> float:
        drift = 1 + self.machine.drift * self.now / 10
        return max(LEAST_FACTOR, self.random.gauss(1, self.machine.noise)) * drift

    def _touch(self, region: Region) -> None:
        self.now += region.size / LOCAL_GB_S / 1e9


if __name__ == "__main__":
    from gpucheck.measure.running import child

    child.engine_of = lambda name: FormulaEngine(msgspec.json.decode(sys.argv[1], type=Rates))
    child.main(int(sys.argv[2]), sys.stdin.buffer)
