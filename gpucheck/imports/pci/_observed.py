"""From the functions that lspci lists to observations and PCI devices."""

import re
from collections.abc import Iterable, Iterator, Mapping

from gpucheck.imports.pci._devices import Device
from gpucheck.imports.pci._registers import REDIRECTS
from gpucheck.imports.pci._tree import Node
from gpucheck.model.diagnosis.observations import AcsReading, ObservedGpu, Port
from gpucheck.model.host.hardware import AcsControl, PciDevice, PcieLink

RDMA_CARD = re.compile(r"Mellanox|ConnectX|BlueField|NetXtreme-E|Ethernet Controller E810", re.IGNORECASE)
CARD_CLASS = re.compile(r"^(?:Ethernet|Infiniband) controller")


def gpu_of(gpu: Device, every: Mapping[str, Device], tree: Mapping[str, Node]) -> ObservedGpu:
    """One GPU. Links are read at an unknown load, so `read` stays empty."""
    path = path_of(gpu, every, tree)
    seen, slot = gpu.seen, every.get(path[-1]) if path else None
    known = not gpu.is_gone
    return ObservedGpu(
        model=gpu.model,
        bus_id=gpu.bus_id,
        numa_node=seen.numa,
        pcie=Port(
            gen=seen.sta_gen,
            width=seen.sta_width,
            max_gen=_both(seen.cap_gen, slot.seen.cap_gen if slot else None),
            max_width=_both(seen.cap_width, slot.seen.cap_width if slot else None),
        )
        if known
        else Port(),
        path=tuple(_port(bus_id, every.get(bus_id)) for bus_id in path),
        bar1_mib=seen.bar1_mib if known else None,
    )


def _both(own: int | None, slot: int | None) -> int | None:
    """What a device and its slot can do together."""
    return own if own is None or slot is None else min(own, slot)


def _port(bus_id: str, bridge: Device | None) -> Port:
    if bridge is None:
        return Port(bus_id=bus_id)
    seen = bridge.seen
    switch = "switch" if seen.port in ("switch-upstream", "switch-downstream") else None
    root = "root-port" if seen.port == "root-port" else switch
    return Port(
        bus_id=bus_id,
        kind="chipset" if bridge.is_of_chipset else root,  # type: ignore[arg-type]
        gen=seen.sta_gen,
        width=seen.sta_width,
        max_gen=seen.cap_gen,
        max_width=seen.cap_width,
    )


def path_of(device: Device, every: Mapping[str, Device], tree: Mapping[str, Node]) -> tuple[str, ...]:
    """The bridges above a function from the root down: of the tree, of lspci -PP, or by the bus numbers of bridges."""
    if device.bus_id in tree:
        return tree[device.bus_id].path
    if device.path:
        return device.path
    domain, bus, _ = device.bus_id.split(":")
    by_secondary = {
        (bridge.bus_id.split(":")[0], bridge.seen.buses[0]): bridge.bus_id
        for bridge in every.values()
        if bridge.seen.buses is not None
    }
    path: list[str] = []
    number = int(bus, 16)
    while (above := by_secondary.get((domain, number))) is not None and above not in path:
        path.insert(0, above)
        number = int(above.split(":")[1], 16)
    return tuple(path)


def acs_of(every: Iterable[Device]) -> tuple[AcsReading, ...]:
    """The registers of bridges; those of other functions redirect nothing of others."""
    return tuple(
        AcsReading(bus_id=device.bus_id, control=device.seen.acs_ctl)
        for device in sorted(every, key=lambda device: device.bus_id)
        if device.seen.acs_ctl is not None and (device.is_bridge or (not device.kind and not device.is_gpu))
    )


def redirected_cards(
    gpu: Device, every: Mapping[str, Device], tree: Mapping[str, Node]
) -> Iterator[tuple[Device, list[str]]]:
    """Network cards below the same switch as a GPU, each with the bridges between them that redirect."""
    above = set(path_of(gpu, every, tree))
    for card in every.values():
        if not RDMA_CARD.search(card.name) or not CARD_CLASS.match(card.kind):
            continue
        other = set(path_of(card, every, tree))
        between = sorted(above ^ other) if above & other else []
        found = [bus_id for bus_id in between if bus_id in every and (every[bus_id].seen.acs_ctl or 0) & REDIRECTS]
        if found:
            yield card, found


def functions(found: Iterable[Device], every: Mapping[str, Device], tree: Mapping[str, Node]) -> tuple[PciDevice, ...]:
    """The functions whose ids were printed (-nn, -n)."""
    return tuple(_function(one, path_of(one, every, tree)) for one in found if one.ids and one.class_id)


def _function(device: Device, path: tuple[str, ...]) -> PciDevice:
    seen = device.seen
    vendor, number = device.ids or ("", "")
    bridge = seen.port or ("bridge" if device.is_bridge else None)
    control, capability = seen.acs_ctl, seen.acs_cap
    return PciDevice(
        bus_id=device.bus_id,
        vendor_id=vendor,
        device_id=number,
        class_id=f"{device.class_id}00",
        numa_node=seen.numa,
        path=path,
        link=PcieLink(
            generation=seen.sta_gen, width=seen.sta_width, max_generation=seen.cap_gen, max_width=seen.cap_width
        ),
        driver=seen.driver,
        kind=bridge if device.is_bridge else None,  # type: ignore[arg-type]
        config_readable=seen.sta_width is not None and not seen.denied,
        acs=None if control is None or capability is None else AcsControl(capability=capability, control=control),
        iommu_group=seen.group,
        bar1_bytes=None if seen.bar1_mib is None or not device.is_gpu else int(seen.bar1_mib * (1 << 20)),
    )
