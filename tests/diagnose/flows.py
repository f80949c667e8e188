"""Machines from first principles: links with a capacity, and copies as flows that share them fairly.

No rate of a copy is drawn. Drawn are the capacities of one machine's links: the rate
of the standard times an efficiency. A copy is a flow over its route; both directions, rings and pairs at the same time
come out of max-min fair sharing. A fault changes a link, a route, the access or the data, and its effect follows.

``machine(seed)`` is deterministic. `visible` compares the observations with those of the same machine without faults
under the same noise: False says that nobody can see the faults in them.
"""

import copy
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Edge = tuple[str, str]
Pair = tuple[int, int]
Link = dict[str, int]  # gen, width, max_gen, max_width: what a PCIe link trained to, and what both of its ends can do.

# Gb/s per lane and direction after the line code: PCI-SIG, Base Specification 5.0, sections 4.2 and 8.
PCIE_LANE = {1: 2.5 * 8 / 10, 2: 5 * 8 / 10, 3: 8 * 128 / 130, 4: 16 * 128 / 130, 5: 32 * 128 / 130}
# Payload share of a link: 256 B of payload per 20 to 28 B of header, CRC and framing, acknowledgments and flow control
# (Base Specification, sections 2.2 and 3.5), and what copy engines reach in NVIDIA's published nvbandwidth samples.
PCIE_SHARE = {3: (0.78, 0.84), 4: (0.79, 0.86), 5: (0.82, 0.90)}
# NVLink generation -> share of the nominal rate that a copy gets (nominal rates: white papers of V100, A100 and
# H100; copies: samples of p2pBandwidthLatencyTest and nvbandwidth in NVIDIA's documentation).
NVLINK_SHARE = {0: (1.0, 1.0), 2: (0.95, 0.97), 3: (0.90, 0.94), 4: (0.83, 0.88)}
# Shares of a link that are the machine's: peer copies that turn at the root complex, the way between sockets, a copy
# through host memory, both directions of such, and what NCCL gets of a ring (ranges of public tables of machines).
HOST_SHARE = {"turn": (0.9, 1), "cross": (0.7, 0.95), "staging": (0.6, 0.85), "stage": (1.3, 1.7), "ring": (0.84, 0.95)}
TRANSLATED_TURN = 0.45  # Of a full link, with an IOMMU that translates: reports of half the rate and less.
NOISE = 0.01  # Standard deviation of a measured value, relative; it depends on the seed and the value's place alone.


@dataclass(frozen=True)
class Card:
    """A GPU model. link_gb_s: nominal NVLink rate per link and direction; wiring: bridge, mesh, switch or empty."""

    name: str
    gen: int
    bar1_mib: int
    links: int = 0
    link_gb_s: float = 0.0
    nvlink: int = 0
    wiring: str = ""


P100 = Card("Tesla P100-PCIE-16GB", 3, 16384)
T4 = Card("Tesla T4", 3, 256)
V100 = Card("Tesla V100-SXM2-16GB", 3, 16384, 6, 25.0, 2, "mesh")
A100 = Card("NVIDIA A100-SXM4-80GB", 4, 131072, 12, 25.0, 3, "switch")
A100_PCIE = Card("NVIDIA A100 80GB PCIe", 4, 131072, 12, 25.0, 3, "bridge")
H100 = Card("NVIDIA H100 80GB HBM3", 5, 131072, 18, 25.0, 4, "switch")
L40S = Card("NVIDIA L40S", 4, 65536)
A6000 = Card("NVIDIA RTX A6000", 4, 65536, 4, 14.0625, 3, "bridge")
PRO6000 = Card("NVIDIA RTX PRO 6000 Blackwell Server Edition", 5, 131072)
RTX3090 = Card("NVIDIA GeForce RTX 3090", 4, 32768, 4, 14.0625, 3, "bridge")
RTX4090 = Card("NVIDIA GeForce RTX 4090", 4, 32768)
RTX5090 = Card("NVIDIA GeForce RTX 5090", 5, 32768)
# Links between the GPUs of a DGX-1 with V100: system architecture white paper of NVIDIA, hybrid cube mesh.
CUBE_MESH = dict.fromkeys([(0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)], 1)
CUBE_MESH |= dict.fromkeys([(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)], 2)
# Platform -> cards, numbers of GPUs, sockets, GPUs of a PCIe switch (0: own root ports), lanes of a slot.
PLATFORMS: dict[str, tuple[list[Card], list[int], int, int, int]] = {
    "desktop": ([RTX3090, RTX4090, RTX5090, A6000], [2], 1, 0, 8),
    "workstation": ([A6000, PRO6000, RTX3090, RTX4090, P100], [2, 3, 4], 1, 0, 16),
    "dual-socket": ([L40S, P100, A100_PCIE, PRO6000], [4, 8], 2, 0, 16),
    "switched": ([L40S, PRO6000, P100], [8], 1, 4, 16),
    "switched-dual": ([L40S, PRO6000, A100_PCIE], [8], 2, 4, 16),
    "dgx1": ([V100], [8], 2, 2, 16),
    "hgx": ([A100, H100], [8], 2, 2, 16),
    "guest": ([T4, L40S], [2, 4], 1, 0, 16),
}


