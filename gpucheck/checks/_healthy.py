"""A measured number next to what the same copy reaches on a healthy machine of that model."""

from collections.abc import Iterable
from math import log
from statistics import median
from typing import NamedTuple

from gpucheck.checks._machine import Link, Machine, Pair, nvlink_of
from gpucheck.knowledge import healthy_rates
from gpucheck.model.diagnosis.observations import Observations
from gpucheck.model.finding import Verdict, worst
from gpucheck.topology.expected import (
    HEALTHY,
    Alike,
    Healthy,
    both_directions,
    c2c_copy,
    nvlink_copy,
    peer_copy,
    slower,
)

SLIGHT = 0.85  # of the median: a number above it is worth a warning, never a failure
LIKE_OTHERS = 0.90
# Paths whose rate is a part of that of one PCIe link, by kind.
PATHS = {
    "staged": "through host memory",
    "staged-across": "through host memory across sockets",
    "staged-uplink": "through host memory, both behind one uplink",
    "host": "to host memory",
}
OVER = 1.02  # of the line rate: no link carries more


class Level(NamedTuple):
    """One number and its healthy value. links: NVLinks of the pair, where copies go over them."""

    value: float
    usual: Healthy
    links: int = 0

    @property
    def part(self) -> float:
        return self.value / self.usual.gb_s

    @property
    def z(self) -> float:
        """Deviations from the healthy median, negative below it."""
        return log(self.value / self.usual.gb_s) / self.usual.spread

    @property
    def is_healthy(self) -> bool:
        return self.z >= HEALTHY


def direct(m: Machine, pair: Pair, cls: str | None = None, value: float = 0.0) -> Healthy | None:
    """Return what a peer copy of a pair reaches; None if no rate is known.

    cls: of a path other than the pair's own. value: measured, GB/s; it excludes NVLinks that cannot carry it.
    """
    cls = cls or m.classes[pair]
    if m.joined(pair) or (cls or "").startswith("NV"):
        options = (int(cls[2:]),) if cls and cls.startswith("NV") else m.wirings(pair)
        rate = slower(*(nvlink_of(m.gpu(i).model) for i in pair))
        boards = [found for links in options if (found := nvlink_copy(links, rate, m.measured.method.engine))]
        possible = [one for one in boards if value <= OVER * one.line] or boards[:1]
        if not possible or cls or m.is_wiring_known(pair):
            return possible[0] if possible else None
        # Several healthy machines: PASS holds on the fastest of them, a failure on the slowest.
        kind, basis = (*possible[0].kind, "any wiring"), f"{possible[0].basis}, wiring unknown"
        return possible[0]._replace(vague=True, kind=kind, basis=basis, least=possible[-1].far)
    line = m.line(pair)
    return peer_copy(cls, line.generation, line.width, intel=m.intel) if line else None


def staged(m: Machine, pair: Pair) -> Healthy | None:
    """Return what a copy of a pair through host memory reaches; None if a link is not known."""
    rates, shared, line = healthy_rates(), m.shares_uplink(pair), m.line(pair)
    if line is None:
        return None
    if shared:
        spread, kind = rates.staged_shared_uplink, "staged-uplink"
    elif m.crosses(pair):
        spread, kind = rates.staged_across_sockets, "staged-across"
    else:
        spread, kind = rates.staged, "staged"
    return _of_link(line, spread, kind)


def host_copy(m: Machine, i: int, *, far: bool | None) -> Healthy | None:
    """Return what copies between GPU i and host memory reach. far: of another NUMA node; None if not known."""
    model = m.models[i]
    if model and model.c2c:
        # Memory of another Grace CPU is behind the link between the two: how fast copies from there are is not known.
        near = c2c_copy(model.c2c)
        return None if far else near if far is False else near._replace(vague=m.several_nodes)
    rates, link = healthy_rates(), m.to_host(i)
    if link is None:
        return None
    near, away = (_of_link(link, spread, "host") for spread in (rates.host_copy, rates.host_copy_far))
    if far is None and m.several_nodes:
        kind, basis = (*near.kind, "any node"), f"{near.basis}, NUMA node of the memory unknown"
        return near._replace(vague=True, least=away.far, kind=kind, basis=basis)
    return away if far else near


