"""Is the number right? Measured against expected, against its like, and against the way through host memory. Pure.

A pair may only FAIL on a number that was taken alone and lies below the limit by more than its own uncertainty.
"""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

from gpucheck.knowledge import nvlink_limits, pcie_limits
from gpucheck.measure.plan import Machine
from gpucheck.measure.results import Pair, Results
from gpucheck.measure.values import Flow, Timing
from gpucheck.model import Expected, Verdict

SURE = 3.0  # standard errors of the median
PEERS = 4  # ordered pairs alike, below which "like the others" says nothing
PEER_LOW = 0.85
OVER = 1.02
STAGED_HARM = 0.92


class Low(NamedTuple):
    """An ordered pair that is too slow. limit_gb_s: what it should at least reach, and whose demand that is."""

    pair: Pair
    verdict: Verdict
    gb_s: float
    limit_gb_s: float
    reason: str


def fail_at(cls: str | None, expected: Expected) -> float:
    """Below this a pair fails: the class's fail limit, lowered as far as the low end of its range is."""
    limits = nvlink_limits() if (cls or "").startswith("NV") else pcie_limits()
    return expected.low_gb_s * limits.fail_below / limits.warn_below


def low_pairs(results: Results, machine: Machine) -> tuple[Low, ...]:
    """Every ordered pair that is slower than its expectation, its like, or its other direction allow."""
    timings = dict(results.measured())
    normal = _normal(timings, machine)
    found = (_low(pair, timings, machine, normal, results) for pair in timings)
    return tuple(low for low in found if low is not None)


def repeat_one_way(results: Results, machine: Machine) -> list[tuple[Flow, ...]]:
    """The low pairs that were not measured alone yet, the slowest first."""
    flows = [(low.gb_s / low.limit_gb_s, Flow(src=low.pair[0], dst=low.pair[1])) for low in low_pairs(results, machine)]
    return [(flow,) for _, flow in sorted(flows, key=lambda item: item[0]) if flow not in results.alone]


def too_fast(results: Results, machine: Machine) -> Iterator[tuple[Pair, Timing, Expected]]:
    """Pairs above the line rate of their path, which no copy can be."""
    for pair, timing in results.measured():
        path = machine.between.get(pair)
        if path and path.expected and timing.gb_s > path.expected.high_gb_s * OVER:
            yield pair, timing, path.expected


def harmed(results: Results, machine: Machine) -> Iterator[tuple[Pair, Timing, Timing]]:
    """PCIe pairs that are slower with peer access than through host memory: (pair, direct, staged)."""
    staged = {(f.src, f.dst): t for f, t in results.together.items() if f.method == "staged"}
    of_class = {machine.between[pair].cls: t for pair, t in staged.items() if pair in machine.between}
    for pair, timing in results.measured():
        path = machine.between.get(pair)
        if path is None or path.expected is None or (path.cls or "").startswith("NV"):
            continue
        reference = staged.get(pair) or of_class.get(path.cls)
        if reference and timing.gb_s * (1 + SURE * timing.error) < STAGED_HARM * reference.gb_s:
            yield pair, timing, reference


def _normal(timings: dict[Pair, Timing], machine: Machine) -> dict[object, float]:
    """The median of each set of pairs that should be alike."""
    alike: dict[object, list[float]] = {}
    for pair, timing in timings.items():
        alike.setdefault(_kind(pair, machine), []).append(timing.gb_s)
    return {kind: median(values) for kind, values in alike.items() if len(values) >= PEERS}


def _kind(pair: Pair, machine: Machine) -> object:
    path = machine.between.get(pair)
    return (path.cls, path.expected.unidirectional_gb_s if path.expected else None) if path else None


def _low(
    pair: Pair, timings: dict[Pair, Timing], machine: Machine, normal: dict[object, float], results: Results
) -> Low | None:
    timing, path = timings[pair], machine.between.get(pair)
    expected = path.expected if path else None
    surely_below = timing.gb_s * (1 + SURE * timing.error)
    if expected is not None and timing.gb_s < expected.low_gb_s:
        limit = fail_at(path.cls if path else None, expected)
        sure = surely_below < limit and Flow(src=pair[0], dst=pair[1]) in results.alone
        verdict = Verdict.FAIL if sure else Verdict.WARN
        return Low(pair, verdict, timing.gb_s, expected.low_gb_s, "expected")
    usual = normal.get(_kind(pair, machine))
    if usual is not None and surely_below < PEER_LOW * usual:
        return Low(pair, Verdict.WARN, timing.gb_s, PEER_LOW * usual, "like the other pairs of its class")
    back = timings.get((pair[1], pair[0]))
    if back is not None and surely_below < PEER_LOW * back.gb_s * (1 - SURE * back.error):
        return Low(pair, Verdict.WARN, timing.gb_s, PEER_LOW * back.gb_s, "like the other direction")
    return None


class Group(NamedTuple):
    """Low pairs with one explanation. what: ``gpu``, ``link``, ``all``, ``class`` or ``pair``. at: its name."""

    what: str
    at: str
    lows: tuple[Low, ...]


def groups(lows: Sequence[Low], results: Results, machine: Machine) -> tuple[Group, ...]:
    """One group a cause: a GPU slow to everyone, an uplink, the whole host, a class of paths, then single pairs."""
    measured = [pair for pair, _ in results.measured()]
    left, found = list(lows), []
    if len(machine.devices) > 2 and len(left) == len(measured):
        return (Group("all", "", tuple(left)),)
    for what, members in (("gpu", _by_gpu(measured, machine)), ("link", _by_link(measured, machine))):
        for at, pairs in sorted(members.items(), key=lambda item: (-len(item[1]), item[0])):
            inside = [low for low in left if low.pair in pairs]
            if len(inside) > 2 and {low.pair for low in lows} >= pairs:
                found.append(Group(what, at, tuple(inside)))
                left = [low for low in left if low.pair not in pairs]
    classes: dict[str, set[Pair]] = {}
    for pair in measured:
        path = machine.between.get(pair)
        classes.setdefault((path.cls if path else None) or "unknown", set()).add(pair)
    for cls, pairs in classes.items():
        inside = [low for low in left if low.pair in pairs]
        if len(inside) > 2 and len(inside) == len(pairs):
            found.append(Group("class", cls, tuple(inside)))
            left = [low for low in left if low.pair not in pairs]
    singles: dict[frozenset[int], list[Low]] = {}
    for low in left:
        singles.setdefault(frozenset(low.pair), []).append(low)
    return (*found, *(Group("pair", "", tuple(ways)) for ways in singles.values()))


def _by_gpu(measured: Sequence[Pair], machine: Machine) -> dict[str, set[Pair]]:
    if len(machine.devices) < 3:
        return {}
    return {d.label: {p for p in measured if place in p} for place, d in enumerate(machine.devices)}


def _by_link(measured: Sequence[Pair], machine: Machine) -> dict[str, set[Pair]]:
    """Pairs by the bridge they cross, either way, where some pairs do not."""
    users: dict[str, set[Pair]] = {}
    for pair in measured:
        path = machine.between.get(pair)
        for resource in path.resources if path else ():
            way, _, port = resource.partition(":")
            if way in ("up", "down"):
                users.setdefault(port, set()).add(pair)
    return {port: pairs for port, pairs in users.items() if len(pairs) < len(measured)}
