"""What is true of a machine by design or policy, and what is plainly false of it."""

from tests.diagnose.generator.cards import raw
from tests.diagnose.generator.faults import FAULTS, gpu_subject, note, pair_subject
from tests.diagnose.generator.world import World

LIMITS = frozenset({"cross-socket", "shared-uplink", "geforce-p2p-disabled", "vm-no-p2p", "narrow-by-design"})


def add_limits(world: World) -> None:
    """Add the limits that hold beside a possible fault. Call it last: faults change what limits a pair."""
    over_pcie = [pair for pair in world.pairs() if not world.pair_links.get(pair)]
    if not world.granted and not world.nvlink_dead:
        note(world, "vm-no-p2p" if world.virtual else "geforce-p2p-disabled", over_pcie)
    crossing = [p for p in over_pcie if world.path(*p) == "SOCKET" and _socket_limits(world, *p)]
    note(world, "cross-socket", crossing)
    for switch in world.switches:
        if len(switch.gpus) > 1:
            world.truth.add(("shared-uplink", f"link:{switch.bus_id}"))
            inside = [pair for pair in over_pcie if set(pair) <= set(switch.gpus)]
            world.truth |= {("shared-uplink", pair_subject(world, pair)) for pair in inside}
    narrow = [slot for slot in world.slots if slot.port_width < 16 and not slot.chipset]
    world.truth |= {("narrow-by-design", gpu_subject(world, slot.index)) for slot in narrow}


def _socket_limits(world: World, i: int, j: int) -> bool:
    """Whether the CPU interconnect, not a link or a fault, sets the pair's rate."""
    if world.translated == "slow":
        return False
    if not world.p2p or world.false_grant == "staged":
        return world.traits.staged_socket < 0.95
    a, b = world.slots[i], world.slots[j]
    full = raw(min(a.link.built_gen, b.link.built_gen), 16)
    lowest = min(raw(s.link.gen, s.link.width) for s in (a, b))
    for slot in (a, b):
        if slot.switch is not None:
            link = world.switches[slot.switch].link
            lowest = min(lowest, raw(link.gen, link.width))
    return world.traits.socket * full < world.traits.payload * lowest


def plainly_false(world: World) -> frozenset[str]:
    """Cause keys that cannot hold on a machine of this design, whatever is known of it."""
    card = world.slots[0].card
    found = set(world.decoys)
    if world.kind != "nvswitch":
        found.add("fabric-manager-down")
    if not card.links:
        found |= {"nvlink-missing", "nvlink-down"}
    if not card.geforce:
        found.add("geforce-p2p-disabled")
    if not world.virtual:
        found.add("vm-no-p2p")
    if world.sockets == 1:
        found.add("cross-socket")
    if not world.switches:
        found |= {"uplink-downgraded", "shared-uplink", "switch-write-collapse"}
    if world.kind != "desktop":
        found.add("gpu-behind-chipset")
    return frozenset(found - {cause for cause, _ in world.truth})


def is_fault(cause: str) -> bool:
    """Whether a cause of the truth is a fault, not a limit."""
    return cause in FAULTS
