"""What a benchmark would measure on a generated machine: GB/s and microseconds, with noise on every number."""

import random
from collections.abc import Callable

from tests.diagnose.generator.cards import raw
from tests.diagnose.generator.world import Slot, World

Table = list[list[float | None]]
LONGEST_DEVIATION = 0.03


class Bench:
    """Measures one machine. Every call draws its own noise; the world's traits stay the same."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self.world = world
        self.rng = rng
        self.world_asymmetric = rng.random() < 0.3
        # Redirected copies mostly end up no better than staged ones, sometimes in between.
        self.redirect_cap = rng.uniform(0.7, 1.05) if rng.random() < 0.75 else 9.0

    def noisy(self, value: float) -> float:
        part = max(-LONGEST_DEVIATION, min(LONGEST_DEVIATION, self.rng.gauss(0, self.world.traits.sigma)))
        return round(value * (1 + part), 2)

    def table(self, cell: Callable[[int, int], float]) -> Table:
        n = self.world.count
        return [[None if i == j else self.noisy(cell(i, j)) for j in range(n)] for i in range(n)]

    # Links

    def gpu_raw(self, slot: Slot) -> float:
        return raw(slot.link.gen, slot.link.width)

    def uplink_raw(self, slot: Slot) -> float:
        if slot.switch is None:
            return 1e9
        link = self.world.switches[slot.switch].link
        return raw(link.gen, link.width)

    def to_host(self, slot: Slot) -> float:
        """Raw GB/s of the narrowest link between a GPU and the CPU."""
        return min(self.gpu_raw(slot), self.uplink_raw(slot)) * (self.world.traits.chipset if slot.chipset else 1)

    # Copies

    def uses_p2p(self, i: int, j: int) -> bool:
        """Whether the copy really goes from GPU to GPU."""
        if self.world.links(i, j):
            return True
        dead = self.world.nvlink_dead or self.world.false_grant == "staged"
        return self.world.p2p and not dead

    def p2p(self, i: int, j: int) -> float:
        """GB/s one way with peer-to-peer requested, before noise."""
        return self.direct(i, j) if self.uses_p2p(i, j) else self.staged(i, j)

    def direct(self, i: int, j: int) -> float:
        world, traits = self.world, self.world.traits
        links = world.links(i, j)
        if links:
            return links * world.slots[i].card.link_gb_s * traits.nvlink
        rate = self.unharmed(i, j)
        a = world.slots[i]
        if world.together(i, j) and a.switch in world.redirected:
            return min(rate * traits.redirect, self.redirect_cap * self.staged(i, j))
        if world.translated == "slow":
            return min(rate * traits.translate, self.redirect_cap * self.staged(i, j))
        if world.false_grant == "one-way" and (i > j) == self.world_asymmetric:
            return rate * 0.43  # A 4090 pair with a falsely granted P2P read 27 one way and 11.5 the other.
        return rate

    def unharmed(self, i: int, j: int) -> float:
        """GB/s of peer copies over PCIe: the narrowest link, and the share that the CPUs between pass on."""
        world, traits = self.world, self.world.traits
        a, b = world.slots[i], world.slots[j]
        path = world.path(i, j)
        if path in ("PIX", "PXB"):
            lowest = min(self.gpu_raw(a), self.gpu_raw(b)) * traits.payload
            return lowest * (traits.cascade if path == "PXB" else 1)
        lowest = min(self.to_host(a), self.to_host(b)) * traits.payload
        share = traits.socket if path == "SOCKET" else traits.bridge
        full = raw(min(a.link.built_gen, b.link.built_gen), 16)
        return min(lowest, share * full)

    def staged(self, i: int, j: int) -> float:
        world, traits = self.world, self.world.traits
        rate = traits.staged * min(self.to_host(world.slots[i]), self.to_host(world.slots[j]))
        if world.together(i, j):
            rate *= traits.staged_shared
        if world.path(i, j) == "SOCKET":
            rate *= traits.staged_socket
        return rate

    def path_key(self, i: int, j: int) -> str:
        return "NVLINK" if self.world.links(i, j) else self.world.path(i, j)

    def p2p_both(self, i: int, j: int) -> float:
        """GB/s of both directions together with peer-to-peer requested."""
        if not self.uses_p2p(i, j):
            return self.staged_both(i, j)
        return (self.direct(i, j) + self.direct(j, i)) / 2 * self.world.traits.both[self.path_key(i, j)]

    def staged_both(self, i: int, j: int) -> float:
        share = self.world.traits.staged_both
        return self.staged(i, j) * (1 + (share - 1) * 0.4 if self.world.together(i, j) else share)

    # Latency, us

    def p2p_latency(self, i: int, j: int) -> float:
        world, traits = self.world, self.world.traits
        if not self.uses_p2p(i, j):
            return self.staged_latency(i, j)
        time = traits.latency[self.path_key(i, j)]
        if world.links(i, j):
            return time
        redirected = world.together(i, j) and world.slots[i].switch in world.redirected
        if redirected or world.translated == "slow":
            time *= traits.redirect_latency
        return min(3.9, time + 0.5 * (world.slots[i].chipset + world.slots[j].chipset))

    def staged_latency(self, i: int, j: int) -> float:
        """Staged latency varies from cell to cell: 11 to 21 us on one published machine."""
        return min(21.5, max(9.3, self.world.traits.staged_latency * self.rng.uniform(0.85, 1.2)))

    # Other measurements

    def host_copies(self) -> list[dict[str, float]]:
        """H2D and D2H of every GPU, from its own NUMA node."""
        rows = []
        for slot in self.world.slots:
            rate = self.world.traits.host_copy * self.to_host(slot)
            rows.append(
                {"gpu": slot.index, "numa_node": slot.node, "h2d_gb_s": self.noisy(rate), "d2h_gb_s": self.noisy(rate)}
            )
        return rows

    def flows(self) -> list[dict[str, object]]:
        """Copies at the same time: two inside switches (or apart), and two that cross the same two uplinks."""
        found: list[dict[str, object]] = []
        groups = [switch.gpus for switch in self.world.switches if len(switch.gpus) > 1]
        if len(groups) > 1:
            inside = [[group[0], group[1]] for group in groups[:2]]
            found.append({"pairs": inside, "total_gb_s": self.noisy(sum(self.p2p(a, b) for a, b in inside))})
            across = [[groups[0][0], groups[1][0]], [groups[0][1], groups[1][1]]]
            total = self.p2p(*across[0]) * self.rng.uniform(0.92, 1.0)
            if any(self.world.links(a, b) for a, b in across):
                total = sum(self.p2p(a, b) for a, b in across)
            elif self.world.collapse:
                total *= self.rng.uniform(0.12, 0.40)
            found.append({"pairs": across, "total_gb_s": self.noisy(total)})
        elif not groups and self.world.count >= 4:
            apart = [[0, 1], [2, 3]]
            share = self.rng.uniform(0.88, 1.0)
            found.append({"pairs": apart, "total_gb_s": self.noisy(share * sum(self.p2p(a, b) for a, b in apart))})
        return found
