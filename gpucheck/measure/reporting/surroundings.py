"""Observations of the host: GPUs, paths, registers and peer access.

Values that were not read are None. Positions are those of the measured GPUs.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeVar

import msgspec

from gpucheck.host.nvml.gauge import LinkReading
from gpucheck.knowledge import find_gpu, gpu_by_pci_id
from gpucheck.measure.values import MIB
from gpucheck.model import EccCounts, Gpu, NvmlReading, PciDevice, PcieLink, Topology
from gpucheck.model.diagnosis.observations import (
    AcsReading,
    NvLinkCount,
    Observations,
    ObservedGpu,
    ObservedHost,
    Port,
    UnderLoad,
    Words,
)
from gpucheck.model.facts import Facts
from gpucheck.model.host.wiring import WiredFunction
from gpucheck.topology import CPUINFO
from gpucheck.topology.pcie import redirects
from gpucheck.topology.wiring import PARAMS, at, nvlink_limit

NEEDS = ("nvml", "pci", "system", f"text:{CPUINFO}", f"text:{PARAMS}")


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """The host as it was read. gpus: the measured ones, by position. facts: before the copies, with NEEDS.

    before, after: NVML before and after the copies; during: links while copies ran, in order.
    """

    gpus: tuple[Gpu, ...]
    before: NvmlReading
    facts: Facts
    topology: Topology
    during: tuple[LinkReading, ...] = ()
    after: NvmlReading | None = None

    @property
    def functions(self) -> tuple[WiredFunction, ...]:
        """Return the PCIe functions of the topology."""
        return self.topology.wiring.functions if self.topology.wiring else ()

    def while_copying(self, gpu: Gpu) -> list[LinkReading]:
        return [reading for reading in self.during if reading.bus_id == gpu.pci_bus_id]

    def afterwards(self, gpu: Gpu) -> Gpu | None:
        """Return the GPU as it was after the copies, None if it was not read then."""
        return next((one for one in (self.after.gpus if self.after else ()) if one.pci_bus_id == gpu.pci_bus_id), None)


Cell = TypeVar("Cell")
LARGEST_GENERATION, LARGEST_WIDTH, MOST_LINKS = 7, 32, 64
STATUS = ("OK", "CNS", "GNS", "TNS", "DR", "NS")
# Clock event reasons that slow down copies; the others are settings, or an idle GPU.
SLOWDOWNS = ("hw-slowdown", "hw-thermal", "hw-power-brake")
# The only PCIe switches of AMD are those inside its chipsets; its host bridges are root ports.
CHIPSET_VENDOR = "1022"
# Values that mean "unknown" in observations.
NO_NAME = {"", "~", "null", "unknown", "n/a", "?"}
LONGEST_NAME = 200


def surroundings(scene: Scene) -> Observations:
    """Return the observations without measured values."""
    devices = {device.bus_id.lower(): device for device in scene.facts.pci}
    paths = [device.path if (device := devices.get(gpu.pci_bus_id.lower())) else () for gpu in scene.gpus]
    ports = _ports(scene, devices)
    count, status = len(scene.gpus), nvml_status(scene)
    upstream = {function.bus_id for function in scene.functions if function.kind == "switch-upstream"}
    return Observations(
        gpus=tuple(_gpu(scene, gpu, devices, ports, path) for gpu, path in zip(scene.gpus, paths, strict=True)),
        matrix=_classes(scene),
        p2p_access=square(count, lambda i, j: status[i][j] == "OK" if status[i][j] else None) if status else None,
        p2p_status=status,
        host=_host(scene, [devices[bus_id] for bus_id in dict.fromkeys(sum(paths, ())) if bus_id in devices], paths),
        uplinks=tuple(
            msgspec.structs.replace(port, kind=None, gpus=behind)
            for bus_id, port in ports.items()
            if bus_id in upstream and len(behind := tuple(i for i, path in enumerate(paths) if bus_id in path)) > 1
        ),
    )


def under_load(scene: Scene) -> tuple[UnderLoad, ...]:
    """Return each GPU that was read during copies: its best link state, slowdowns, and increased counters."""
    return tuple(_loaded(scene, place, gpu) for place, gpu in enumerate(scene.gpus) if scene.while_copying(gpu))


def square(count: int, cell: Callable[[int, int], Cell | None]) -> tuple[tuple[Cell | None, ...], ...] | None:
    """Return an n x n matrix with an empty diagonal; None if all cells are None."""
    index = range(count)
    rows = tuple(tuple(None if i == j else cell(i, j) for j in index) for i in index)
    return rows if any(value is not None for row in rows for value in row) else None


def _gpu(
    scene: Scene, gpu: Gpu, devices: dict[str, PciDevice], ports: dict[str, Port], path: tuple[str, ...]
) -> ObservedGpu:
    device = devices.get(gpu.pci_bus_id.lower())
    bar1 = gpu.bar1_bytes or (device.bar1_bytes if device else None)
    node = gpu.numa_node if gpu.numa_node is not None else device.numa_node if device else None
    return ObservedGpu(
        model=_name(gpu.name),
        bus_id=gpu.pci_bus_id,
        numa_node=node,
        pcie=_own_link(scene, gpu),
        path=tuple(ports[bus_id] if bus_id in ports else Port(bus_id=bus_id) for bus_id in path),
        bar1_mib=bar1 / MIB if bar1 else None,
        nvlinks=_nvlinks(scene.afterwards(gpu) or gpu, nvlink_limit(scene.facts.texts[PARAMS])),
    )


def _own_link(scene: Scene, gpu: Gpu) -> Port:
    """Return the best link state of all readings during copies, as an idle link between steps may be slower."""
    idle = next((f.link for f in scene.functions if f.kind == "gpu" and f.bus_id == gpu.pci_bus_id), gpu.pcie)
    generation, width = _best(scene.while_copying(gpu))
    if generation and width:
        return _port(msgspec.structs.replace(idle, generation=generation, width=width), "load")
    return _port(idle, "idle")


def _best(seen: Sequence[LinkReading]) -> tuple[int | None, int | None]:
    generations = [found.generation for found in seen if found.generation]
    widths = [found.width for found in seen if found.width]
    return max(generations, default=None), max(widths, default=None)


def _port(
    link: PcieLink,
    read: Literal["idle", "load"],
    bus_id: str | None = None,
    kind: Literal["root-port", "switch", "chipset"] | None = None,
) -> Port:
    return Port(
        bus_id=bus_id,
        kind=kind,
        gen=_within(link.generation, LARGEST_GENERATION),
        width=_within(link.width, LARGEST_WIDTH),
        max_gen=_within(link.max_generation, LARGEST_GENERATION),
        max_width=_within(link.max_width, LARGEST_WIDTH),
        read=read if link.generation or link.width else None,
    )


def _within(number: int | None, most: int) -> int | None:
    return number if number is not None and 1 <= number <= most else None


def _ports(scene: Scene, devices: dict[str, PciDevice]) -> dict[str, Port]:
    found = {}
    for function in scene.functions:
        if function.kind in ("gpu", "nic"):
            continue
        device = devices.get(function.bus_id.lower())
        kind: Literal["root-port", "switch", "chipset"] | None = None
        if function.kind == "root-port":
            kind = "root-port"
        elif device is not None:
            kind = "chipset" if device.vendor_id == CHIPSET_VENDOR else "switch"
        found[function.bus_id] = _port(function.link, "idle", function.bus_id, kind)
    return found


def _nvlinks(gpu: Gpu, limit: int | None) -> NvLinkCount:
    """Return active and total NVLinks. total: those that the product and the options of the driver (limit) use; other
    ports are off by design.

    Links that sleep after the copies count as active.
    """
    if not gpu.nvlinks or (limit == 0 and not gpu.active_nvlinks):
        return ObservedGpu().nvlinks
    model = gpu_by_pci_id(gpu.device_id) or find_gpu(gpu.name)
    total = min(model.nvlink.links if model and model.nvlink else len(gpu.nvlinks), limit or MOST_LINKS)
    active = sum(link.active or link.state == "asleep" for link in gpu.nvlinks)
    return NvLinkCount(active=min(active, MOST_LINKS), total=min(total, MOST_LINKS))


def _classes(scene: Scene) -> Words | None:
    place = {gpu.pci_bus_id: n for n, gpu in enumerate(scene.topology.gpus) if gpu.pci_bus_id}
    rows = [place.get(gpu.pci_bus_id) for gpu in scene.gpus]

    def cell(i: int, j: int) -> str | None:
        a, b = rows[i], rows[j]
        return None if a is None or b is None else scene.topology.matrix[a][b]

    return square(len(scene.gpus), cell)


def nvml_status(scene: Scene) -> Words | None:
    """Return NVML's status for reading and writing, the first that is not OK."""
    place = {gpu.pci_bus_id: n for n, gpu in enumerate(scene.before.gpus)}
    rows = [place[gpu.pci_bus_id] for gpu in scene.gpus]

    def cell(i: int, j: int) -> str | None:
        words = [at(scene.before.p2p.get(what, ()), rows[i], rows[j]) for what in ("read", "write")]
        known = [word for word in words if word in STATUS]
        return next((word for word in known if word != "OK"), known[0] if known else None)

    return square(len(scene.gpus), cell)


