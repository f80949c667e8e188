"""Servers made of values: GPUs below PCIe switches, one root bus a switch, half of the switches on each NUMA node."""

from msgspec.structs import replace

from gpucheck.model import Gpu, NvLink, NvmlReading, PciDevice, PcieLink, Topology
from gpucheck.topology import build
from tests.machines import DRIVER, GEN5_X16

ZEN4 = "amd"
BRIDGE, GPU_CLASS, INFINIBAND = "060400", "030200", "020700"


def function(
    bus_id: str, class_id: str, node: int | None, path: tuple[str, ...] = (), link: PcieLink = GEN5_X16, **more
) -> PciDevice:
    vendor = {BRIDGE: "1000", INFINIBAND: "15b3"}.get(class_id, "10de")
    more.setdefault("root", f"0000:{(path[0] if path else bus_id)[5:7]}")
    return PciDevice(
        bus_id=bus_id, vendor_id=vendor, device_id="1", class_id=class_id, numa_node=node, path=path, link=link, **more
    )


def server(
    count: int = 8,
    below: int = 4,
    *,
    switch_links: int = 0,
    uplink: dict[int, PcieLink] | None = None,
    name: str = "NVIDIA RTX PRO 6000 Blackwell Server Edition",
) -> tuple[NvmlReading, tuple[PciDevice, ...]]:
    """`count` GPUs, `below` of them and one network card under each switch. uplink: another link of some switches."""
    pci: list[PciDevice] = []
    gpus: list[Gpu] = []
    for i in range(count):
        s, node = i // below, int(i >= count / 2)
        port, up, down = f"0000:{s:02x}:01.0", f"0000:{s + 0x20:02x}:00.0", f"0000:{s + 0x40:02x}:{i % below:02x}.0"
        if i % below == 0:
            link = (uplink or {}).get(s, GEN5_X16)
            card = f"0000:{s + 0xC0:02x}:00.0"
            pci += [
                function(port, BRIDGE, node, kind="root-port", link=link),
                function(up, BRIDGE, node, (port,), link, kind="switch-upstream"),
                function(card, INFINIBAND, node, (port, up, f"{down[:8]}1f.0"), infiniband_names=(f"mlx5_{s}",)),
            ]
        bus_id = f"0000:{i + 0x60:02x}:00.0"
        pci += [
            function(down, BRIDGE, node, (port, up), kind="switch-downstream"),
            function(bus_id, GPU_CLASS, node, (port, up, down)),
        ]
        links = tuple(NvLink(link=n, active=True, version=6, remote_kind="switch") for n in range(switch_links))
        gpus.append(
            Gpu(
                index=i,
                name=name,
                uuid=f"GPU-{i:08x}",
                pci_bus_id=bus_id,
                device_id="1",
                compute_capability="9.0" if switch_links else "12.0",
                numa_node=node,
                cpu_affinity=f"{node * 64}-{node * 64 + 63}",
                pcie=GEN5_X16,
                nvlinks=links,
            )
        )

    def ancestor(i: int, j: int) -> str:
        if i == j:
            return "X"
        return "PIX" if i // below == j // below else "NODE" if gpus[i].numa_node == gpus[j].numa_node else "SYS"

    ancestors = tuple(tuple(ancestor(i, j) for j in range(count)) for i in range(count))
    reading = NvmlReading(
        driver_version=DRIVER, nvml_version="13", cuda_version=None, gpus=tuple(gpus), ancestors=ancestors
    )
    return reading, tuple(pci)


def topology(count: int = 8, below: int = 4, **how) -> Topology:
    """The same as `gpucheck topo` sees it, on an AMD host."""
    reading, pci = server(count, below, **how)
    return build(reading, pci, False, cpu=ZEN4)


def narrowed(link: PcieLink, **now: int) -> PcieLink:
    return replace(link, **now)
