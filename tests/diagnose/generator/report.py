"""The observations of a generated machine: what a report that contains these facts would hold."""

import random
from typing import Any

from tests.diagnose.generator.known import Known
from tests.diagnose.generator.numbers import Bench, Table
from tests.diagnose.generator.world import Link, Slot, World

SRC_VALID, REDIRECT = 0x01, 0x1D


def observe(world: World, known: Known, rng: random.Random) -> dict[str, Any]:
    """Return observations as the contract of `gpucheck diagnose --observations` has them, ready for json."""
    seen: dict[str, Any] = {"gpus": _gpus(world, known, rng)}
    if "matrix" in known:
        seen["matrix"] = _square(world, lambda i, j: world.shown(i, j), "X")
    if "p2p_access" in known:
        seen["p2p_access"] = _access(world, rng)
    if "p2p_status" in known:
        refused = rng.choice(["NS", "TNS"] if world.virtual else ["CNS", "GNS", "NS"])
        seen["p2p_status"] = _square(world, lambda i, j: "OK" if _granted(world, i, j) else refused, None)
    if host := _host(world, known, rng):
        seen["host"] = host
    if "uplinks" in known and world.switches:
        seen["uplinks"] = [
            {"bus_id": switch.bus_id, "gpus": list(switch.gpus), **_link(switch.link, known, switch.link.gen)}
            for switch in world.switches
        ]
    measured = _measured(world, known, rng)
    if measured:
        seen["measured"] = measured
    return seen


def _square(world: World, cell: Any, diagonal: Any) -> list[list[Any]]:
    n = range(world.count)
    return [[diagonal if i == j else cell(i, j) for j in n] for i in n]


def _granted(world: World, i: int, j: int) -> bool:
    return world.granted or world.links(i, j) > 0


def _access(world: World, rng: random.Random) -> Any:
    flags = _square(world, lambda i, j: _granted(world, i, j), None)
    values = {flag for row in flags for flag in row if flag is not None}
    if len(values) == 1 and rng.random() < 0.4:
        return "all" if values == {True} else "none"
    return flags


def _link(link: Link, known: Known, gen: int) -> dict[str, Any]:
    found: dict[str, Any] = {"gen": gen, "width": link.width}
    if "pcie_max" in known:
        found |= {"max_gen": link.max_gen, "max_width": link.max_width}
    if known.labeled:
        found["read"] = known.reading
    return found


def _gpus(world: World, known: Known, rng: random.Random) -> Any:
    rows = [_gpu(world, slot, known, rng) for slot in world.slots]
    if any(slot.link.gen != slot.link.built_gen for slot in world.slots):
        world.decoys.discard("pcie-link-downgraded")
    if set(rows[0]) <= {"model"} and rng.random() < 0.7:
        return {"count": world.count, **rows[0]}
    return rows if any(rows) else {"count": world.count}


def _gpu(world: World, slot: Slot, known: Known, rng: random.Random) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "model": slot.card.name,
        "bus_id": slot.bus_id,
        "numa_node": None if world.virtual else slot.node,
        "bar1": slot.card.bar1_mib,
        "path": None if world.virtual else _path(world, slot),
        "nvlinks": {"active": slot.nvlinks, "total": slot.card.links} if slot.card.links else None,
    }
    row = {fact: value for fact, value in facts.items() if fact in known and value is not None}
    if "bar1" in row:
        row["bar1_mib"] = row.pop("bar1")
    if "pcie" in known:
        # An idle GPU lowers its generation to 1, not its width; some do not within seconds.
        idle = known.reading == "idle" and rng.random() < 0.75
        row["pcie"] = _link(slot.link, known, 1 if idle else slot.link.gen)
        if idle:
            world.decoys.add("pcie-link-downgraded")
    return row


def _path(world: World, slot: Slot) -> list[dict[str, Any]]:
    """The bridges above a GPU, from the root port down. A port reports what it can do; max_width is its slot's."""
    link = slot.link
    above = {"bus_id": slot.slot_bus, "gen": link.gen, "width": link.width, "max_gen": link.built_gen}
    above["max_width"] = slot.port_width
    if slot.chipset:
        return [above | {"kind": "chipset", "max_gen": link.max_gen}]
    if slot.switch is None:
        return [above | {"kind": "root-port"}]
    switch = world.switches[slot.switch]
    up = switch.link
    ends = {"gen": up.gen, "width": up.width, "max_gen": up.built_gen, "max_width": 16}
    root = {"bus_id": switch.root_bus, "kind": "root-port"} | ends
    return [root, {"bus_id": switch.bus_id, "kind": "switch"} | ends, above | {"kind": "switch"}]