@dataclass
class World:
    """A machine: PCIe links of the GPUs and of the switches' uplinks, NVLinks and peer access of pairs, capacities."""

    seed: int
    platform: str
    card: Card
    sockets: int
    group: int
    ports: list[Link]
    uplinks: list[Link]
    nv: dict[Pair, int]
    access: set[Pair]
    share: dict[str, float]
    small_bar: set[int] = field(default_factory=set)
    bad: list[Pair] = field(default_factory=list)
    damage: str = ""  # A kind of damage, or hang: nothing arrives.
    iommu: str = "off"
    redirect: bool = False
    fake: bool = False  # Access is granted, and copies go through host memory all the same.
    known: dict[Edge, float] = field(default_factory=dict)  # Capacities, once a copy was asked for.

    def links(self, a: int, b: int) -> int:
        return self.nv.get((min(a, b), max(a, b)), 0)

    def capacities(self) -> dict[Edge, float]:
        """Every directed link with what it carries in GB/s; turns at a CPU and staging of a GPU are links too."""
        lane = {gen: gb_s / 8 * self.share["pcie"] for gen, gb_s in PCIE_LANE.items()}
        full = 16 * lane[self.card.gen]
        turn = TRANSLATED_TURN if self.iommu == "translating" else self.share["turn"]
        found = dict.fromkeys([("cpu0", "cpu1"), ("cpu1", "cpu0")], self.share["cross"] * full)
        found |= {("turn", f"gpu{i}"): turn * full for i in range(len(self.ports))}
        for i, port in enumerate(self.ports):
            for edge, link in zip(self.up(i), (port, *self.uplinks[i // (self.group or 1) :]), strict=False):
                found[edge] = found[edge[::-1]] = link["width"] * lane[link["gen"]]
            found["stage", f"gpu{i}"] = self.share["stage"] * port["width"] * lane[port["gen"]]
        for pair, links in self.nv.items():
            for a, b in (pair, pair[::-1]):
                found[f"gpu{a}", f"nv{b}"] = rate = links * self.card.link_gb_s * self.share["nvlink"]
                for edge in ((f"gpu{a}", "out"), ("in", f"gpu{b}")):  # To NVSwitches a GPU has these links once.
                    before = found.get(edge, 0.0)
                    found[edge] = max(before, rate) if self.card.wiring == "switch" else before + rate
        return found

    def up(self, i: int) -> list[Edge]:
        switch = [f"switch{i // self.group}"] if self.group else []
        stops = [f"gpu{i}", *switch, f"cpu{i * self.sockets // len(self.ports)}"]
        return list(itertools.pairwise(stops))

    def routes(self, a: int, b: int, staged: bool) -> list[list[Edge]]:
        """The route of a direct copy, or the two of a copy through host memory of the sender's socket."""
        up, down = self.up(a), [edge[::-1] for edge in reversed(self.up(b))]
        here, there = up[-1][1], down[0][0]
        cross = [(here, there)] if here != there else []
        if staged or self.fake or (min(a, b), max(a, b)) not in self.access:
            return [[*up, ("stage", f"gpu{a}")], [("stage", f"gpu{b}"), *cross, *down]]
        if self.links(a, b):
            return [[(f"gpu{a}", f"nv{b}"), (f"gpu{a}", "out"), ("in", f"gpu{b}")]]
        if up[0][1] == down[-1][0] and self.group and not self.redirect and self.iommu != "translating":
            return [[up[0], down[-1]]]
        return [[*up, ("turn", f"gpu{a}"), *cross, *down]]

    def copies(self, pairs: list[Pair], staged: bool = False) -> list[float]:
        wanted = [self.routes(a, b, staged) for a, b in pairs]
        self.known = self.known or self.capacities()
        rates = iter(fair_share([route for routes in wanted for route in routes], self.known))
        slowest = [(len(routes), min(next(rates) for _ in routes)) for routes in wanted]
        return [rate * (self.share["staging"] if halves == 2 else 1.0) for halves, rate in slowest]

    def noisy(self, value: float, *key: object) -> float:
        return round(value * random.Random(f"{self.seed}/{key}").gauss(1, NOISE), 2)

    def square(self, cell: Callable[[int, int], Any], diagonal: object = None) -> list[list[Any]]:
        gpus = range(len(self.ports))
        return [[diagonal if a == b else cell(a, b) for b in gpus] for a in gpus]

    def table(self, name: str, staged: bool = False, both: bool = False) -> list[list[Any]]:
        return self.square(lambda a, b: self.noisy(sum(self.copies([(a, b), (b, a)][: 1 + both], staged)), name, a, b))

    def relation(self, a: int, b: int) -> str:
        links, one, other = self.links(a, b), self.up(a), self.up(b)
        if links or one[-1][1] != other[-1][1]:
            return f"NV{links}" if links else "SYS"
        near = "PHB" if self.platform in ("desktop", "workstation", "guest") else "NODE"
        return "PIX" if self.group and one[0][1] == other[0][1] else near

    def gpu(self, i: int, rich: bool) -> dict[str, Any]:
        port, card = self.ports[i], self.card
        found: dict[str, Any] = {"model": card.name, "pcie": port | {"max_width": 16, "read": "load"}}
        if not rich:
            return found
        kind = "chipset" if port["max_width"] == 4 else "switch" if self.group else "root-port"
        found |= {
            "numa_node": int(self.up(i)[-1][1].removeprefix("cpu")),
            "bar1_mib": 256 if i in self.small_bar else card.bar1_mib,
        }
        found |= {"bus_id": f"0000:{16 * i + 1:02x}:00.0", "path": [{"kind": kind} | port]}
        active = [links for pair, links in self.nv.items() if i in pair]
        if card.wiring in ("mesh", "switch") or active:
            up = max(active, default=0) if card.wiring == "switch" else sum(active)
            found["nvlinks"] = {"active": up, "total": card.links}
        return found

    def observe(self, level: str) -> dict[str, Any]:
        rich, gpus = level == "rich", list(range(len(self.ports)))
        stuck, hang = self.damage == "hang", {"op": "all_reduce", "gpus": gpus, "with_p2p_off": False}
        measured: dict[str, Any] = {"hang": hang} if stuck else {"p2p_uni_gb_s": self.table("uni")}
        found: dict[str, Any] = {"gpus": {"count": len(gpus), "model": self.card.name}, "measured": measured}
        if level == "poor":
            return found
        found |= {"gpus": [self.gpu(i, rich) for i in gpus], "matrix": self.square(self.relation, "X")}
        found["p2p_access"] = self.square(lambda a, b: (min(a, b), max(a, b)) in self.access, True)
        measured["staged_uni_gb_s"] = self.table("staged", staged=True)
        measured |= {} if stuck else {"p2p_bidir_gb_s": self.table("both", both=True)}
        if not rich:
            return found
        found["host"] = {"virtual": self.platform == "guest", "iommu": self.iommu, "sockets": self.sockets}
        found["host"]["acs_redirect"] = self.redirect
        below = [gpus[first : first + self.group] for first in range(0, len(gpus), self.group or len(gpus))]
        found["uplinks"] = [link | {"gpus": behind} for link, behind in zip(self.uplinks, below, strict=False)]
        host = [self.noisy(fair_share([self.up(i)], self.capacities())[0], "host", i) for i in gpus]
        measured["host_device"] = [{"gpu": i, "h2d_gb_s": rate, "d2h_gb_s": rate} for i, rate in enumerate(host)]
        measured |= {} if stuck else {"integrity_bad_pairs": [list(pair) for pair in self.bad]}
        measured |= {"damage": self.damage} if self.bad and not stuck else {}
        if not stuck and self.card.wiring != "mesh":  # There NCCL weaves rings of its own.
            rates = self.copies(ring := [(i, (i + 1) % len(gpus)) for i in gpus])
            total, busbw = self.noisy(sum(rates), "flows"), self.noisy(min(rates) * self.share["ring"], "ring")
            measured["flows"] = [{"pairs": [list(pair) for pair in ring], "total_gb_s": total}]
            measured["collectives"] = [{"op": "all_reduce", "ranks": len(gpus), "busbw_gb_s": busbw}]
        return found


def fair_share(routes: list[list[Edge]], capacity: dict[Edge, float]) -> list[float]:
    """Max-min fair rates of flows: all grow alike until a link of theirs is full."""
    left, rates, growing = dict(capacity), [0.0] * len(routes), set(range(len(routes)))
    while growing:
        users = {edge: sum(routes[flow].count(edge) for flow in growing) for flow in growing for edge in routes[flow]}
        step = min(left[edge] / count for edge, count in users.items())
        left |= {edge: left[edge] - step * count for edge, count in users.items()}
        rates = [rate + step * (flow in growing) for flow, rate in enumerate(rates)]
        growing = {flow for flow in growing if all(left[edge] > 1e-9 for edge in routes[flow])}
    return rates


def _healthy(seed: int, rng: random.Random) -> World:
    name = rng.choice(list(PLATFORMS))
    cards, counts, sockets, group, lanes = PLATFORMS[name]
    card, count = rng.choice(cards), rng.choice(counts)
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
    nv = {"mesh": dict(CUBE_MESH), "switch": dict.fromkeys(pairs, card.links)}.get(card.wiring, {})
    if card.wiring == "bridge" and name != "desktop" and count % 2 == 0 and rng.random() < 0.7:
        nv = {(a, a + 1): card.links for a in range(0, count, 2)}
    shares = HOST_SHARE | {"pcie": PCIE_SHARE[card.gen], "nvlink": NVLINK_SHARE[card.nvlink]}
    over_pcie = "GeForce" not in card.name and name not in ("guest", "dgx1")
    links = [{"gen": card.gen, "width": width, "max_gen": card.gen, "max_width": width} for width in (lanes, 16)]
    ports, uplinks = [dict(links[0]) for _ in range(count)], [dict(links[1]) for _ in range(count // (group or 99))]
    share = {key: rng.uniform(*limits) for key, limits in shares.items()}
    return World(seed, name, card, sockets, group, ports, uplinks, nv, set(pairs) if over_pcie else set(nv), share)


@dataclass
class Faults:
    """One method a fault, named as its cause. It changes the machine and returns whether it can befall this one."""

    world: World
    rng: random.Random

    def _narrow(self, links: list[Link], choices: list[Link]) -> bool:
        link, choice = self.rng.choice(links or [{}]), self.rng.choice(choices)
        lower = all(link.get(key, 0) > value for key, value in choice.items())
        link |= choice
        return lower and self.world.platform != "guest"

    def pcie_width_reduced(self) -> bool:
        return self._narrow(self.world.ports, [{"width": width} for width in (8, 4, 2, 1)])

    def pcie_link_downgraded(self) -> bool:
        return self._narrow(self.world.ports, [{"gen": gen} for gen in (1, 2, 3, 4)])

    def uplink_downgraded(self) -> bool:
        return self._narrow(self.world.uplinks, [{"gen": 2}, {"gen": 3}, {"gen": 4}, {"width": 8}, {"width": 4}])

    def gpu_behind_chipset(self) -> bool:
        gen = min(self.world.card.gen, self.rng.choice([3, 4]))
        self.world.ports[-1] |= {"gen": gen, "width": 4, "max_gen": gen, "max_width": 4}
        return self.world.platform in ("desktop", "workstation")

    def acs_redirect(self) -> bool:
        self.world.redirect = True
        return self.world.platform.startswith("switched")

    def iommu_translation(self) -> bool:
        affected = sorted(self.world.access - set(self.world.nv))
        self.world.iommu, self.world.damage = "translating", self.rng.choice(["", "zeros", "hang"])
        self.world.bad = affected if self.world.damage else []
        return bool(affected)

    def nvlink_down(self) -> bool:
        nv, lost = self.world.nv, self.rng.choice([1, 1, 2])
        hit = self.rng.sample(sorted(nv), min(1, len(nv)))
        hit = [pair for pair in nv if hit[0][0] in pair] if self.world.card.wiring == "switch" else hit
        nv.update({pair: nv[pair] - lost for pair in hit})
        return bool(hit) and min(nv.values()) > 0

    def nvlink_missing(self) -> bool:
        nv, fits = self.world.nv, self.world.card.wiring == "bridge" and len(self.world.nv) > 1
        lost = {pair: nv.pop(pair) for pair in self.rng.sample(sorted(nv), int(fits))}
        self.world.access -= set(lost) if "GeForce" in self.world.card.name else set()
        return fits

    def fabric_manager_down(self) -> bool:
        self.world.nv.clear()
        self.world.access = self.rng.choice([self.world.access, set()])
        return self.world.platform == "hgx"

    def false_p2p_grant(self) -> bool:
        refused = sorted({(a, b) for b in range(len(self.world.ports)) for a in range(b)} - self.world.access)
        self.world.access |= set(refused)
        self.world.damage = self.rng.choice(["zeros", "untouched", "zeros" if self.world.nv else ""])
        self.world.fake, self.world.bad = not self.world.damage, refused if self.world.damage else []
        return bool(refused) and self.world.platform != "dgx1"

    def data_corruption(self) -> bool:
        access = sorted(self.world.access)
        self.world.bad, self.world.damage = self.rng.sample(access, min(1, len(access))), "bit-flip"
        return bool(access)

    def rebar_off(self) -> bool:
        gpu = self.rng.randrange(len(self.world.ports))
        self.world.small_bar.add(gpu)
        self.world.access -= {pair for pair in self.world.access - set(self.world.nv) if gpu in pair}
        return self.world.card in (PRO6000, A6000, L40S) and self.world.platform != "guest"


FAULTS = [name for name in vars(Faults) if not name.startswith("_")]


def _differs(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() != other.keys() or any(_differs(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) != len(other) or any(map(_differs, one, other))
    both = isinstance(one, float) and isinstance(other, float)
    return abs(one - other) > 4 * NOISE * max(one, other) if both else bool(one != other)


@dataclass(frozen=True)
class Drawn:
    """A machine. faults: causes; visible: whether the observations show the faults at all, to anybody."""

    seed: int
    platform: str
    level: str
    observations: dict[str, Any]
    faults: frozenset[str]
    visible: bool


def machine(seed: int) -> Drawn:
    """Draw one machine: healthy in two of five, with two faults in one of twenty."""
    rng = random.Random(seed)
    healthy, level = _healthy(seed, rng), rng.choice(["rich", "middling", "poor"])
    world, faults, wanted = healthy, frozenset[str](), rng.choices([0, 1, 2], [40, 55, 5])[0]
    for name in rng.choices(FAULTS, k=60 * wanted):
        broken, cause = copy.deepcopy(world), name.replace("_", "-")
        done = len(faults) == wanted or cause in faults or world.bad
        if not done and getattr(Faults(broken, rng), name)():
            world, faults = broken, faults | {cause}
    seen, twin = world.observe(level), healthy.observe(level) if faults else {}
    return Drawn(seed, world.platform, level, seen, faults, bool(faults) and _differs(seen, twin))
