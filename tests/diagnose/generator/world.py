"""The state of one generated machine: what is plugged in where, what is broken, and the machine's own constants."""

from dataclasses import dataclass, field

from tests.diagnose.generator.cards import Card


@dataclass
class Link:
    """A PCIe link as trained (gen, width), as reported possible (max), and as the product is built (built_gen)."""

    gen: int
    width: int
    max_gen: int
    max_width: int
    built_gen: int


@dataclass
class Slot:
    """One GPU in its place. switch: index into World.switches; nvlinks: active ones.

    port_width: width of the port above the GPU; slot_bus: that port.
    """

    index: int
    card: Card
    bus_id: str
    socket: int
    node: int
    bridge: int
    link: Link
    port_width: int
    slot_bus: str
    switch: int | None = None
    chipset: bool = False
    nvlinks: int = 0


@dataclass
class Switch:
    """A PCIe switch. bus_id: its upstream port; root_bus: the root port at the other end of that link."""

    bus_id: str
    root_bus: str
    socket: int
    link: Link
    gpus: list[int] = field(default_factory=list)
    cascaded: bool = False


@dataclass
class Traits:
    """What is common to all numbers of one machine (a latent factor for each class of path), drawn once.

    Shares of the raw rate of the narrowest link unless the name says otherwise.
    """

    payload: float
    cascade: float
    bridge: float
    socket: float
    nvlink: float
    staged: float
    staged_shared: float
    staged_socket: float
    staged_both: float
    both: dict[str, float]
    latency: dict[str, float]
    staged_latency: float
    host_copy: float
    chipset: float
    redirect: float
    redirect_latency: float
    translate: float
    sigma: float


@dataclass
class World:
    """One machine. matrix_links: NVLinks of each pair; pairs are (lower, higher) indices.

    p2p: whether copies over PCIe go directly. granted: whether the driver says so. nvlink_dead: no pair can use NVLink.
    """

    kind: str
    slots: list[Slot]
    switches: list[Switch]
    sockets: int
    cpu: str
    virtual: bool
    traits: Traits
    pair_links: dict[tuple[int, int], int] = field(default_factory=dict)
    p2p: bool = True
    granted: bool = True
    iommu: str = "off"
    nodes_are_sockets: bool = True
    nvlink_dead: bool = False
    redirected: set[int] = field(default_factory=set)
    translated: str | None = None
    false_grant: str | None = None
    collapse: bool = False
    bad_pairs: list[tuple[int, int]] = field(default_factory=list)
    damage: str | None = None
    hang: bool = False
    decoys: set[str] = field(default_factory=set)
    truth: set[tuple[str, str]] = field(default_factory=set)

    @property
    def count(self) -> int:
        return len(self.slots)

    def card_is_geforce(self) -> bool:
        return self.slots[0].card.geforce

    def pairs(self) -> list[tuple[int, int]]:
        return [(i, j) for i in range(self.count) for j in range(i + 1, self.count)]

    def links(self, i: int, j: int) -> int:
        """NVLinks between two GPUs that work."""
        return 0 if self.nvlink_dead else self.pair_links.get((min(i, j), max(i, j)), 0)

    def together(self, i: int, j: int) -> bool:
        """Whether both GPUs are behind one PCIe switch."""
        return self.slots[i].switch is not None and self.slots[i].switch == self.slots[j].switch

    def path(self, i: int, j: int) -> str:
        """The PCIe class by structure: PIX PXB PHB NODE SOCKET (other CPU)."""
        a, b = self.slots[i], self.slots[j]
        if self.together(i, j):
            switch = self.switches[a.switch or 0]
            half = len(switch.gpus) // 2
            split = switch.cascaded and (switch.gpus.index(i) < half) != (switch.gpus.index(j) < half)
            return "PXB" if split else "PIX"
        if a.socket != b.socket:
            return "SOCKET"
        return "PHB" if a.bridge == b.bridge else "NODE"

    def shown(self, i: int, j: int) -> str:
        """The class as nvidia-smi topo -m prints it: NVLink first; SYS between NUMA nodes even of one socket."""
        links = self.pair_links.get((min(i, j), max(i, j)), 0)
        if links:
            return f"NV{links}"
        path = self.path(i, j)
        if path == "SOCKET" or (path in ("NODE", "PHB") and self.slots[i].node != self.slots[j].node):
            return "SYS"
        return path
