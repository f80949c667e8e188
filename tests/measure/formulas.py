"""A copy engine for tests without a driver library: a clock that only copies move, memory that is a formula.

Copies that share a link share its rate, so a schedule that lets two pairs meet shows. Numbers depend on the seed alone.
The simulated driver library computes the same rates in C (tests/simulator/cuda/test_time.py). As a program it is the
child of a measurement: ``python -m tests.measure.formulas RATES FD``.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

import msgspec

from gpucheck.measure.engines.pattern import WORD, word_at, words_at
from gpucheck.measure.planning.plan import Path, flow_resources
from gpucheck.measure.values import HOST, Comparison, Flow, Opened, Region, Setup, TimingWay, Wrong, error_text
from gpucheck.simulator.cuda.copies import PCIE_DUPLEX, Link, Rates

LOCAL_GB_S = 500.0  # copies inside one GPU are not modelled: a round number, which nothing judges
LOCAL_LATENCY_S = 1e-6
HOST_LATENCY_S = 2e-6
STAGED_LATENCY_S = 14e-6
QUEUED_S = 1e-6  # what a copy in a queue costs beside its bytes: small copies never reach the rate of large ones
LEAST_FACTOR = 0.05  # noise never makes a copy instant
SAMPLE = 16
FLIP_EVERY, FLIP_AT, FLIP_BIT = 4096, 100, 17
SHIFT_WORDS = 512
FOREVER_S = 86400.0

Words = Callable[[int], int]


class CopyError(Exception):
    """What a copy of a pair with the fault p2p-error ends with. code: cudaError_t."""

    def __init__(self, code: int) -> None:
        super().__init__(error_text(code))
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
        self.sources: dict[tuple[int, Region], int] = {}
        self.delivered: dict[tuple[int, int, Region], int] = {}
        self.poisoned: dict[int, int] = {}
        self.memory: dict[int, tuple[Region, Words]] = {}
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
        self.sources.pop((device, region), None)  # the newest is the last
        self.sources[device, region] = key
        self._touch(region)

    def poison(self, device: int, value: int, region: Region) -> None:
        """Remember the word."""
        self.poisoned[device] = value
        self.memory[device] = (region, lambda _: value)
        self._touch(region)

    def copy(self, flows: Sequence[Flow], region: Region) -> None:
        """Let every destination hold what its source holds, or what the fault makes of it."""
        self.time(flows, region.size, [1] * len(flows))
        for flow in (flow for flow in flows if flow.dst != HOST):
            self.memory[flow.dst] = (region, self._arrived(flow, region))

    def compare(self, device: int, key: int, region: Region) -> Comparison:
        """Look at the words around the start, the end and the places where a flip would be."""
        self._touch(region)
        count = region.size // WORD
        held, word = self.memory[device]
        shift = (region.offset - held.offset) // WORD
        if shift == 0 and _key(word) == key:
            return Comparison(words=count, mismatches=0)
        flips = range(FLIP_AT, count, FLIP_EVERY)
        look = sorted({*range(min(SAMPLE, count)), count - 1, *flips[:SAMPLE], *flips[-1:]})
        wrong = [Wrong(index=i, got=word(i + shift)) for i in look if word(i + shift) != word_at(key, i)]
        if not wrong:
            return Comparison(words=count, mismatches=0)
        everywhere = len(wrong) > len(look) // 2
        return Comparison(
            words=count,
            mismatches=count if everywhere else len(flips),
            first=wrong[0].index,
            last=wrong[-1].index,
            sample=tuple(wrong[:SAMPLE]),
        )

    def words(self, device: int, region: Region, *, source: bool = False) -> tuple[int, ...]:
        """What the formula says; around what was copied, the poison."""
        if source:
            filled = {part: key for (owner, part), key in self.sources.items() if owner == device}
            part = next(part for part in reversed(filled) if _holds(part, region))
            return tuple(words_at(filled[part], (region.offset - part.offset) // WORD, region.size // WORD))
        held, word = self.memory[device]
        if not _holds(held, region):
            return (self.poisoned[device],) * (region.size // WORD)
        first, key = (region.offset - held.offset) // WORD, _key(word)
        if key is not None:
            return tuple(words_at(key, first, region.size // WORD))
        return tuple(word(first + i) for i in range(region.size // WORD))

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

    def _arrived(self, flow: Flow, region: Region) -> Words:
        """The words at the destination after the copy. Stale data is an earlier copy's: the first arrives well."""
        key, poison = self.sources[flow.src, region], self.poisoned[flow.dst]
        before = self.delivered.get((flow.src, flow.dst, region), key)
        self.delivered[flow.src, flow.dst, region] = key
        link = self.links.get((flow.src, flow.dst))
        damage = link.damage if link else None
        others = [k for (device, r), k in self.sources.items() if r == region and device != flow.src]
        last = region.size // WORD

        def shifted(i: int) -> int:
            return word_at(key, (i + min(SHIFT_WORDS, last // 4)) % last)

        def flipped(i: int) -> int:
            return word_at(key, i) ^ ((1 << FLIP_BIT) if i % FLIP_EVERY == FLIP_AT else 0)

        formulas: dict[str | None, Words] = {
            "untouched": lambda _: poison,
            "zeros": lambda _: 0,
            "stale": lambda i: word_at(before, i),
            "other-pair": lambda i: word_at((others or [key])[-1], i),
            "shifted": shifted,
            "bit-flip": flipped,
        }
        return formulas.get(damage, partial(word_at, key))


def _holds(outer: Region, inner: Region) -> bool:
    return outer.offset <= inner.offset and inner.offset + inner.size <= outer.offset + outer.size


def _key(word: Words) -> int | None:
    """The key of a pattern that arrived as it was sent, which is most of them and need not be made word by word."""
    return word.args[0] if isinstance(word, partial) else None


if __name__ == "__main__":
    from gpucheck.measure.running import child

    child.engine_of = lambda name: FormulaEngine(msgspec.json.decode(sys.argv[1], type=Rates))
    child.main(int(sys.argv[2]), sys.stdin.buffer)
