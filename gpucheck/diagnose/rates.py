"""Every measured pair beside what it should reach: links x payload x path factor, and from where it is too little.

GB/s is 10**9 bytes per second, one direction; a bidirectional sum is halved before it is compared.
"""

from functools import cached_property
from typing import NamedTuple

from msgspec.structs import replace

from gpucheck.diagnose._names import nvlink_of
from gpucheck.diagnose.machine import Machine, Pair, rate_of
from gpucheck.knowledge import both_ways_part, cpu_link_gb_s, nvlink_factor, nvlink_limits, pcie_limits, staged_paths
from gpucheck.model.hardware import Gpu
from gpucheck.model.observations import Matrix
from gpucheck.topology.expected import expected, slower

# Kernels carry 128-byte payloads and NCCL's protocol costs another tenth: 72 of 100 GB/s is right (nccl-tests#331).
SM_WARN, SM_FAIL = 0.85, 0.70


class Goal(NamedTuple):
    """What a pair should reach one way. warn, fail: below is too little. line: nothing can exceed it.

    staged: through host memory, where both ways at once add up to hardly more than one.
    """

    gb_s: float
    warn: float
    fail: float
    line: float
    basis: str
    staged: bool = False


class Rate(NamedTuple):
    """A measured pair, per direction. way: uni, bidir (halved sum) or class (the low end of a range)."""

    pair: Pair
    gb_s: float
    way: str
    goal: Goal | None

    @property
    def ratio(self) -> float | None:
        """Measured over expected."""
        return self.gb_s / self.goal.gb_s if self.goal else None

    @property
    def level(self) -> str:
        """good, low (a warning), bad (a failure) or unknown."""
        if self.goal is None:
            return "unknown"
        warn, fail = self.goal.warn, self.goal.fail
        if self.way == "bidir" and self.goal.staged:
            warn, fail = warn / 2, fail / 2
        elif self.way == "bidir":
            warn, fail = warn * both_ways_part(), fail * both_ways_part()
        return "bad" if self.gb_s < fail else "low" if self.gb_s < warn else "good"