def _host(scene: Scene, bridges: list[PciDevice], paths: list[tuple[str, ...]]) -> ObservedHost:
    named = set(sum(paths, ()))
    read = [bridge for bridge in bridges if bridge.config_readable]
    redirecting = tuple(bridge.bus_id for bridge in read if redirects(bridge))
    every = named == {bridge.bus_id for bridge in read}
    cpuinfo = scene.facts.texts[CPUINFO] or ""
    sockets = set(re.findall(r"^physical id\s*:\s*(\d+)", cpuinfo, re.MULTILINE))
    name = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    whole = [bool(gpu.bar1_bytes and gpu.memory_bytes and gpu.bar1_bytes >= gpu.memory_bytes) for gpu in scene.gpus]
    return ObservedHost(
        virtual=scene.facts.system.virtual is not None,
        iommu=_iommu(scene),
        acs_redirect=redirecting or (False if named and every else None),
        acs=tuple(AcsReading(bus_id=bridge.bus_id, control=bridge.acs.control) for bridge in read if bridge.acs),
        sockets=min(len(sockets), 64) or None,
        cpu=_name(name[1].strip()) if name else None,
        # A smaller BAR1 than the memory may be the design of the board.
        rebar=True if whole and all(whole) else None,
        driver=_name(scene.before.driver_version or ""),
    )


