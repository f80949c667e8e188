"""From what a simulated machine answers about itself to how fast its copies are.

The rate of a pair is its expectation worked out from the links as they run now, not as they could. Faults that the
machine shows elsewhere (a narrow link, redirecting bridges, a translating IOMMU) slow copies down here as they would.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from gpucheck.knowledge import gpu_by_pci_id, pcie_gb_s
from gpucheck.measure.planning.paths import paths, ports_to_host
from gpucheck.measure.values import Damage
from gpucheck.model import Gpu, NvmlReading, PciDevice, PcieLink
from gpucheck.topology import Cpu, build
from gpucheck.topology.expected import gpu_nvlink
from gpucheck.topology.pcie.acs import redirects

# Parts of the raw rate, from published figures: staged copies 20-22 of 31.5 GB/s, host copies 25-26, peer copies that
# bridges send up to the root complex 9.9-10.2.
STAGED, TO_HOST, REDIRECTED = 0.65, 0.80, 0.31
UNKNOWN_LINK_GB_S = 12.0
# What a copy keeps of its rate while one of its ends copies the other way too. Through NVSwitch by NVLink generation:
# HGX A100 209 of 270 GB/s (tests/data/perf/perf-a100x8-nvswitch-healthy.yml), DGX-2 V100 0.93; H100 loses nothing.
NVSWITCH_DUPLEX, PCIE_DUPLEX = {2: 0.93, 3: 0.77}, 0.97

LATENCY_US = {"PIX": 2.1, "PXB": 2.4, "PHB": 3.0, "NODE": 3.2, "SYS": 4.0}
NVLINK_LATENCY_US, STAGED_LATENCY_US = 2.2, 14.0


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """One ordered pair of a simulated machine. resources: what its copies may share with those of other pairs.

    duplex: the part of the rate that is left while either GPU also copies the other way.
    damage: what arrives instead of the data. stuck: copies never end. error: cudaError_t of every copy.
    """

    src: int
    dst: int
    gb_s: float
    staged_gb_s: float
    latency_us: float
    resources: tuple[str, ...] = ()
    duplex: float = 1.0
    damage: Damage | None = None
    stuck: bool = False
    error: int | None = None


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """How fast the copies of a simulated machine are.

    to_host: of each device, the links from the root port down to it, and host_gb_s what they carry.
    noise and drift: fractions, of a copy (standard deviation) and per 10 s of device time.
    """

    links: tuple[Link, ...]
    host_gb_s: tuple[float, ...]
    to_host: tuple[tuple[str, ...], ...]
    noise: float = 0.0
    drift: float = 0.0
    seed: int = 0


class MeasurementFault(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of ``measurement`` in surroundings.json. a, b: GPUs by NVML index."""

    fault: str
    a: int = 0
    b: int = 0
    percent: float = 0.0
    drift: float = 0.0
    kind: Damage = "zeros"
    code: int = 0
    seed: int = 0


def describe(
    reading: NvmlReading,
    pci: Sequence[PciDevice],
    chosen: Sequence[Gpu],
    faults: Sequence[MeasurementFault] = (),
    cpu: Cpu | None = None,
) -> Rates:
    """The rates between these GPUs. faults: those of the profile that concern copies."""
    now = replace(reading, gpus=tuple(replace(gpu, pcie=_as_now(gpu.pcie)) for gpu in reading.gpus))
    bridges = tuple(replace(device, link=_as_now(device.link)) for device in pci)
    topology = build(now, bridges, simulated=True, cpu=cpu)
    to_host = ports_to_host(chosen, pci)
    devices = {device.bus_id: device for device in bridges}
    host = tuple(_host_gb_s(gpu, ports, devices) for gpu, ports in zip(chosen, to_host, strict=True))
    lost = {fault.a: fault.percent for fault in faults if fault.fault == "c2c-slow"}
    links = {}
    for (i, j), path in paths(chosen, bridges, topology).items():
        staged = min(host[i], host[j]) / TO_HOST * STAGED
        rate, latency, duplex = staged, STAGED_LATENCY_US, PCIE_DUPLEX
        damage: Damage | None = None
        if path.expected is not None:
            by_nvlink = str(path.cls).startswith("NV")
            rate = path.expected.unidirectional_gb_s
            duplex = _duplex(chosen[i]) if by_nvlink else PCIE_DUPLEX
            latency = NVLINK_LATENCY_US if by_nvlink else LATENCY_US[str(path.cls)]
            redirected = not by_nvlink and _redirected(path.resources, devices)
            if redirected:
                rate = min(rate, min(host[i], host[j]) / TO_HOST * REDIRECTED)
            through_root = redirected or path.cls in ("PHB", "NODE", "SYS")
            if through_root and _translated(chosen[i], chosen[j], devices):
                damage = "zeros"
        links[i, j] = Link(
            src=i,
            dst=j,
            gb_s=rate,
            staged_gb_s=staged,
            latency_us=latency,
            resources=path.resources,
            duplex=duplex,
            damage=damage,
        )
    position = {gpu.index: place for place, gpu in enumerate(chosen)}
    for fault in faults:
        for pair in _hit(fault, position):
            links[pair] = _broken(links[pair], fault)
    general = [fault for fault in faults if fault.fault == "copy-noise"]
    return Rates(
        links=tuple(links.values()),
        host_gb_s=tuple(_c2c_gb_s(gpu, lost) or rate for gpu, rate in zip(chosen, host, strict=True)),
        to_host=to_host,
        noise=sum(fault.percent for fault in general) / 100,
        drift=sum(fault.drift for fault in general) / 100,
        seed=sum(fault.seed for fault in general),
    )


