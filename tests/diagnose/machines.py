"""SIMULATED machines for the rules: numbers worked out from link rates, with one fault each.

Nothing here comes from the real cases: other GPU counts, models, generations and groups, noise on every number.
"""

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

RAW = {3: 15.75, 4: 31.5, 5: 63.0}
MODEL = {3: "Tesla P100-PCIE-16GB", 4: "NVIDIA A10", 5: "NVIDIA RTX PRO 6000 Blackwell Server Edition"}
GEFORCE = {3: "NVIDIA GeForce RTX 2070", 4: "NVIDIA GeForce RTX 4090", 5: "NVIDIA GeForce RTX 5090"}


@dataclass
class Shape:
    """count GPUs in switch groups of `group` (1 = on root ports), `sockets` sockets, PCIe generation."""

    count: int = 8
    group: int = 4
    sockets: int = 1
    generation: int = 4
    noise: float = 0.0
    seed: int = 1
    rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def cls(self, i: int, j: int) -> str:
        if i // self.group == j // self.group:
            return "PIX"
        return "NODE" if self.node(i) == self.node(j) else "SYS"

    def node(self, i: int) -> int:
        half = -(-self.count // self.sockets)
        return i // half

    def about(self, value: float) -> float:
        return round(value * (1 + self.noise * self.rng.uniform(-1, 1)), 2)

    def matrix(self, cell: Callable[[int, int], Any]) -> list[list[Any]]:
        return [[None if i == j else cell(i, j) for j in range(self.count)] for i in range(self.count)]

    def rates(self, cell: Callable[[int, int], float]) -> list[list[float | None]]:
        return self.matrix(lambda i, j: self.about(cell(i, j)))

    def pairs(self, i: int, j: int) -> bool:
        return i // self.group == j // self.group


PART = {"PIX": 0.86, "NODE": 0.80, "SYS": 0.72}


def healthy(shape: Shape, model: str | None = None) -> dict[str, Any]:
    """A complete set of observations: direct, staged, both ways, latency, host copies."""
    raw = RAW[shape.generation]
    link = {"gen": shape.generation, "width": 16, "max_gen": shape.generation, "max_width": 16, "read": "load"}
    direct = shape.rates(lambda i, j: raw * PART[shape.cls(i, j)])
    return {
        "gpus": [
            {
                "model": model or MODEL[shape.generation],
                "bus_id": f"0000:{0x10 + i:02x}:00.0",
                "numa_node": shape.node(i),
                "pcie": dict(link),
                "bar1_mib": 131072,
            }
            for i in range(shape.count)
        ],
        "matrix": shape.matrix(shape.cls),
        "p2p_access": shape.matrix(lambda i, j: True),
        "host": {
            "virtual": False,
            "iommu": "off",
            "acs_redirect": False,
            "sockets": shape.sockets,
            "cpu": "AMD EPYC 9374F",
        },
        "measured": {
            "p2p_uni_gb_s": direct,
            "p2p_bidir_gb_s": shape.rates(lambda i, j: 1.7 * raw * PART[shape.cls(i, j)]),
            "staged_uni_gb_s": shape.rates(lambda i, j: 0.62 * raw * (0.5 if shape.pairs(i, j) else 1)),
            "p2p_latency_us": shape.rates(lambda i, j: 1.6),
            "staged_latency_us": shape.rates(lambda i, j: 14.0),
            "method": {"engine": "ce", "direction": "write"},
            "host_device": [
                {
                    "gpu": i,
                    "numa_node": shape.node(i),
                    "h2d_gb_s": shape.about(0.84 * raw),
                    "d2h_gb_s": shape.about(0.84 * raw),
                }
                for i in range(shape.count)
            ],
            "integrity_bad_pairs": [],
        },
    }


def capped(shape: Shape, seen: dict[str, Any], limit: Callable[[int, int], float]) -> None:
    """No direct or staged number above the limit of its pair."""
    for name, part in (("p2p_uni_gb_s", 1.0), ("p2p_bidir_gb_s", 1.7), ("staged_uni_gb_s", 0.8)):
        for i, row in enumerate(seen["measured"][name]):
            for j, value in enumerate(row):
                if value is not None:
                    row[j] = min(value, shape.about(part * limit(i, j)))


def slow_device(shape: Shape, lost: str = "width", reported: bool = True) -> dict[str, Any]:
    """GPU 1 has fewer lanes or a lower generation. reported: its link was read."""
    seen = healthy(shape)
    raw = RAW[shape.generation] / 4 if lost == "width" else RAW[shape.generation] / 2 ** (2 if lost == "two" else 1)
    if lost == "width":
        seen["gpus"][1]["pcie"]["width"] = 4
    else:
        seen["gpus"][1]["pcie"]["gen"] -= 1
    capped(shape, seen, lambda i, j: 0.85 * raw if 1 in (i, j) else 1e9)
    row = seen["measured"]["host_device"][1]
    row["h2d_gb_s"] = row["d2h_gb_s"] = round(0.84 * raw, 2)
    if not reported:
        del seen["gpus"][1]["pcie"]
        del seen["measured"]["host_device"]
    return seen


def slow_uplink(shape: Shape, reported: bool = True) -> dict[str, Any]:
    seen = healthy(shape)
    raw = RAW[shape.generation] / 4
    behind = range(shape.group)
    capped(shape, seen, lambda i, j: 0.86 * raw if (i in behind) != (j in behind) else 1e9)
    for i in behind:
        row = seen["measured"]["host_device"][i]
        row["h2d_gb_s"] = row["d2h_gb_s"] = round(0.84 * raw, 2)
    seen["measured"]["staged_uni_gb_s"] = shape.rates(
        lambda i, j: 0.3 * raw if i in behind and j in behind else 0.6 * raw if i in behind or j in behind
        else 0.62 * RAW[shape.generation] * (0.5 if shape.pairs(i, j) else 1)
    )  # fmt: skip
    full = {"max_gen": shape.generation, "max_width": 16, "read": "load"}
    seen["uplinks"] = [{**full, "bus_id": "0000:01:00.0", "gen": shape.generation, "width": 4, "gpus": list(behind)}]
    if not reported:
        del seen["uplinks"]
        del seen["measured"]["host_device"]
        del seen["measured"]["staged_uni_gb_s"]
    return seen


def redirected(shape: Shape, **host: Any) -> dict[str, Any]:
    """Pairs below a switch go up to the root complex and back: slower than staged. All others are as they should be."""
    return _detour(shape, shape.pairs, 0.34, 2.5, host)


def translated(shape: Shape, **host: Any) -> dict[str, Any]:
    """Pairs that pass a host bridge are translated by the IOMMU; those below a switch never meet it."""
    return _detour(shape, lambda i, j: not shape.pairs(i, j), 0.25, 4.5, host)


def _detour(
    shape: Shape, slow: Callable[[int, int], bool], part: float, latency: float, host: dict[str, Any]
) -> dict[str, Any]:
    seen = healthy(shape)
    raw = RAW[shape.generation]
    way = shape.rates(lambda i, j: part * raw)
    for name, values in (
        ("p2p_uni_gb_s", way),
        ("p2p_bidir_gb_s", shape.rates(lambda i, j: 1.5 * part * raw)),
        ("p2p_latency_us", shape.rates(lambda i, j: latency)),
    ):
        for i, row in enumerate(seen["measured"][name]):
            row[:] = [values[i][j] if v is not None and slow(i, j) else v for j, v in enumerate(row)]
    seen["host"].update({"iommu": "unknown", "acs_redirect": "unknown", **host})
    return seen


def same_generation(shape: Shape, read: str | None = "load") -> dict[str, Any]:
    seen = healthy(shape)
    for gpu in seen["gpus"]:
        gpu["pcie"]["gen"] -= 1
        gpu["pcie"]["read"] = read
    raw = RAW[shape.generation] / 2
    for name in ("p2p_uni_gb_s", "p2p_bidir_gb_s", "staged_uni_gb_s"):
        seen["measured"][name] = [[v and round(v / 2, 2) for v in row] for row in seen["measured"][name]]
    for row in seen["measured"]["host_device"]:
        row["h2d_gb_s"] = row["d2h_gb_s"] = shape.about(0.84 * raw)
    return seen


def without_p2p(shape: Shape, model: str | None = None) -> dict[str, Any]:
    seen = healthy(shape, model)
    raw = RAW[shape.generation]
    staged = shape.rates(lambda i, j: (0.36 if shape.pairs(i, j) else 0.62) * raw)
    seen["p2p_access"] = "none"
    seen["measured"].update(p2p_uni_gb_s=staged, staged_uni_gb_s=copy.deepcopy(staged))
    seen["measured"]["p2p_bidir_gb_s"] = shape.rates(lambda i, j: (0.45 if shape.pairs(i, j) else 0.7) * raw)
    seen["measured"]["p2p_latency_us"] = shape.rates(lambda i, j: 14.0)
    return seen


def nvlinked(
    count: int, model: str, links: int, rate: float, part: float, *, per_gpu: int = 0, noise: float = 0.0, seed: int = 1
) -> dict[str, Any]:
    shape = Shape(count, 1, 2, 5, noise, seed)
    seen = healthy(shape, model)
    seen["matrix"] = shape.matrix(lambda i, j: f"NV{links}")
    for gpu in seen["gpus"]:
        gpu["nvlinks"] = {"active": per_gpu or links, "total": per_gpu or links}
    line = links * rate * part
    seen["measured"]["p2p_uni_gb_s"] = shape.rates(lambda i, j: line)
    seen["measured"]["p2p_bidir_gb_s"] = shape.rates(lambda i, j: 1.95 * line)
    return seen


def permuted(seen: dict[str, Any], order: list[int]) -> dict[str, Any]:
    """The same machine with its GPUs numbered differently: order[new] = old."""
    new = {old: i for i, old in enumerate(order)}
    return {key: _renumbered(key, value, order, new) for key, value in copy.deepcopy(seen).items()}


def _renumbered(key: str, value: Any, order: list[int], new: dict[int, int]) -> Any:
    if key == "gpus" and isinstance(value, list):
        return [value[old] for old in order] if value and isinstance(value[0], dict) else [new[i] for i in value]
    if isinstance(value, list) and (key in ("matrix", "p2p_access", "p2p_status") or key[-5:] in ("_gb_s", "cy_us")):
        return [[value[a][b] for b in order] for a in order]
    if key in ("pairs", "integrity_bad_pairs"):
        return [[new[a], new[b]] for a, b in value]
    if key == "gpu":
        return new[value]
    if isinstance(value, dict):
        return {name: _renumbered(name, inner, order, new) for name, inner in value.items()}
    if key in ("uplinks", "host_device", "flows"):
        return [{name: _renumbered(name, inner, order, new) for name, inner in row.items()} for row in value]
    return value