def _iommu(scene: Scene) -> Literal["off", "identity", "translating"] | None:
    """Return the IOMMU mode of the GPUs' groups. A virtual machine without groups does not show that of its host."""
    ids = {gpu.pci_bus_id.lower() for gpu in scene.gpus}
    own = [device for device in scene.facts.pci if device.bus_id.lower() in ids]
    types = [device.iommu_type or "" for device in own]
    if any(kind.startswith("DMA") for kind in types):
        return "translating"
    if len(own) < len(scene.gpus) or not own:
        return None
    if all(kind == "identity" for kind in types):
        return "identity"
    if scene.facts.system.virtual is None and all(device.iommu_group is None for device in own):
        return "off"
    return None


def _name(text: str) -> str | None:
    text = " ".join(text[:LONGEST_NAME].split())
    return None if text.lower() in NO_NAME or not text.isprintable() else text


def _loaded(scene: Scene, place: int, gpu: Gpu) -> UnderLoad:
    seen = scene.while_copying(gpu)
    generation, width = _best(seen)
    link = _port(msgspec.structs.replace(gpu.pcie, generation=generation, width=width), "load")
    reasons = [found.reasons for found in seen if found.reasons is not None]
    slowed = {reason for row in reasons for reason in row if reason in SLOWDOWNS}
    after = scene.afterwards(gpu)
    return UnderLoad(
        gpu=place,
        gen=link.gen,
        width=link.width,
        max_gen=link.max_gen,
        max_width=link.max_width,
        throttled=tuple(sorted(slowed)) if reasons else None,
        errors=risen(gpu, after) if after else None,
        readings=len(seen),
    )


def risen(before: Gpu, after: Gpu) -> dict[str, int] | None:
    """Return the increase of error counters; None if NVML reports none."""
    old, now = _counters(before), _counters(after)
    both = old.keys() & now.keys()
    return {name: now[name] - old[name] for name in now if name in both and now[name] > old[name]} if both else None


def ecc_lines(scene: Scene, places: Sequence[int]) -> Iterator[str]:
    """Yield how much the ECC counters of these GPUs rose during the copies; nothing where they were not read."""
    for place in places:
        gpu = scene.gpus[place]
        after = scene.afterwards(gpu)
        old, now = gpu.health.ecc_counts, after.health.ecc_counts if after else EccCounts()
        kinds = (
            ("corrected", old.volatile_corrected, now.volatile_corrected),
            ("uncorrectable", old.volatile_uncorrected, now.volatile_uncorrected),
        )
        rose = [f"{late - early:+d} {kind}" for kind, early, late in kinds if early is not None and late is not None]
        if rose:
            yield f"GPU {gpu.index}: ECC errors during the copies: {', '.join(rose)}"


def _counters(gpu: Gpu) -> dict[str, int]:
    errors = gpu.health.pcie_errors
    counts = {
        "PCIe replays": errors.replays,
        "PCIe correctable errors": errors.correctable,
        "PCIe non-fatal errors": errors.non_fatal,
        "PCIe fatal errors": errors.fatal,
    }
    for link in gpu.nvlinks:
        counts |= {f"NVLink {link.link} {name}": count for name, count in link.errors.items()}
        counts[f"NVLink {link.link} recoveries"] = link.recoveries
    return {name: count for name, count in counts.items() if count is not None}
