"""Convert a recording to a profile, to simulate the recorded machine with and without faults."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import yaml

from gpucheck.model import DriverState, Gpu, NvLink, NvmlFailure, NvmlReading, PciDevice, System
from gpucheck.simulator.machine import build
from gpucheck.simulator.machine.cables import HIDDEN
from gpucheck.simulator.machine.loading import check_profile
from gpucheck.simulator.machine.profile import Board, Clique, Driver, Profile, Root, Wiring, cpus
from gpucheck.simulator.recorded.gpus import RecordedGpus
from gpucheck.simulator.recorded.tree import RecordedTree

DMI = "/sys/class/dmi/id"
NO_DRIVER = "580.178.04"  # of the library, on a machine where no driver is present: as our own profiles have it
Port = tuple[int, int]  # GPU, link
UNITS = ("nvidia-fabricmanager", "nvidia-imex")


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """What of a recording (schema gpucheck.recording/1) a machine is made of; everything else in it is left alone."""

    system: System
    driver: DriverState
    pci: tuple[PciDevice, ...]
    nvml: NvmlReading | NvmlFailure
    services: dict[str, str | None] = msgspec.field(default_factory=dict)
    texts: dict[str, str | None] = msgspec.field(default_factory=dict)


def from_recording(recording: Mapping[str, Any] | object, name: str = "recorded") -> Profile:
    """The profile of the recorded machine: its tree, links, GPUs, NVLinks, processors, driver.

    recording: decoded JSON, or an object with the same attributes. A GPU without a model becomes one of the profile's
    own, with the values that NVML returned; what was wrong with the machine is left out, for faults are chosen when it
    is simulated, but links stay as they had trained.
    Raises ValueError for input that is not a recording, or lacks what a machine needs.
    """
    try:
        recorded = msgspec.convert(recording, Recorded, from_attributes=True)
    except msgspec.ValidationError as error:
        raise ValueError(f"not a recording of gpucheck record: {error}") from error
    profile = _profile(recorded, name)
    check_profile(profile)
    return _as_trained(profile, recorded)


def to_yaml(profile: Profile) -> str:
    """The profile as a file that ``load`` reads, what is at its default left out."""
    head = "# A machine for gpucheck --simulate FILE.yml\n"
    return head + yaml.safe_dump(
        _plain(profile), sort_keys=False, width=118, default_flow_style=None, allow_unicode=True
    )


def _profile(recorded: Recorded, name: str) -> Profile:
    reading = recorded.nvml if isinstance(recorded.nvml, NvmlReading) else None
    tree = RecordedTree(recorded.pci, reading.gpus if reading else ())
    gpus = RecordedGpus(tree.gpus, reading.gpus if reading else ())
    nodes = _nodes(recorded, reading)
    driver = recorded.driver
    reported = reading.driver_version if reading else None
    version = driver.installed_version or driver.loaded_version or reported or NO_DRIVER
    return Profile(
        name=name,
        summary=f"recorded machine with {gpus.summary}",
        source="a recording of gpucheck record",
        board=Board(vendor=_text(recorded, "sys_vendor"), product=_text(recorded, "product_name")),
        driver=Driver(
            version=version,
            flavour="proprietary" if (driver.loaded_flavour or driver.installed_flavour) == "proprietary" else "open",
            present=driver.loaded_version is not None or reading is not None,
        ),
        numa_nodes=nodes,
        roots={root: Root(numa_node=_known(node, nodes)) for root, node in tree.roots.items()},
        cpu=_cpu(recorded),
        iommu=_iommu(tree.gpus),
        virtual=recorded.system.virtual is not None,
        services=tuple(unit for unit in UNITS if recorded.services.get(unit) == "active"),
        devices=tuple(
            msgspec.structs.replace(device, gpu=gpus.models[device.bus_id]) if device.bus_id in gpus.models else device
            for device in tree.devices
        ),
        nvlink=Wiring(ports=_ports_of(tree.gpus, reading.gpus, {d.bus_id for d in tree.devices}) if reading else ()),
        clique=_clique(reading),
        models=gpus.own,
        parts=tree.parts,
    )


def _as_trained(profile: Profile, recorded: Recorded) -> Profile:
    """Set the trained width and generation of links that differ from what both ends support."""
    machine = build(profile, DriverState())
    seen = {device.bus_id: device.link for device in recorded.pci}
    devices = []
    for device in profile.devices:
        function, link = machine.functions[device.bus_id], seen.get(device.bus_id)
        now = (link.generation, link.width) if link else (None, None)
        if None not in now and now != (function.generation, function.width):
            device = msgspec.structs.replace(device, trained=now)
        devices.append(device)
    return msgspec.structs.replace(profile, devices=tuple(devices))


def _nodes(recorded: Recorded, reading: NvmlReading | None) -> tuple[str, ...]:
    """The CPU list of each node: from sysfs where it was recorded, else from the GPUs' affinities; empty if neither."""
    known: dict[int, str] = {}
    for gpu in reading.gpus if reading else ():
        if gpu.cpu_affinity:
            known.setdefault(gpu.numa_node or 0, gpu.cpu_affinity)
    last = max([*known, *(device.numa_node or 0 for device in recorded.pci), 0])
    for node in range(last + 1):
        cpu_list = recorded.texts.get(f"/sys/devices/system/node/node{node}/cpulist")
        if cpu_list and cpu_list.strip():
            known[node] = cpu_list.strip()
    return tuple(known.get(node, "") for node in range(last + 1))


