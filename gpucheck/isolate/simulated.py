"""A fleet with drawn faults, for trying a search: nothing of it is measured."""

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gpucheck.isolate.search import Round
from gpucheck.model.isolation import GroupTest, State, Truth

GB_S, LATENCY_US = 390.0, 30.0
MOST_NODES = 100_000
SWITCH_NODES, NICS = 32, 8


class Spec(NamedTuple):
    """What is drawn. bad: slow nodes. loss: of bandwidth, 0 draws 10 to 40 % for each. noise: standard deviation.

    hangs, dies, wrong, cut: nodes with which a test never ends, fails, has wrong data, or an answer that is cut off.
    sometimes: nodes that are slow in half of the tests. links: slow connections of neighbours. switches: slow towards
    others. nics: slow cards, on all nodes. together: slow are tests of more nodes than that.
    """

    nodes: int = 64
    bad: int = 0
    loss: float = 0.0
    noise: float = 0.01
    seed: int = 0
    hangs: int = 0
    dies: int = 0
    wrong: int = 0
    cut: int = 0
    sometimes: int = 0
    links: int = 0
    switches: int = 0
    nics: int = 0
    together: int = 0


def parse_spec(text: str) -> Spec:
    """Return the fleet that ``nodes=1024,bad=20,loss=0.2`` names. Raises ValueError with a whole sentence."""
    given: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        if name not in Spec._fields or name in given:
            known = f"Available, each once: {', '.join(Spec._fields)}."
            raise ValueError(f"{part!r}: expected NAME=NUMBER. {known}")
        kind: type[int | float] = float if name in ("loss", "noise") else int
        try:
            given[name] = kind(value)
        except ValueError:
            raise ValueError(f"{part!r}: expected a number, such as {name}={Spec._field_defaults[name]}.") from None
        if not 0 <= given[name] <= (1 if kind is float else MOST_NODES):
            raise ValueError(f"{part!r}: expected 0 to {1 if kind is float else MOST_NODES}.")
    spec = Spec(**given)  # type: ignore[arg-type]  # the types are those of the fields
    faulty = spec.bad + spec.hangs + spec.dies + spec.wrong + spec.cut + spec.sometimes + 2 * spec.links
    if spec.nodes < 2 or faulty > spec.nodes:
        raise ValueError(f"nodes={spec.nodes}: expected at least 2, and one for each fault ({faulty}).")
    return spec


class SimulatedFleet:
    """Nodes sim0000, sim0001, ... by switches of 32. truth: what was drawn."""

    def __init__(self, spec: Spec) -> None:
        self.spec, self._rng = spec, random.Random(spec.seed)  # noqa: S311 - no secret
        self.nodes = [f"sim{at:04d}" for at in range(spec.nodes)]
        self.switch_of = {name: f"switch{at // SWITCH_NODES:03d}" for at, name in enumerate(self.nodes)}
        drawn = self._rng.sample(self.nodes, spec.nodes)
        kinds: dict[str, Sequence[str]] = {}
        for kind in ("bad", "hangs", "dies", "wrong", "cut", "sometimes"):
            kinds[kind] = [drawn.pop() for _ in range(getattr(spec, kind))]
        self._kind = {name: kind for kind, names in kinds.items() for name in names}
        self._loss = {name: self._draw() for name in (*kinds["bad"], *kinds["sometimes"])}
        starts = self._rng.sample(range(spec.nodes), spec.links)
        ends = [(self.nodes[at], self.nodes[(at + 1) % spec.nodes]) for at in starts]
        self._links = {frozenset(pair): self._draw() for pair in ends}
        switches = sorted(set(self.switch_of.values()))
        self._switches = {name: self._draw() for name in self._rng.sample(switches, min(spec.switches, len(switches)))}
        self._nics = {f"mlx5_{nic}": self._draw() for nic in self._rng.sample(range(NICS), min(spec.nics, NICS))}
        self._named_nics = [f"mlx5_{nic}" for nic in range(NICS)] if spec.nics else []
        self.truth = Truth(
            bad=tuple(sorted(self._kind)),
            links=tuple(sorted((min(a, b), max(a, b)) for a, b in ends)),
            switches=tuple(sorted(self._switches)),
            nics=tuple(sorted(self._nics)),
        )

    def _draw(self) -> float:
        return self.spec.loss or self._rng.uniform(0.1, 0.4)

    def run(self, tests: Round) -> list[GroupTest]:
        """Return the results of one round."""
        return [self._test(nodes) for nodes in tests]

    def _test(self, nodes: Sequence[str]) -> GroupTest:
        kinds = {self._kind.get(name) for name in nodes}
        states: Mapping[str, State] = {"hangs": "hung", "dies": "failed", "cut": "unreadable"}
        for kind, state in states.items():
            if kind in kinds:
                return GroupTest(nodes=tuple(nodes), state=state, detail="simulated")
        lost = max(self._losses(nodes), default=0.0)
        noise = self._rng.gauss(1, self.spec.noise)
        rate, alone = GB_S * (1 - lost) * noise, GB_S / NICS * noise
        return GroupTest(
            nodes=tuple(nodes),
            state="wrong" if "wrong" in kinds else "done",
            busbw_gb_s=round(rate, 3),
            latency_us=round(LATENCY_US * max(0.5, self._rng.gauss(1, 0.1)), 2),
            nics={name: round(alone * (1 - self._nics.get(name, 0.0)), 3) for name in self._named_nics},
        )

    def _losses(self, nodes: Sequence[str]) -> Iterable[float]:
        for name in nodes:
            if self._kind.get(name) == "bad" or (self._kind.get(name) == "sometimes" and self._rng.random() < 0.5):
                yield self._loss[name]
        if self._links:
            edges = zip(nodes, (*nodes[1:], nodes[0]), strict=True)
            yield from (self._links[edge] for edge in map(frozenset, edges) if edge in self._links)
        if self._switches:
            used = {self.switch_of[name] for name in nodes}
            yield from (loss for switch, loss in self._switches.items() if len(used) > 1 and switch in used)
        if self.spec.together and len(nodes) > self.spec.together:
            yield self.spec.loss or 0.2
        yield from self._nics.values()
