"""Results of a run by purpose, written by the runner, read by observations and report."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from gpucheck.measure.values import HOST, Check, Device, Failure, Flow, Method, Opened, Step, Timing, is_crowd

Pair = tuple[int, int]


@dataclass
class Results:
    """The results so far. Pairs are ordered positions; a pair that was not measured is missing from the tables.

    together: unidirectional timings of rounds with other pairs. alone: repeated alone; these replace the former.
    both: the two directions of an unordered pair simultaneously; both_alone: repeated without other copies.
    broken: pairs that are not measured any further. lost: children that were terminated or crashed.
    """

    devices: tuple[Device, ...]
    opened: Opened | None = None
    together: dict[Flow, Timing] = field(default_factory=dict)
    alone: dict[Flow, Timing] = field(default_factory=dict)
    both: dict[Pair, tuple[Timing, Timing]] = field(default_factory=dict)
    both_alone: dict[Pair, tuple[Timing, Timing]] = field(default_factory=dict)
    latency: dict[Flow, Timing] = field(default_factory=dict)
    host: dict[Flow, Timing] = field(default_factory=dict)
    crowds: dict[str, tuple[Timing, ...]] = field(default_factory=dict)
    sizes: list[Timing] = field(default_factory=list)
    checks: list[tuple[bool, Check]] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    broken: set[frozenset[int]] = field(default_factory=set)
    lost: int = 0
    gave_up: str | None = None
    rounds: int = 0
    device_s: float = 0.0

    def one_way(self, src: int, dst: int, method: Method = "ce-write") -> Timing | None:
        """Return the timing of an ordered pair: the one measured alone, if it exists."""
        flow = Flow(src=src, dst=dst, method=method)
        return self.alone.get(flow) or self.together.get(flow)

    def measured(self) -> Iterator[tuple[Pair, Timing]]:
        for flow in self.together:
            if flow.method == "ce-write" and HOST not in (flow.src, flow.dst) and flow.src != flow.dst:
                timing = self.one_way(flow.src, flow.dst)
                if timing is not None:
                    yield (flow.src, flow.dst), timing

    def staged(self) -> dict[Pair, float]:
        """Return the GB/s of the pairs measured without peer access."""
        found = self.together | self.alone
        return {(flow.src, flow.dst): t.gb_s for flow, t in found.items() if flow.method == "staged"}

    def latencies(self, method: Method) -> dict[Pair, float]:
        """Return the latency of each ordered pair in microseconds."""
        return {
            (flow.src, flow.dst): timing.median_s * 1e6
            for flow, timing in self.latency.items()
            if flow.method == method and flow.src != flow.dst
        }

    def both_ways(self) -> dict[Pair, tuple[Timing, Timing]]:
        """Return the two directions of every unordered pair, lower position first."""
        return self.both | self.both_alone

    def take(self, step: Step, timings: tuple[Timing, ...], checks: tuple[Check, ...]) -> None:
        if step.operation == "integrity":
            self.checks += [(step.purpose != "integrity", check) for check in checks]
        elif step.operation == "latency":
            self.latency.update({t.flow: t for t in timings})
        elif step.purpose == "alone":
            self.alone.update({t.flow: t for t in timings})
        elif step.purpose == "both directions":
            self.both.update(_both(timings))
        elif step.purpose == "both directions alone":
            self.both_alone.update(_both(timings))
        elif step.purpose == "host and device":
            self.host.update({t.flow: t for t in timings})
        elif is_crowd(step.purpose):
            self.crowds[step.purpose] = timings
        elif step.purpose == "sizes":
            self.sizes += timings
        else:
            self.together.update({t.flow: t for t in timings})


def _both(timings: tuple[Timing, ...]) -> dict[Pair, tuple[Timing, Timing]]:
    by_flow = {(t.flow.src, t.flow.dst): t for t in timings}
    return {(a, b): (there, by_flow[b, a]) for (a, b), there in by_flow.items() if a < b and (b, a) in by_flow}