def _of_link(link: Link, spread: tuple[float, float], kind: str) -> Healthy:
    basis = f"PCIe Gen{link.generation} x{link.width} {link.gb_s:g} GB/s x {spread[0]:.2f} ({PATHS[kind]})"
    return Healthy(link.gb_s * spread[0], spread[1], link.gb_s, (kind, link.generation, link.width), basis)


def level(value: float, usual: Healthy | None, links: int = 0) -> Level | None:
    """Return the number next to its healthy value, None if that is not known."""
    return Level(value, usual, links) if usual else None


def levels(m: Machine, *, through_host: bool = False) -> dict[Pair, Level]:
    """Return the middle of both directions of each pair that was measured and has a healthy value.

    through_host: copies staged through host memory: with P2P off, and those of pairs without access.
    """
    found = {}
    for pair in m.pairs:
        denied = m.access[pair] is False and not m.links(pair)
        if through_host:
            values = m.one_way(pair, staged=True) or (m.one_way(pair) if denied else [])
        else:
            values = [] if denied else m.one_way(pair)
        usual = (staged(m, pair) if through_host else direct(m, pair, value=median(values))) if values else None
        if usual:
            found[pair] = Level(median(values), usual, 0 if through_host else m.joined(pair))
    return found


def verdict_of(rows: Iterable[Level]) -> Verdict:
    """Return the verdict by how far below healthy the middle of these numbers is, of the worst kind of path."""
    kinds: dict[Alike, list[Level]] = {}
    for row in rows:
        kinds.setdefault(row.usual.alike, []).append(row)
    return worst(_of_kind(same) for same in kinds.values())


def _of_kind(rows: list[Level]) -> Verdict:
    z, part = median(row.z for row in rows), median(row.part for row in rows)
    far = median(row.value / row.usual.far for row in rows) < 1
    if z >= HEALTHY:
        return Verdict.PASS
    vague = any(row.usual.vague for row in rows)
    if far and part < SLIGHT:
        return Verdict.FAIL
    return Verdict.UNKNOWN if vague else Verdict.WARN


class Doubtful(NamedTuple):
    """one_way: ordered pairs; both_ways: pairs with both directions at once. The slowest first."""

    one_way: tuple[Pair, ...] = ()
    both_ways: tuple[Pair, ...] = ()


def doubtful(seen: Observations) -> Doubtful:
    """Return pairs with numbers to measure again alone: below the healthy range, or below pairs of the same kind."""
    m = Machine(seen)
    one_way, both_ways = [], []
    for pair in m.pairs:
        usual = direct(m, pair) if m.access[pair] is not False or m.links(pair) else staged(m, pair)
        if usual is None:
            continue
        (i, j), uni, both = pair, m.measured.p2p_uni_gb_s, m.measured.p2p_bidir_gb_s
        one_way += [((a, b), value, usual) for a, b in (pair, (j, i)) if uni and (value := uni[a][b])]
        if both and (value := both[i][j] or both[j][i]) and m.access[pair] is not False:
            both_ways.append((pair, value, both_directions(usual, nvlink=bool(m.joined(pair)))))
    low = _low(one_way)
    slow = {frozenset(pair) for pair in low}
    return Doubtful(low, tuple(pair for pair in _low(both_ways) if frozenset(pair) not in slow))


def _low(rows: list[tuple[Pair, float, Healthy]]) -> tuple[Pair, ...]:
    parts: dict[Alike, list[float]] = {}
    for _, value, usual in rows:
        parts.setdefault(usual.alike, []).append(value / usual.gb_s)
    like = {kind: median(values) for kind, values in parts.items()}
    found = [(v / u.gb_s, pair) for pair, v, u in rows if v < u.low or v / u.gb_s < LIKE_OTHERS * like[u.alike]]
    return tuple(pair for _, pair in sorted(found))
