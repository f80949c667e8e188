"""cuda.txt: how fast the copies of a simulated machine are, and what is wrong with them, as ``key = value``.

The numbers are worked out from its links as they are trained now (see rates.py). What the keys mean:

    version = 13000                     of CUDA, that the driver supports
    driver = 580.178.04                 of libcuda itself
    init.error = 802                    what cuInit answers
    noise, drift                        fractions: of a copy's time (standard deviation), and per 10 s of simulated time
    seed                                of the noise
    gpu.<n>.multiprocessors, gpu.<n>.copy_engines, gpu.<n>.memory_bus_bits
    host.<n>.gb_s, .links, .duplex      to and from pinned memory; PCI functions on the way; as of a pair
    pair.<a>.<b>.gb_s                   from a to b with peer access, staged_gb_s without it
    pair.<a>.<b>.latency_us, .links     least time of a copy; what it may share with others
    pair.<a>.<b>.duplex                 what is left of the rate while an end copies the other way too
    pair.<a>.<b>.damage, .stuck, .error faults
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from gpucheck.host.nvml.reading import CLASSES, P2P_CAPABILITIES, P2P_STATUS
from gpucheck.host.pci import read_pci
from gpucheck.knowledge import gpu_by_pci_id, pcie_gb_s
from gpucheck.measure.planning.plan import paths, ports_to_host
from gpucheck.model import Gpu, NvLink, NvmlReading, PciDevice, PcieLink
from gpucheck.model.copies import Damage
from gpucheck.simulator.machine import REMOTE_GPU, Machine, SimulatedGpu
from gpucheck.simulator.machine.paths import common_ancestor, p2p_status
from gpucheck.simulator.machine.profile import cuda_versions
from gpucheck.topology import build
from gpucheck.topology.expected import gpu_nvlink
from gpucheck.topology.pcie import cpu_vendor, redirects

# The rate of a pair is its expectation worked out from the links as they run now, not as they could. Faults that the
# machine shows elsewhere (a narrow link, redirecting bridges, a translating IOMMU) slow copies down here as they would.
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
    cpu: str | None = None,
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
        rates: dict[str, Any] = {"gb_s": rate, "staged_gb_s": staged, "latency_us": latency, "duplex": duplex}
        links[i, j] = Link(src=i, dst=j, resources=path.resources, damage=damage, **rates)
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
    generation, width = link.generation or link.max_generation, link.width or link.max_width
    return replace(link, max_generation=generation, max_width=width)


def _host_gb_s(gpu: Gpu, ports: Sequence[str], devices: Mapping[str, PciDevice]) -> float:
    links = [gpu.pcie, *(devices[port].link for port in ports if port in devices and port != gpu.pci_bus_id)]
    known = ((link.max_generation, link.max_width) for link in links)
    rates = [pcie_gb_s(gen, width) for gen, width in known if gen is not None and width is not None]
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


SYSTEM_NOT_READY = 802
QUIET = 0.001  # spread of copies on a GPU that does nothing else; without any, a number would look certain
GEFORCE = 5  # nvmlBrandType_t
OTHERWISE = 64


def copies(machine: Machine, root: Path) -> str:
    """The text of cuda.txt for the GPUs that NVML counts. root: the machine's files, already written.

    Raises ValueError for measurement faults that cannot be read.
    """
    visible = [gpu for gpu in machine.gpus if gpu.visible]
    lines = {"gpu.count": len(visible), **dict(_driver(machine, visible)), **dict(_gpus(visible))}
    lost = {place for place, gpu in enumerate(visible) if gpu.function.lost}
    reading = _reading(machine, visible)
    chosen = tuple(gpu for gpu in reading.gpus if gpu.index not in lost)
    faults = msgspec.convert(machine.surroundings.get("measurement", []), tuple[MeasurementFault, ...])
    cpuinfo = root / "proc/cpuinfo"
    cpu = cpu_vendor(cpuinfo.read_text(encoding="utf-8") if cpuinfo.exists() else None)
    described = describe(reading, read_pci(root), chosen, faults, cpu)
    chosen_noise = any(fault.fault == "copy-noise" for fault in faults)
    lines |= {"noise": described.noise if chosen_noise else QUIET, "drift": described.drift, "seed": described.seed}
    for gpu, rate, links in zip(chosen, described.host_gb_s, described.to_host, strict=True):
        lines |= {f"host.{gpu.index}.duplex": PCIE_DUPLEX}
        lines |= {f"host.{gpu.index}.gb_s": rate, f"host.{gpu.index}.links": " ".join(links)}
    for link in described.links:
        prefix = f"pair.{chosen[link.src].index}.{chosen[link.dst].index}"
        lines |= {f"{prefix}.{key}": value for key, value in _pair(link)}
    head = "# SIMULATED machine: what libcuda.so.1 answers here, in addition to machine.txt.\n"
    return head + "".join(f"{key} = {value}\n" for key, value in lines.items())


def _driver(machine: Machine, visible: list[SimulatedGpu]) -> Iterator[tuple[str, object]]:
    version = machine.profile.driver.version
    branch = version.partition(".")[0]
    known = cuda_versions()
    fitting = [number for number in known if branch.isdigit() and number <= int(branch)]
    yield from (("version", known[max(fitting, default=min(known))]), ("driver", version))
    # Of models that report the state of the fabric, the library reads it in machine.txt.
    if not all(gpu.fabric_up for gpu in visible if gpu.model.fabric is None):
        yield "init.error", SYSTEM_NOT_READY


def _gpus(visible: list[SimulatedGpu]) -> Iterator[tuple[str, object]]:
    for number, gpu in enumerate(visible):
        yield f"gpu.{number}.multiprocessors", gpu.model.multiprocessors or OTHERWISE
        yield f"gpu.{number}.memory_bus_bits", gpu.model.memory_bus_bits or 0
        yield f"gpu.{number}.copy_engines", 2 if gpu.model.brand == GEFORCE else 3


def _pair(link: Link) -> Iterator[tuple[str, object]]:
    yield from (("gb_s", link.gb_s), ("staged_gb_s", link.staged_gb_s), ("latency_us", link.latency_us))
    yield "links", " ".join(link.resources)
    if link.duplex != 1:
        yield "duplex", link.duplex
    if link.damage is not None:
        yield "damage", link.damage
    if link.stuck:
        yield "stuck", 1
    if link.error is not None:
        yield "error", link.error


def _reading(machine: Machine, visible: list[SimulatedGpu]) -> NvmlReading:
    """What a reading of NVML comes to, as far as paths and rates depend on it."""
    ancestors = tuple(
        tuple("X" if a is b else CLASSES[common_ancestor(machine, a, b)] for b in visible) for a in visible
    )
    p2p: dict[str, tuple[tuple[str | None, ...], ...]] = {
        name: tuple(
            tuple("X" if a is b else P2P_STATUS[p2p_status(a, b, P2P_CAPABILITIES[name])] for b in visible)
            for a in visible
        )
        for name in ("read", "write")
    }
    gpus = tuple(_gpu(machine, gpu, number) for number, gpu in enumerate(visible))
    version = machine.profile.driver.version
    return NvmlReading(
        driver_version=version, nvml_version=version, cuda_version=None, gpus=gpus, ancestors=ancestors, p2p=p2p
    )


def _gpu(machine: Machine, gpu: SimulatedGpu, number: int) -> Gpu:
    function = gpu.function
    slot = machine.slot(function)
    return Gpu(
        index=number,
        name=gpu.model.name,
        uuid=gpu.uuid,
        pci_bus_id=function.bus_id,
        device_id=function.ids.partition(":")[2],
        compute_capability=gpu.model.compute_capability,
        numa_node=function.numa_node,
        pcie=PcieLink(
            generation=int(gpu.nvml.get("pcie.generation", function.generation)),
            width=int(gpu.nvml.get("pcie.width", function.width)),
            max_generation=min(function.max_generation, slot.max_generation),
            max_width=min(function.max_width, slot.max_width),
            device_max_generation=function.max_generation,
        ),
        nvlinks=tuple(_nvlink(gpu, place) for place in range(len(gpu.links))),
    )


def _nvlink(gpu: SimulatedGpu, place: int) -> NvLink:
    link, ports = gpu.links[place], gpu.model.nvlink
    if not link.active or ports is None:
        return NvLink(link=place, active=False, state="inactive")
    kind: Literal["gpu", "switch"] = "gpu" if link.remote_type == REMOTE_GPU else "switch"
    far: dict[str, Any] = {"remote_bus_id": link.bus_id, "remote_link": link.peer[1] if link.peer else None}
    own: dict[str, Any] = {"version": ports.version, "speed_mb_s": ports.speed_mb_s}
    return NvLink(link=place, active=True, state="active", remote_kind=kind, **far, **own)
