"""Faults: each changes a healthy machine, notes what is true of it, and says which machines it can befall."""

import random
from collections.abc import Callable

from tests.diagnose.generator.world import World

Pair = tuple[int, int]


def gpu_subject(world: World, index: int) -> str:
    return f"gpu:{world.slots[index].bus_id}"


def pair_subject(world: World, pair: Pair) -> str:
    low, high = sorted(pair)
    return f"pair:{world.slots[low].bus_id}-{world.slots[high].bus_id}"


def _over_pcie(world: World) -> list[Pair]:
    return [pair for pair in world.pairs() if not world.links(*pair)]


def _peer_pairs(world: World) -> list[Pair]:
    """Pairs whose copies go directly over PCIe."""
    return _over_pcie(world) if world.p2p else []


def note(world: World, cause: str, pairs: list[Pair]) -> None:
    """Note a cause of these pairs, and of the host if these are all pairs."""
    world.truth |= {(cause, pair_subject(world, pair)) for pair in pairs}
    if len(pairs) == len(world.pairs()):
        world.truth.add((cause, "host"))


def width_reduced(world: World, rng: random.Random) -> bool:
    """One GPU, sometimes two, on fewer lanes than its slot has."""
    fit = [slot for slot in world.slots if slot.link.width == 16 and not slot.chipset]
    if not fit:
        return False
    for slot in rng.sample(fit, min(len(fit), rng.choice([1, 1, 1, 1, 2]))):
        slot.link.width = rng.choice([8, 8, 4, 4, 1, 2])
        slot.link.max_width = 16
        world.truth.add(("pcie-width-reduced", gpu_subject(world, slot.index)))
    return True


def link_downgraded(world: World, rng: random.Random) -> bool:
    """One GPU trained to a lower generation; one machine in eight: all GPUs, by a BIOS setting."""
    fit = [slot for slot in world.slots if slot.link.gen == slot.link.built_gen]
    chosen = fit if rng.random() < 0.12 else rng.sample(fit, min(len(fit), 1))
    steps = rng.choice([1, 1, 1, 2])
    hidden = rng.random() < 0.15  # The slot's limit hides it: the driver reports the lower generation as the maximum.
    for slot in chosen:
        slot.link.gen = max(1, slot.link.built_gen - steps)
        slot.link.max_gen = slot.link.gen if hidden else slot.link.max_gen
        world.truth.add(("pcie-link-downgraded", gpu_subject(world, slot.index)))
    return bool(chosen)


def uplink_downgraded(world: World, rng: random.Random) -> bool:
    fit = [switch for switch in world.switches if switch.link.gen == switch.link.built_gen]
    if not fit:
        return False
    switch = rng.choice(fit)
    if rng.random() < 0.5:
        switch.link.width = rng.choice([8, 4])
    else:
        switch.link.gen = max(1, switch.link.built_gen - rng.choice([1, 1, 2]))
    world.truth.add(("uplink-downgraded", f"link:{switch.bus_id}"))
    note(world, "uplink-downgraded", [p for p in _over_pcie(world) if len(set(p) & set(switch.gpus)) == 1])
    return True


def behind_chipset(world: World, rng: random.Random) -> bool:
    """The last GPU of a desktop sits in a slot of the chipset: four lanes, of generation 4 at most."""
    if world.kind != "desktop":
        return False
    slot = world.slots[-1]
    if slot.link.width != slot.port_width:
        return False
    slot.chipset = True
    slot.link.gen = min(slot.link.gen, rng.choice([3, 4, 4]))
    slot.link.max_gen = slot.link.gen
    slot.link.width = slot.port_width = 4
    slot.slot_bus = "0000:00:1c.4"
    world.truth.add(("gpu-behind-chipset", gpu_subject(world, slot.index)))
    return True


def acs_redirect(world: World, rng: random.Random) -> bool:
    """Ports of all switches redirect; one time in four those of one switch only."""
    fit = [at for at, switch in enumerate(world.switches) if len(switch.gpus) > 1]
    inside = [pair for pair in _peer_pairs(world) if world.together(*pair)]
    if not fit or not inside or world.virtual or world.translated:
        return False
    world.redirected = set(fit) if rng.random() < 0.75 else {rng.choice(fit)}
    for at in world.redirected:
        world.truth.add(("acs-redirect", f"link:{world.switches[at].bus_id}"))
    note(world, "acs-redirect", [pair for pair in inside if world.slots[pair[0]].switch in world.redirected])
    return True


def iommu_translation(world: World, rng: random.Random) -> bool:
    pairs = _peer_pairs(world)
    if not pairs or world.virtual or world.redirected or world.false_grant:
        return False
    world.iommu = "translating"
    world.translated = rng.choice(["slow", "zeros", "hang"])
    if world.translated == "zeros":
        world.bad_pairs += pairs
        world.damage = "zeros"
    world.hang = world.translated == "hang"
    note(world, "iommu-translation", pairs)
    return True


