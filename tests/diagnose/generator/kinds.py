"""The kinds of machines, and the drawing of a healthy one."""

import random
from dataclasses import dataclass

from tests.diagnose.generator import traits
from tests.diagnose.generator.cards import (
    BRIDGED_CARDS,
    DESKTOP_CARDS,
    MESH_CARDS,
    NVSWITCH_CARDS,
    PCIE_CARDS,
    SERVER_CARDS,
    Card,
)
from tests.diagnose.generator.world import Link, Slot, Switch, World

# Kind -> share of machines: half are of the kinds that people ask about most (desktops and switched servers).
KINDS = {
    "desktop": 22,
    "server": 10,
    "dual-server": 13,
    "switched": 22,
    "bridged": 10,
    "mesh": 5,
    "nvswitch": 10,
    "virtual": 8,
}


@dataclass(frozen=True)
class _Plan:
    """What is decided before GPUs get their places. group: GPUs of a switch, 0 without switches; x8: split slots."""

    kind: str
    card: Card
    count: int
    sockets: int = 1
    group: int = 0
    server: bool = True
    x8: bool = False
    virtual: bool = False


def draw(rng: random.Random) -> World:
    """Draw a machine without faults; its truth holds only limits that belong to its design."""
    plan = _plan(rng)
    gen = plan.card.gen
    if plan.kind != "nvswitch" and gen > 3 and rng.random() < 0.08:
        gen -= 1  # An older platform: the driver reports the platform's generation as the maximum.
    vendor, cpu = traits.cpu(rng, gen, plan.server)
    # One NUMA node a GPU, or two GPUs, of one EPYC socket: nvidia-smi prints SYS although one CPU serves them.
    split = vendor == traits.AMD and plan.server and not plan.group and not plan.virtual and rng.random() < 0.2
    world = World(
        kind=plan.kind,
        slots=_slots(rng, plan, gen, split),
        switches=[],
        sockets=plan.sockets,
        cpu=cpu,
        virtual=plan.virtual,
        traits=traits.draw(rng, vendor, gen, plan.card.nvlink_gen),
        iommu="off" if plan.virtual or rng.random() < 0.6 else "identity",
        nodes_are_sockets=not split,
    )
    if plan.group:
        _add_switches(rng, world, plan, gen)
    _add_nvlinks(rng, world, plan)
    _set_peer_access(rng, world, plan)
    return world


def _plan(rng: random.Random) -> _Plan:
    kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
    if kind == "desktop":
        count = rng.choice([2, 2, 2, 2, 3, 4])
        card = rng.choice(DESKTOP_CARDS)
        return _Plan(kind, card, count, server=False, x8=count == 2 and rng.random() < 0.5)
    if kind == "server":
        return _Plan(kind, rng.choice(SERVER_CARDS), rng.choice([2, 3, 4, 4, 6, 8]))
    if kind == "dual-server":
        return _Plan(kind, rng.choice(SERVER_CARDS), rng.choice([2, 4, 4, 6, 8, 8, 10]), 2)
    if kind == "switched":
        count, group = rng.choice([(4, 2), (4, 4), (6, 2), (8, 4), (8, 4), (8, 2), (10, 5), (16, 4), (16, 8)])
        return _Plan(kind, rng.choice(SERVER_CARDS), count, 2 if count > group and rng.random() < 0.5 else 1, group)
    if kind == "bridged":
        card = rng.choice(BRIDGED_CARDS)
        count = rng.choice([2, 2, 4, 4, 8])
        if card.geforce:
            return _Plan(kind, card, min(count, 4), server=count > 2)
        return _Plan(kind, card, count, rng.choice([1, 2]) if count > 2 else 1)
    if kind == "mesh":
        return _Plan(kind, rng.choice(MESH_CARDS)[0], 4, rng.choice([1, 2]))
    if kind == "nvswitch":
        card = rng.choice(NVSWITCH_CARDS)
        group = 2 if card.gen == 4 else 0
        return _Plan(kind, card, 8, 2, group, virtual=rng.random() < 0.2)
    card = rng.choice([card for card in PCIE_CARDS if not card.geforce])
    return _Plan(kind, card, rng.choice([2, 2, 4, 4, 8]), rng.choice([1, 1, 2]), virtual=True, x8=rng.random() < 0.15)