class Rates:
    """The numbers of one machine, judged one by one."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.measured = machine.measured

    @cached_property
    def goals(self) -> dict[Pair, Goal | None]:
        """What each pair should reach on the way its copies take."""
        return {pair: self.goal(pair) for pair in self.machine.pairs}

    def goal(self, pair: Pair) -> Goal | None:
        """Expected from the machine's model; None where a rate it depends on is not known."""
        m = self.machine
        if m.direct[pair] is False:
            return self.staged_goal(pair)
        if m.is_nvlink(pair):
            return self.nvlink_goal(pair)
        if m.classes[pair] is None and self._beyond_pcie(pair):
            return self._product_goal(pair)
        straight = self._pcie_goal(pair)
        through_host = self.staged_goal(pair)
        if m.direct[pair] is None and straight and through_host:
            words = f"{straight.basis}; low end as through host memory, the driver's permission is not known"
            return straight._replace(warn=through_host.warn, fail=through_host.fail, basis=words, staged=True)
        return straight

    def _beyond_pcie(self, pair: Pair) -> bool:
        """More was measured than a PCIe link carries: NVLinks that no matrix tells of."""
        raw = [self.machine.raw(i) for i in pair]
        return any(rate is not None and self._one_way(pair) > rate for rate in raw)

    def _one_way(self, pair: Pair) -> float:
        both = (lower(self.measured.p2p_bidir_gb_s, pair) or 0.0) / 2
        return lower(self.measured.p2p_uni_gb_s, pair) or both

    def _product_goal(self, pair: Pair) -> Goal | None:
        """What all NVLinks of the product reach; less may be fewer links or another board, so it is no answer."""
        models = [self.machine.models[i] for i in pair]
        links = [model.nvlink.links for model in models if model and model.nvlink]
        goal = self._links_goal(pair, min(links)) if len(links) == len(pair) else None
        return goal if goal and self._one_way(pair) >= goal.fail else None

    def _pcie_goal(self, pair: Pair) -> Goal | None:
        m = self.machine
        cls = m.classes[pair]
        found = expected(cls or "SYS", _gpu(m, pair[0]), _gpu(m, pair[1]), m.hops(pair), m.cpu)
        if found is None:
            return None
        fail = found.low_gb_s * pcie_limits().fail_below / pcie_limits().warn_below
        basis = found.basis if cls else f"{found.basis}; the path class is not known"
        if not all(m.link_told(i) for i in pair):
            basis += "; link as the board allows, the slot was not told"
        return Goal(found.unidirectional_gb_s, found.low_gb_s, fail, found.high_gb_s, basis)

    def nvlink_goal(self, pair: Pair) -> Goal | None:
        """links x payload x factor of the engine; with the engine not known, anything from kernel to copy engine."""
        return self._links_goal(pair, self.machine.links(pair))

    def _links_goal(self, pair: Pair, links: int) -> Goal | None:
        m, engine = self.machine, self.measured.method.engine
        rate = slower(*(nvlink_of(m.gpu(i).model) for i in pair))
        if rate is None or not links:
            return None
        try:
            ce, sm = nvlink_factor(rate.generation, "ce"), nvlink_factor(rate.generation, "sm")
        except LookupError:
            return None
        line, limits = links * rate.gb_s, nvlink_limits()
        factor = sm if engine == "sm" else ce
        words = f"{links} NVLink{'s' if links != 1 else ''} x {rate.gb_s:g} GB/s x {factor:.2f} "
        if engine == "ce":
            return Goal(line * ce, line * ce * limits.warn_below, line * ce * limits.fail_below, line, words + "ce")
        floor = min(ce, sm) * line
        words += "sm" if engine == "sm" else "ce; low end as kernels reach, the engine is not known"
        return Goal(line * factor, floor * SM_WARN, floor * SM_FAIL, line, words)

    def staged_goal(self, pair: Pair) -> Goal | None:
        """Through host memory: a part of the slower end's link, half of it where both share one uplink."""
        m, staged = self.machine, staged_paths()
        ends = [m.raw(i) for i in pair]
        above = [rate_of(p.max_gen or p.gen, p.max_width or p.width) for p in m.crossed(pair)]
        known = [rate for rate in (*ends, *above) if rate is not None]
        if None in ends or not known:
            return None
        raw, shared = min(known), m.share_uplink(pair)
        part = staged.shared_uplink if shared else 1.0
        low = staged.shared_uplink if shared is not False else 1.0
        goal = raw * staged.factor * part
        floor = raw * staged.factor * low
        # A socket link is between the two host copies: its planning figure bounds the low end (links.yml).
        if m.classes[pair] in ("SYS", None):
            floor = min(floor, self._socket_floor())
        words = f"{raw:g} GB/s x {staged.factor:.2f} through host memory" + (" x 0.5 shared uplink" if shared else "")
        return Goal(goal, floor * staged.warn_below, floor * staged.fail_below, raw, words, staged=True)

    def _socket_floor(self) -> float:
        links, cpu = cpu_link_gb_s(), self.machine.cpu
        return links[cpu.link] if cpu and cpu.link in links else min(links.values())

    def p2p(self, pair: Pair) -> Rate | None:
        """What was measured with P2P asked for: one way, else half of both ways, else the low end of its class."""
        ways = ((self.measured.p2p_uni_gb_s, "uni", 1.0), (self.measured.p2p_bidir_gb_s, "bidir", 0.5))
        for matrix, way, part in ways:
            value = lower(matrix, pair)
            if value is not None:
                return Rate(pair, value * part, way, self.goals[pair])
        span = self.measured.by_class.get(self.machine.classes[pair] or "")
        return Rate(pair, span[0], "class", self.goals[pair]) if span else None

    def staged(self, pair: Pair) -> Rate | None:
        """What was measured with P2P switched off."""
        ways = ((self.measured.staged_uni_gb_s, "uni", 1.0), (self.measured.staged_bidir_gb_s, "bidir", 0.5))
        for matrix, way, part in ways:
            value = lower(matrix, pair)
            if value is not None:
                return Rate(pair, value * part, way, self.staged_goal(pair))
        return None

    @cached_property
    def all(self) -> dict[Pair, Rate]:
        """The P2P measurement of every pair that has one."""
        found = {pair: self.p2p(pair) for pair in self.machine.pairs}
        return {pair: rate for pair, rate in found.items() if rate is not None}

    def class_only(self) -> dict[str, Rate]:
        """Ranges by class that no pair of the machine stands for, as when no matrix was told."""
        known = set(self.machine.classes.values())
        found = {}
        for cls, (low, _) in self.measured.by_class.items():
            if cls not in known:
                found[cls] = Rate((0, 1), low, "class", self._class_goal(cls))
        return found

    def _class_goal(self, cls: str) -> Goal | None:
        m = self.machine
        if m.count < 2:
            return None
        index = range(m.count)
        matrix = tuple(tuple(None if i == j else cls for j in index) for i in index)
        goals = Rates(Machine(replace(m.seen, matrix=matrix))).goals.values()
        known = [goal for goal in goals if goal is not None]
        return min(known, key=lambda goal: goal.warn) if len(known) == len(goals) else None

    def proven(self, i: int) -> float:
        """The most that was seen to pass a GPU's own PCIe link in one direction, GB/s; 0 where nothing was measured."""
        m, seen = self.measured, [0.0]
        for pair in self.machine.pairs:
            if i in pair:
                seen += [rate.gb_s for rate in (self.staged(pair),) if rate]
                if not self.machine.is_nvlink(pair) or self.machine.direct[pair] is False:
                    seen += [upper(m.p2p_uni_gb_s, pair) or 0.0, (upper(m.p2p_bidir_gb_s, pair) or 0.0) / 2]
        seen += [max(row.h2d_gb_s or 0.0, row.d2h_gb_s or 0.0) for row in m.host_device if row.gpu == i]
        return max(seen)


def lower(matrix: Matrix | None, pair: Pair) -> float | None:
    """The lower of the two directions."""
    return min(ways(matrix, pair), default=None)


def upper(matrix: Matrix | None, pair: Pair) -> float | None:
    """The higher of the two directions."""
    return max(ways(matrix, pair), default=None)


def ways(matrix: Matrix | None, pair: Pair) -> list[float]:
    """Both directions of a pair, as far as they were measured."""
    if matrix is None:
        return []
    return [value for i, j in (pair, pair[::-1]) if (value := matrix[i][j]) is not None]


def _gpu(machine: Machine, i: int) -> Gpu:
    return Gpu(index=i, name=machine.gpu(i).model or "", uuid="", pci_bus_id=machine.label(i), device_id="")