def _host(world: World, known: Known, rng: random.Random) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "virtual" in known:
        found["virtual"] = world.virtual
    if "iommu" in known:
        found["iommu"] = world.iommu
    if "sockets" in known and not world.virtual:
        found["sockets"] = world.sockets
    if "cpu" in known:
        found["cpu"] = world.cpu
    if "driver" in known:
        found["driver"] = rng.choice(["535.183.01", "550.90.07", "570.133.20", "580.65.06"])
    if "acs" in known and not world.virtual:
        found |= _acs(world, rng)
    return found


def _acs(world: World, rng: random.Random) -> dict[str, Any]:
    """Either registers or what somebody concluded from them. Harmless bits are left on one host in six."""
    redirecting = [slot.slot_bus for slot in world.slots if slot.switch in world.redirected and world.redirected]
    if not redirecting and rng.random() < 1 / 6:
        world.decoys.add("acs-redirect")
        return {"acs": [{"bus_id": slot.slot_bus, "control": SRC_VALID} for slot in world.slots]}
    if rng.random() < 0.5:
        return {
            "acs": [
                {"bus_id": slot.slot_bus, "control": REDIRECT if slot.slot_bus in redirecting else 0}
                for slot in world.slots
            ]
        }
    if redirecting and rng.random() < 0.5:
        return {"acs_redirect": redirecting}
    return {"acs_redirect": bool(redirecting)}


def _measured(world: World, known: Known, rng: random.Random) -> dict[str, Any]:
    bench = Bench(world, rng)
    tables = {
        "p2p_uni_gb_s": ("p2p_uni", bench.p2p),
        "p2p_bidir_gb_s": ("p2p_bidir", bench.p2p_both),
        "staged_uni_gb_s": ("staged_uni", bench.staged),
        "staged_bidir_gb_s": ("staged_bidir", bench.staged_both),
        "p2p_latency_us": ("p2p_latency", bench.p2p_latency),
        "staged_latency_us": ("staged_latency", bench.staged_latency),
    }
    # A hang shows at the first collective; plain copies still give numbers on two machines of five.
    stuck = world.hang and rng.random() < 0.6
    found: dict[str, Any] = {
        name: bench.table(cell)
        for name, (fact, cell) in tables.items()
        if fact in known and not (stuck and name.startswith("p2p"))
    }
    if known.level == "poor" and "p2p_uni_gb_s" in found and rng.random() < 0.15:
        found["by_class"] = _by_class(world, found.pop("p2p_uni_gb_s"))
    if "method" in known and found:
        found["method"] = {"engine": "ce", "direction": "write"}
    if "host_device" in known:
        rows = bench.host_copies()
        hidden = world.virtual or "numa_node" not in known
        found["host_device"] = [{k: v for k, v in row.items() if not hidden or k != "numa_node"} for row in rows]
    if "flows" in known and not world.hang and (flows := bench.flows()):
        found["flows"] = flows
    return found | _correctness(world, known, rng)


def _correctness(world: World, known: Known, rng: random.Random) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if world.hang:
        if "hang" in known:
            found["hang"] = {"op": rng.choice(["all_reduce", "copy"]), "gpus": list(range(world.count))}
            if rng.random() < 0.6:
                found["hang"]["with_p2p_off"] = False
        return found
    if "no_hang" in known:
        found["hang"] = False
    if "integrity" in known:
        found["integrity_bad_pairs"] = [[a, b] for i, j in world.bad_pairs for a, b in ((i, j), (j, i))]
        if world.damage and rng.random() < 0.8:
            found["damage"] = world.damage
    return found


def _by_class(world: World, table: Table) -> dict[str, list[float]]:
    ranges: dict[str, list[float]] = {}
    for i, row in enumerate(table):
        for j, value in enumerate(row):
            if value is not None:
                low, high = ranges.get(world.shown(i, j), [value, value])
                ranges[world.shown(i, j)] = [min(low, value), max(high, value)]
    return ranges
