"""One explanation of a machine, and what it predicts: which way copies go, over which links, and what they reach.

A World is a healthy machine with the changes of one set of Instances. Prediction is a pure function of the World.
"""

from math import log

from gpucheck.diagnose._names import nvlink_of
from gpucheck.diagnose.instance import Instance, Way
from gpucheck.diagnose.machine import Machine, rate_of
from gpucheck.diagnose.numbers import Number
from gpucheck.diagnose.paths import Pair
from gpucheck.diagnose.score import Prediction
from gpucheck.knowledge import nvlink_factor, predictions
from gpucheck.knowledge.links import Spread
from gpucheck.topology.expected import slower

WIDE, ODD = (1.2, 0.8), (0.4, 0.3)  # spreads of what follows no prediction: a whole machine, a pair or GPU
UNKNOWN_RAW, UNKNOWN_SPREAD = 16.0, 1.0  # an unknown rate: any value, but the same for all


class World:
    """A machine with a set of instances. Cheap to build; predictions are made on demand."""

    def __init__(self, machine: Machine, instances: tuple[Instance, ...] = ()) -> None:
        self.machine, self.instances = machine, instances
        # What holds for all GPUs comes first, so that what holds for one of them overrides it.
        changes = sorted((instance.change for instance in instances), key=lambda change: -len(change.links))
        self.links = {gpu: link for change in changes for gpu, link in change.links.items()}
        self.parts = {gpu: part for change in changes for gpu, part in change.parts.items()}
        self.uplinks = {group: raw for change in changes for group, raw in change.uplinks.items()}
        self.ways = {pair: way for change in changes for pair, way in change.ways.items()}
        self.nvlinks = {pair: count for change in changes for pair, count in change.nvlinks.items()}
        self.odd = frozenset().union(*(change.odd for change in changes))
        self.symptoms: dict[str, float] = {}
        for change in changes:
            for symptom, probability in change.symptoms.items():
                self.symptoms[symptom] = max(probability, self.symptoms.get(symptom, 0.0))
        self._raw: dict[Pair, tuple[float, bool]] = {}

    def way(self, pair: Pair) -> Way:
        """How copies of a pair go with peer-to-peer asked for."""
        if pair in self.ways:
            return self.ways[pair]
        m = self.machine
        if m.access[pair] is False:
            return "staged"
        joined = m.is_nvlink(pair) or self.nvlinks.get(pair) or m.unseen_links[pair]
        return "nvlink" if joined else "direct"

    def link(self, gpu: int) -> float | None:
        """Raw GB/s of a GPU's own link."""
        raw, most = self.machine.raw[gpu], self.machine.link[gpu]
        if gpu in self.links:
            generation, width = self.links[gpu]
            raw = rate_of(generation or most.max_generation, width or most.max_width)
            if raw is None and width:
                raw = UNKNOWN_RAW * width / 16
        if gpu in self.parts:
            return self.parts[gpu] * (UNKNOWN_RAW if raw is None else raw)
        return raw

    def raw(self, pair: Pair) -> tuple[float, bool]:
        """Raw GB/s of the slowest link between two GPUs, and whether those of both are known."""
        if pair not in self._raw:
            i, j = pair
            own = self.link(i), self.link(j)
            above = [self._above(group) for group in self.machine.groups if (i in group) != (j in group)]
            whole = None not in own
            known = [rate for rate in (*own, *above) if rate is not None]
            self._raw[pair] = min(known if whole else [*known, UNKNOWN_RAW]), whole
        return self._raw[pair]

    def _above(self, group: frozenset[int]) -> float | None:
        return self.uplinks[group] if group in self.uplinks else self.machine.uplink[group]

    def line(self, pair: Pair) -> float | None:
        """Raw GB/s that no copy between two GPUs exceeds; None where it is not known."""
        m = self.machine
        if self.way(pair) == "nvlink":
            rate = slower(*(nvlink_of(m.gpu(i).model) for i in pair))
            links = self.nvlinks.get(pair, m.links(pair))
            return rate.gb_s * links if rate and links and m.is_nvlink(pair) else None
        raw, whole = self.raw(pair)
        return raw if whole and m.classes[pair] is not None else None

    def usual(self, pair: Pair) -> float | None:
        """Median of what a copy of this pair reaches one way, GB/s; None where its links are not known."""
        predicted = self._one_way(Number("p2p-one-way", *pair, 0.0), pair, self.way(pair))
        return predicted.median if predicted.between < UNKNOWN_SPREAD else None

    def predict(self, number: Number) -> Prediction | None:
        """The number's prediction; None where it is not compared (nothing about it is known)."""
        q = number.quantity
        if number.b is None:
            return self._host(number)
        pair = number.pair
        staged = q in ("staged-one-way", "staged-both-ways", "staged-latency")
        way: Way = "staged" if staged else self.way(pair)
        if self._is_odd(number, pair, q):
            wide = WIDE if ("host",) in self.odd else ODD
            return Prediction(self._usual(number, pair, way), *wide, ("odd", q, pair), "no explanation predicts it")
        if q in ("p2p-latency", "staged-latency"):
            group = q, way, self._kind(pair)
            return _of(number, predictions().latency_us[way], 1.0, group, f"small copies, {way}")
        if q in ("p2p-both-ways", "staged-both-ways"):
            return self._both(number, pair, way, staged)
        return self._one_way(number, pair, way)

    def _kind(self, pair: Pair) -> tuple[str | None, bool | None]:
        """Pairs with equal class and NUMA nodes share their unknown factors."""
        return self.machine.classes[pair], self.machine.crosses_nodes(pair)

    def _is_odd(self, number: Number, pair: Pair, q: str) -> bool:
        if not self.odd or q.startswith("staged"):
            return ("host",) in self.odd and q == "staged-one-way"
        i, j = number.a, number.b
        if q == "p2p-both-ways" and ("both", *pair) in self.odd:
            return True
        return bool(self.odd & {("host",), pair, ("way", i, j), ("gpu", i), ("gpu", j)})

    def _usual(self, number: Number, pair: Pair, way: Way) -> float:
        if number.quantity == "p2p-latency":
            return predictions().latency_us[way][0]
        alone = self.machine.alone(pair, staged=False)
        if number.quantity == "p2p-both-ways" and alone is not None:
            return 0.55 * alone
        base = self._one_way(number, pair, way)
        return base.median * (0.6 if number.quantity == "p2p-one-way" else 1.1)

    def _one_way(self, number: Number, pair: Pair, way: Way) -> Prediction:
        p, m = predictions(), self.machine
        if way == "nvlink" or (number.cls or "").startswith("NV"):
            return self._nvlink(number, pair)
        raw, whole = self.raw(pair)
        cls = number.cls or m.classes[pair]
        usual = p.direct[cls if cls in p.direct else "unknown"]
        if way == "direct":
            spread, name = usual, cls or "an unknown path"
        elif way == "staged":
            spread, name = self._staged(pair)
        else:
            spread, name = {
                "redirected": (p.redirected, "redirected by bridges"),
                "translated": (p.translated, "translated by the IOMMU"),
                "poor": (p.poor, "a poor root complex"),
            }[way]
            spread = (spread[0], spread[1], max(spread[2], usual[2]))  # no explanation is the better for being vague
        basis = f"{raw:g} GB/s raw x {spread[0]:.2f} ({name})" if whole else f"like the other pairs ({name})"
        return _of(number, spread, raw, (number.quantity, way, self._kind(pair)), basis, whole)

    def _staged(self, pair: Pair) -> tuple[Spread, str]:
        p, shared = predictions(), self.machine.share_uplink(pair)
        if shared:
            return p.staged_shared_uplink, "through host memory, both behind one uplink"
        if self.machine.crosses_nodes(pair):
            return p.staged_across_sockets, "through host memory across sockets"
        if shared is None:
            return p.staged_unknown_uplink, "through host memory"
        return p.staged, "through host memory"

    def _nvlink(self, number: Number, pair: Pair) -> Prediction:
        m, p = self.machine, predictions()
        unseen = m.unseen_links[pair]
        links = self.nvlinks.get(pair, m.links(pair) or unseen)
        if (number.cls or "").startswith("NV"):
            links, unseen = int((number.cls or "")[2:]), 0
        rate = slower(*(nvlink_of(m.gpu(i).model) for i in pair))
        engine = m.measured.method.engine
        group = number.quantity, "nvlink"
        if rate is None or not links:
            spread = (1.0, UNKNOWN_SPREAD, p.nvlink[2])
            return _of(number, spread, 25.0 * max(links, 1), group, "like pairs with as many links")
        factor = nvlink_factor(rate.generation, "sm" if engine == "sm" else "ce")
        spread = p.nvlink if engine == "ce" else p.nvlink_unknown_engine
        if unseen and not m.is_nvswitch and not m.mesh:
            spread = (0.6, 0.7, spread[2])  # any part of the product's links may join two of its GPUs
        basis = f"{links} NVLinks x {rate.gb_s:g} GB/s x {factor:.2f}"
        return _of(number, spread, links * rate.gb_s * factor, group, basis)

    def _both(self, number: Number, pair: Pair, way: Way, staged: bool) -> Prediction:
        p, alone = predictions(), self.machine.alone(pair, staged)
        known = {"direct": p.direct_both_ways, "nvlink": p.nvlink_both_ways, "staged": p.staged_both_ways}
        part = known.get(way, p.slow_both_ways)
        if alone is not None:
            basis = f"{alone:.3g} GB/s one way and back x {part[0]:g}"
            return _of(number, part, alone, (number.quantity, way, self._kind(pair)), basis)
        one = self._one_way(number, pair, way)
        between = (one.between**2 + part[1] ** 2) ** 0.5
        within = (one.within**2 + part[2] ** 2) ** 0.5
        basis = f"2 x {one.basis} x {part[0]:g} both ways"
        return Prediction(2 * part[0] * one.median, between, within, one.group, basis)

    def _host(self, number: Number) -> Prediction | None:
        p, m, gpu = predictions(), self.machine, number.a
        if ("memory",) in self.odd or ("memory", gpu) in self.odd:
            return Prediction(8.0, 1.0, 0.3, "slow host memory", "host memory is the limit, not the link")
        own = self.link(gpu)
        above = [rate for group in m.groups if gpu in group and (rate := self._above(group)) is not None]
        known = [rate for rate in (own, *above) if rate is not None]
        spread = p.host_copy_far if number.far or (number.far is None and m.several_nodes) else p.host_copy
        raw = min(known) if own is not None else UNKNOWN_RAW
        if own is not None and number.value > log(1.05 * raw):
            return None  # host copies have a faster way than PCIe (NVLink to the CPU)
        basis = f"{raw:g} GB/s raw x {spread[0]:.2f} to host memory" if own is not None else "like the other GPUs"
        return _of(number, spread, raw, ("host", number.far), basis, own is not None)


def _of(number: Number, spread: Spread, scale: float, group: object, basis: str, known: bool = True) -> Prediction:
    between = spread[1] if known else UNKNOWN_SPREAD
    within = (spread[2] ** 2 + number.error**2) ** 0.5
    return Prediction(spread[0] * scale, between, within, (group, known), basis)