def _slots(rng: random.Random, plan: _Plan, gen: int, split: bool) -> list[Slot]:
    half = -(-plan.count // plan.sockets)
    spacing = rng.choice([0x01, 0x04, 0x10]) if plan.count <= 8 else 0x04
    first = rng.choice([0x01, 0x03, 0x07, 0x1A])
    one_bridge = not plan.server or plan.virtual or rng.random() < 0.2
    slots = []
    for i in range(plan.count):
        socket = i // half
        width = 8 if plan.x8 else 16
        bus = first + i * spacing + (0x40 if socket else 0)
        slots.append(
            Slot(
                index=i,
                card=plan.card,
                bus_id=f"0000:{bus:02x}:00.0",
                socket=socket,
                node=(i if plan.count <= 4 * plan.sockets else i // 2) if split else socket,
                bridge=socket if one_bridge else i,
                link=Link(gen, width, gen, 16 if plan.virtual or rng.random() < 0.7 else width, gen),
                port_width=width,
                slot_bus=f"0000:00:{i + 1:02x}.1" if one_bridge and not socket else f"0000:{bus - 1:02x}:01.1",
            )
        )
    if split and rng.random() < 0.5:
        # Boards number NUMA nodes in another order than buses.
        nodes = sorted({slot.node for slot in slots if not slot.socket})
        turned = dict(zip(nodes, reversed(nodes), strict=True))
        for slot in slots:
            slot.node = turned.get(slot.node, slot.node)
    return slots


def _add_switches(rng: random.Random, world: World, plan: _Plan, gen: int) -> None:
    cascaded = plan.group >= 4 and rng.random() < 0.35
    for at, start in enumerate(range(0, world.count, plan.group)):
        behind = [slot for slot in world.slots if start <= slot.index < start + plan.group]
        for slot in behind:
            # A switch belongs to one socket, whatever the split of the GPUs gave.
            slot.socket = behind[0].socket
            slot.node = behind[0].node
            slot.switch = at
            slot.slot_bus = f"0000:{0xF0 + at:02x}:{slot.index - start:02x}.0"
        world.switches.append(
            Switch(
                bus_id=f"0000:{0xE8 + at:02x}:00.0",
                root_bus=f"0000:{0xE0 + at:02x}:01.0",
                socket=behind[0].socket,
                link=Link(gen, 16, gen, 16, gen),
                gpus=[slot.index for slot in behind],
                cascaded=cascaded,
            )
        )
    world.sockets = 1 + max(slot.socket for slot in world.slots)


def _add_nvlinks(rng: random.Random, world: World, plan: _Plan) -> None:
    links = plan.card.links
    if plan.kind == "bridged":
        world.pair_links = {(i, i + 1): links for i in range(0, world.count - 1, 2)}
    elif plan.kind == "mesh":
        links = next(per_pair for card, per_pair in MESH_CARDS if card == plan.card)
        world.pair_links = dict.fromkeys(world.pairs(), links)
    elif plan.kind == "nvswitch":
        world.pair_links = dict.fromkeys(world.pairs(), links)
    for slot in world.slots:
        of_pairs = [n for pair, n in world.pair_links.items() if slot.index in pair]
        slot.nvlinks = links if plan.kind == "nvswitch" else sum(of_pairs)


def _set_peer_access(rng: random.Random, world: World, plan: _Plan) -> None:
    """Whether the driver lets GPUs copy over PCIe. GeForce: only with a patched driver, a third of those seen."""
    if plan.virtual and plan.kind == "virtual":
        world.p2p = world.granted = rng.random() < 0.4
    elif plan.card.geforce:
        world.p2p = world.granted = plan.kind == "desktop" and plan.card.gen > 3 and rng.random() < 0.35