def _hit(fault: MeasurementFault, position: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """The ordered pairs that have the fault, if both GPUs are measured."""
    if fault.fault in ("copy-noise", "c2c-slow") or fault.a not in position or fault.b not in position:
        return
    yield position[fault.a], position[fault.b]
    if fault.fault != "p2p-slow-direction":
        yield position[fault.b], position[fault.a]


def _broken(link: Link, fault: MeasurementFault) -> Link:
    changes: dict[str, dict[str, Any]] = {
        "p2p-slow": {"gb_s": link.gb_s * (1 - fault.percent / 100)},
        "p2p-slow-direction": {"gb_s": link.gb_s * (1 - fault.percent / 100)},
        # A link of its own that both directions share: each alone is whole, together they have half each.
        "p2p-half-duplex": {"resources": (*link.resources, f"both:{min(fault.a, fault.b)}-{max(fault.a, fault.b)}")},
        "p2p-corrupt": {"damage": fault.kind},
        "p2p-stuck": {"stuck": True},
        "p2p-error": {"error": fault.code},
    }
    return replace(link, **changes[fault.fault])


def _duplex(gpu: Gpu) -> float:
    switched = any(link.remote_kind == "switch" for link in gpu.nvlinks)
    rate = gpu_nvlink(gpu.compute_capability) if switched else None
    return NVSWITCH_DUPLEX.get(rate.generation, 1.0) if rate else 1.0


def _as_now(link: PcieLink) -> PcieLink:
    """What the link runs at, in place of what it could."""
    generation, width = link.generation or link.max_generation, link.width or link.max_width
    return replace(link, max_generation=generation, max_width=width)


def _host_gb_s(gpu: Gpu, ports: Sequence[str], devices: Mapping[str, PciDevice]) -> float:
    links = [gpu.pcie, *(devices[port].link for port in ports if port in devices and port != gpu.pci_bus_id)]
    rates = [
        pcie_gb_s(link.max_generation, link.max_width)
        for link in links
        if link.max_generation is not None and link.max_width is not None
    ]
    return min(rates, default=UNKNOWN_LINK_GB_S) * TO_HOST


def _c2c_gb_s(gpu: Gpu, lost: Mapping[int, float]) -> float | None:
    """What its copies reach over NVLink-C2C, None without one. lost: percent, by index."""
    model = gpu_by_pci_id(gpu.device_id)
    if model is None or model.c2c is None:
        return None
    return model.c2c.gb_s * model.c2c.reached[0] * (1 - lost.get(gpu.index, 0.0) / 100)


def _redirected(resources: Sequence[str], devices: Mapping[str, PciDevice]) -> bool:
    ports = [devices.get(resource.partition(":")[2]) for resource in resources]
    return any(port is not None and redirects(port) for port in ports)


def _translated(a: Gpu, b: Gpu, devices: Mapping[str, PciDevice]) -> bool:
    ends = (devices.get(a.pci_bus_id), devices.get(b.pci_bus_id))
    return any(end and (end.iommu_type or "").startswith("DMA") for end in ends)
