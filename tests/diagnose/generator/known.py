"""How much is known of a machine: which facts a report of it happens to contain."""

import random
from dataclasses import dataclass

# Fact -> chance that it is in a report that is rich (our own tool, run as root), middling (a forum post with
# nvidia-smi topo and p2pBandwidthLatencyTest) or poor (little more than one matrix).
CHANCES: dict[str, tuple[float, float, float]] = {
    "matrix": (0.97, 0.80, 0.35),
    "bus_id": (0.97, 0.50, 0.10),
    "numa_node": (0.95, 0.50, 0.10),
    "model": (0.99, 0.90, 0.60),
    "pcie": (0.95, 0.35, 0.10),
    "pcie_max": (0.95, 0.70, 0.50),
    "path": (0.75, 0.05, 0.0),
    "bar1": (0.80, 0.10, 0.03),
    "nvlinks": (0.95, 0.30, 0.05),
    "uplinks": (0.85, 0.08, 0.02),
    "p2p_access": (0.97, 0.80, 0.20),
    "p2p_status": (0.80, 0.12, 0.03),
    "p2p_uni": (0.98, 0.95, 0.80),
    "p2p_bidir": (0.90, 0.70, 0.20),
    "staged_uni": (0.90, 0.70, 0.15),
    "staged_bidir": (0.50, 0.50, 0.10),
    "p2p_latency": (0.90, 0.60, 0.10),
    "staged_latency": (0.85, 0.50, 0.05),
    "host_device": (0.90, 0.20, 0.10),
    "flows": (0.60, 0.06, 0.03),
    "method": (0.95, 0.30, 0.05),
    "integrity": (0.90, 0.10, 0.03),
    "no_hang": (0.40, 0.10, 0.0),
    "hang": (0.95, 0.95, 0.95),
    "iommu": (0.95, 0.30, 0.10),
    "acs": (0.85, 0.12, 0.03),
    "cpu": (0.97, 0.40, 0.15),
    "sockets": (0.95, 0.40, 0.10),
    "virtual": (0.97, 0.30, 0.15),
    "driver": (0.90, 0.30, 0.10),
}
LEVELS = ("rich", "middling", "poor")
SHARES = (35, 40, 25)


@dataclass(frozen=True)
class Known:
    """The facts that one report contains. reading: when the PCIe links were read; labeled: whether it says so."""

    level: str
    facts: frozenset[str]
    reading: str
    labeled: bool

    def __contains__(self, fact: str) -> bool:
        return fact in self.facts


def draw(rng: random.Random) -> Known:
    level = rng.choices(LEVELS, SHARES)[0]
    at = LEVELS.index(level)
    facts = {fact for fact, chances in CHANCES.items() if rng.random() < chances[at]}
    if not facts & {"matrix", "p2p_uni", "staged_uni", "p2p_bidir", "host_device"}:
        facts.add("p2p_uni")
    loaded = rng.random() < (0.85, 0.30, 0.30)[at]
    labeled = rng.random() < (1.0, 0.65, 0.5)[at]
    return Known(level, frozenset(facts), "load" if loaded else "idle", labeled)