def _known(node: int | None, nodes: tuple[str, ...]) -> int | None:
    return node if node is not None and node < len(nodes) else None


def _text(recorded: Recorded, name: str) -> str:
    return (recorded.texts.get(f"{DMI}/{name}") or "").strip() or "unknown"


def _cpu(recorded: Recorded) -> str | None:
    """The product of cpus.yml that /proc/cpuinfo names, by its full name."""
    cpuinfo = recorded.texts.get("/proc/cpuinfo") or ""
    names = {cpu.name: key for key, cpu in cpus().items()}
    lines = (line.partition(":")[2].strip() for line in cpuinfo.splitlines() if line.startswith("model name"))
    by_name = names.get(next(lines, ""))
    return by_name or ("grace" if recorded.system.arch == "aarch64" else None)


def _iommu(gpus: tuple[PciDevice, ...]) -> Any:
    types = {gpu.iommu_type for gpu in gpus} - {None}
    if not types:
        return "off"
    return "identity" if types == {"identity"} else "translating"


def _clique(reading: NvmlReading | None) -> Clique | None:
    for gpu in reading.gpus if reading else ():
        if gpu.fabric and gpu.fabric.clique_id:
            return Clique(clique_id=gpu.fabric.clique_id, cluster_uuid=gpu.fabric.cluster_uuid or "0" * 32)
    return None


def _plain(value: object) -> Any:
    """Plain data, without what is at its default."""
    if isinstance(value, msgspec.Struct):
        fields = {}
        for field in msgspec.structs.fields(value):
            one = getattr(value, field.name)
            default = field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default
            if one != default:
                fields[field.encode_name] = _plain(one)
        return fields
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value


def _ports_of(
    functions: Iterable[PciDevice], reported: Iterable[Gpu], known: set[str]
) -> tuple[tuple[int, int, str], ...]:
    """(GPU, link, far end) of every live link. functions: the GPUs of the bus, which number them. known: bus ids.

    A cable is listed once, by its lower end. Where the port at the far end is unknown, the links of two GPUs to each
    other are paired in order; a link that the other GPU does not have stays one-sided.
    """
    number = {function.bus_id: index for index, function in enumerate(functions)}
    live = {(number[gpu.pci_bus_id], link.link): link for gpu in reported for link in gpu.nvlinks if link.active}
    peers = _peers(live, number)
    ports = []
    for here, link in sorted(live.items()):
        there = peers.get(here)
        if there is None:
            ports.append((*here, _far_end(link, known)))
        elif here < there:
            ports.append((*here, f"gpu {there[0]} link {there[1]}"))
    return tuple(ports)


def _far_end(link: NvLink, known: set[str]) -> str:
    return link.remote_bus_id if link.remote_bus_id in known and link.remote_bus_id else HIDDEN


def _peers(live: dict[Port, NvLink], number: dict[str, int]) -> dict[Port, Port]:
    """Both ends of every cable between two GPUs."""
    peers: dict[Port, Port] = {}
    for here, link in sorted(live.items()):
        there = number.get(link.remote_bus_id or "")
        if there is None or there == here[0] or here in peers:
            continue
        back = [
            port
            for port, other in sorted(live.items())
            if port[0] == there and port not in peers and number.get(other.remote_bus_id or "") == here[0]
        ]
        far = (there, link.remote_link)
        chosen = far if far in back else next(iter(back), None)
        if chosen is not None:
            other_end: Port = (chosen[0], chosen[1] or 0)
            peers[here], peers[other_end] = other_end, here
    return peers