def false_grant(world: World, rng: random.Random) -> bool:
    """Peer access is granted, but the copies are staged, or are fast and deliver other data."""
    pairs = _over_pcie(world)
    likely = world.card_is_geforce() or world.virtual or world.kind in ("desktop", "server", "dual-server")
    if not pairs or not likely or world.kind == "nvswitch" or world.translated or world.redirected:
        return False
    world.p2p = world.granted = True
    world.false_grant = rng.choices(["staged", "data", "one-way"], [45, 40, 15])[0]
    if world.false_grant != "staged":
        world.bad_pairs += pairs
        world.damage = rng.choice(["untouched", "zeros", "stale"])
    note(world, "false-p2p-grant", pairs)
    return True


def nvlink_missing(world: World, rng: random.Random) -> bool:
    """One of several bridged pairs has no bridge, or only some of its bridges (an A100 or H100 has three)."""
    pairs = list(world.pair_links)
    if world.kind != "bridged" or len(pairs) < 2:
        return False
    pair = rng.choice(pairs)
    left = (
        world.pair_links[pair] * rng.choice([1, 2]) // 3 if world.pair_links[pair] == 12 and rng.random() < 0.5 else 0
    )
    _set_links(world, pair, left)
    note(world, "nvlink-missing", [pair])
    return True


def nvlink_down(world: World, rng: random.Random) -> bool:
    """Links of one GPU are down: to the switches, or to one neighbor."""
    if not world.pair_links or world.nvlink_dead:
        return False
    pair = rng.choice(list(world.pair_links))
    links = world.pair_links[pair]
    if links < 2:
        return False
    lost = min(links - 1, rng.choice([1, 1, 2, 2, 3, 6]))
    if world.kind != "nvswitch":
        _set_links(world, pair, links - lost)
        note(world, "nvlink-down", [pair])
        world.truth |= {("nvlink-down", gpu_subject(world, i)) for i in pair}
        return True
    slot = world.slots[pair[0]]
    slot.nvlinks -= lost
    for other in world.pair_links:
        if slot.index in other:
            world.pair_links[other] = slot.nvlinks
    world.truth.add(("nvlink-down", gpu_subject(world, slot.index)))
    return True


def _set_links(world: World, pair: Pair, links: int) -> None:
    for i in pair:
        world.slots[i].nvlinks -= world.pair_links[pair] - links
    world.pair_links[pair] = links


def fabric_down(world: World, rng: random.Random) -> bool:
    if world.kind != "nvswitch":
        return False
    world.nvlink_dead = True
    world.granted = rng.random() < 0.4
    world.truth.add(("fabric-manager-down", "host"))
    return True


def corruption(world: World, rng: random.Random) -> bool:
    if world.bad_pairs:
        return False
    pair = rng.choice(world.pairs())
    world.bad_pairs.append(pair)
    world.damage = "bit-flip"
    note(world, "data-corruption", [pair])
    return True


def write_collapse(world: World, rng: random.Random) -> bool:
    groups = [switch for switch in world.switches if len(switch.gpus) > 1]
    if len(groups) < 2 or not world.p2p or world.pair_links or world.redirected or world.translated:
        return False
    world.collapse = True
    world.truth.add(("switch-write-collapse", "host"))
    return True


# Cause, what it does, how often it is tried first (relative), whether it may come as a second fault.
FAULTS: dict[str, tuple[Callable[[World, random.Random], bool], int, bool]] = {
    "pcie-width-reduced": (width_reduced, 9, True),
    "pcie-link-downgraded": (link_downgraded, 9, True),
    "uplink-downgraded": (uplink_downgraded, 30, True),
    "gpu-behind-chipset": (behind_chipset, 16, False),
    "acs-redirect": (acs_redirect, 48, False),
    "iommu-translation": (iommu_translation, 11, False),
    "false-p2p-grant": (false_grant, 8, False),
    "nvlink-missing": (nvlink_missing, 60, False),
    "nvlink-down": (nvlink_down, 18, False),
    "fabric-manager-down": (fabric_down, 30, False),
    "data-corruption": (corruption, 4, True),
    "switch-write-collapse": (write_collapse, 36, False),
}


def break_machine(world: World, rng: random.Random) -> None:
    """Give the machine one fault that can befall it, one time in twelve two."""
    while not _befall(world, rng, list(FAULTS)):
        pass
    if rng.random() < 1 / 12:
        had = {cause for cause, _ in world.truth}
        _befall(world, rng, [cause for cause, (_, _, second) in FAULTS.items() if second and cause not in had])


def _befall(world: World, rng: random.Random, causes: list[str]) -> bool:
    cause = rng.choices(causes, [FAULTS[cause][1] for cause in causes])[0]
    return FAULTS[cause][0](world, rng)
