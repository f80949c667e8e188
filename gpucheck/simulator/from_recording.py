"""Make a simulated machine of a recording: its GPUs, PCI tree, NVLinks, NUMA nodes, CPU and driver, without its faults.

Values that a profile cannot state (measurements, temperatures, counters) are those of the simulated GPU models.
"""

import re
from collections import Counter
from typing import Literal

import msgspec

from gpucheck.model import Gpu, NvmlReading, PciDevice
from gpucheck.model.facts import Facts
from gpucheck.simulator.data import HERE
from gpucheck.simulator.machine.loading import check_profile
from gpucheck.simulator.machine.profile import (
    Board,
    Clique,
    Driver,
    PciPart,
    Profile,
    ProfileDevice,
    Root,
    Wiring,
    cpus,
    gpu_model,
    parts,
)

DMI = "/sys/class/dmi/id"
CPUINFO = "/proc/cpuinfo"
CPU_LIST = re.compile(r"/sys/devices/system/node/node(\d+)/cpulist")
NVSWITCH = "0680"  # PCI class: a bridge of another kind
SERVICES = ("nvidia-fabricmanager", "nvidia-imex")
GENERATION, WIDTH = 3, 16  # of a bridge that does not report its own


def from_recording(kept: Facts, *, source: str) -> Profile:
    """Return the healthy machine of this recording. source: where the recording is from.

    Raises ValueError for a recording that lacks what a machine needs, or a GPU that no simulated model describes.
    """
    if not isinstance(kept.nvml, NvmlReading) or not kept.gpus:
        raise ValueError("the recording has no GPU that NVML lists")
    if isinstance(kept.pci, msgspec.UnsetType) or not kept.pci:
        raise ValueError("the recording has no PCI functions")
    tree = _Tree(kept.pci, {gpu.pci_bus_id: gpu for gpu in kept.gpus})
    names = [_model(gpu) for gpu in kept.gpus]
    driver = kept.driver if not isinstance(kept.driver, msgspec.UnsetType) else None
    version = kept.nvml.driver_version or (driver.loaded_version if driver else None)
    if not version:
        raise ValueError("the recording has no driver version")
    flavour: Literal["open", "proprietary"] = (
        "proprietary" if driver and driver.loaded_flavour == "proprietary" else "open"
    )
    profile = Profile(
        summary=f"as recorded: {', '.join(f'{n} x {name}' for name, n in Counter(g.name for g in kept.gpus).items())}",
        source=source,
        board=Board(vendor=_text(kept, f"{DMI}/sys_vendor"), product=_text(kept, f"{DMI}/product_name")),
        driver=Driver(version=version, flavour=flavour),
        numa_nodes=_numa_nodes(kept),
        roots={root: Root(numa_node=node) for root, node in sorted(tree.roots().items())},
        cpu=_cpu(kept),
        iommu=_iommu(tree.gpus()),
        virtual=not isinstance(kept.system, msgspec.UnsetType) and kept.system.virtual is not None,
        services=tuple(name for name in SERVICES if kept.services.get(name) == "active"),
        devices=tuple(tree.device(one, names) for one in tree.needed),
        nvlink=_wiring(kept.gpus, tree),
        clique=_clique(kept.gpus),
        parts=tree.parts(),
    )
    check_profile(profile)
    return profile


class _Tree:
    """The functions of a recording that its GPUs, network cards and NVSwitches need."""

    def __init__(self, functions: tuple[PciDevice, ...], gpus: dict[str, Gpu]) -> None:
        self._all = {one.bus_id: one for one in functions}
        self._gpus = gpus
        missing = gpus.keys() - self._all.keys()
        if missing:
            raise ValueError(f"the recording has no PCI function {min(missing)}, which NVML lists as a GPU")
        ends = [one for one in functions if self._is_end(one)]
        wanted = {one.bus_id for one in ends} | {above for one in ends for above in one.path}
        if wanted - self._all.keys():
            raise ValueError(f"the recording has no PCI function {min(wanted - self._all.keys())}, which is a bridge")
        self.needed = sorted((self._all[bus_id] for bus_id in wanted), key=lambda one: (one.bus_id, len(one.path)))
        self.switches = {one.bus_id for one in self.needed if self.is_switch(one)}

    def _is_end(self, one: PciDevice) -> bool:
        return one.bus_id in self._gpus or self._nic(one) is not None or self.is_switch(one)

    def is_switch(self, one: PciDevice) -> bool:
        return one.vendor_id == "10de" and one.class_id[:4] == NVSWITCH

    @staticmethod
    def _nic(one: PciDevice) -> str | None:
        """The simulated network card with these ids."""
        ids = f"{one.vendor_id}:{one.device_id}"
        if not one.is_network_card or not one.infiniband_names:
            return None
        return next((name for name, part in parts().items() if part.kind == "nic" and part.ids == ids), None)

    def gpus(self) -> list[PciDevice]:
        return [self._all[bus_id] for bus_id in self._gpus]

    def roots(self) -> dict[str, int | None]:
        found: dict[str, int | None] = {}
        for one in self.needed:
            root = (one.path or (one.bus_id,))[0][:7]
            found[root] = one.numa_node if found.get(root) is None else found[root]
        return found

    def device(self, one: PciDevice, names: list[str]) -> ProfileDevice:
        under = one.path[-1] if one.path else one.bus_id[:7]
        if one.bus_id in self._gpus:
            gpu = self._gpus[one.bus_id]
            link = gpu.pcie
            trained = (link.generation, link.width) if not one.path else None
            pair = (trained[0], trained[1]) if trained and trained[0] and trained[1] else None
            return ProfileDevice(bus_id=one.bus_id, under=under, gpu=names[gpu.index], trained=pair)
        nic = self._nic(one)
        if nic is not None:
            names_ = (one.net_names, one.infiniband_names)
            return ProfileDevice(bus_id=one.bus_id, under=under, part=nic, net=names_[0], infiniband=names_[1])
        return ProfileDevice(bus_id=one.bus_id, under=under, part=self._part_name(one))

    def _part_name(self, one: PciDevice) -> str:
        ids = f"{one.vendor_id}:{one.device_id}"
        known = next((name for name, part in parts().items() if (part.ids, part.kind) == (ids, self._kind(one))), None)
        return known or f"recorded-{one.vendor_id}-{one.device_id}-{self._kind(one)}"

    def _kind(self, one: PciDevice) -> Literal["root-port", "switch-upstream", "switch-downstream", "nvswitch"]:
        """As recorded, else from the place in the tree: only root may read what a bridge is."""
        if self.is_switch(one):
            return "nvswitch"
        if one.kind is not None and one.kind != "bridge":
            return one.kind
        if not one.path:
            return "root-port"
        above = self._kind(self._all[one.path[-1]])
        return "switch-downstream" if above == "switch-upstream" else "switch-upstream"

    def parts(self) -> dict[str, PciPart]:
        """The bridges that parts.yml does not have, each as fast as its fastest link may be."""
        found: dict[str, PciPart] = {}
        for one in self.needed:
            name = None if one.bus_id in self._gpus or self._nic(one) else self._part_name(one)
            if name is None or name in parts():
                continue
            before = found.get(name)
            generation = max(one.link.max_generation or GENERATION, before.generation if before else 0)
            width = max(one.link.max_width or WIDTH, before.width if before else 0)
            ids = f"{one.vendor_id}:{one.device_id}"
            found[name] = PciPart(kind=self._kind(one), ids=ids, generation=generation, width=width)
        return found


def _model(gpu: Gpu) -> str:
    """The simulated model of a GPU: the same name, and the nearest memory."""
    models = {path.stem: gpu_model(path.stem) for path in (HERE / "gpus").glob("*.yml")}
    same = [name for name, model in models.items() if model.name == gpu.name]
    if not same:
        raise ValueError(f"no simulated model is {gpu.name}. Add one to gpucheck/simulator/gpus first")
    return min(same, key=lambda name: (abs(models[name].memory_mib - (gpu.memory_mib or 0)), name))


def _text(kept: Facts, path: str) -> str:
    return (kept.texts.get(path) or "unknown").strip()


def _cpu(kept: Facts) -> str | None:
    text = kept.texts.get(CPUINFO) or ""
    return next((name for name, cpu in cpus().items() if cpu.name and f": {cpu.name}\n" in f"{text}\n"), None)


def _numa_nodes(kept: Facts) -> tuple[str, ...]:
    """The CPU list of each node with CPUs, else of each node with a GPU. Raises ValueError if a node lacks one."""
    found = ((CPU_LIST.fullmatch(path), text) for path, text in kept.texts.items())
    known = {int(match[1]): text.strip() for match, text in found if match and text and text.strip()}
    known = known or {gpu.numa_node or 0: gpu.cpu_affinity for gpu in kept.gpus if gpu.cpu_affinity}
    if sorted(known) != list(range(len(known))) or not known:
        raise ValueError(f"the recording has CPU lists of NUMA nodes {', '.join(map(str, sorted(known))) or 'none'}")
    return tuple(known[node] for node in sorted(known))


def _iommu(gpus: list[PciDevice]) -> Literal["off", "identity", "translating"]:
    kinds = {one.iommu_type for one in gpus} - {None}
    return "off" if not kinds else "identity" if kinds == {"identity"} else "translating"


def _wiring(gpus: tuple[Gpu, ...], tree: _Tree) -> Wiring:
    """Who is joined to whom. Links that are down are there, too: the machine is made as it should be."""
    index = {gpu.pci_bus_id: gpu.index for gpu in gpus}
    pairs: Counter[tuple[int, int]] = Counter()
    switches: dict[str, int] = {}
    hidden = 0
    for gpu in gpus:
        far = Counter(link.remote_bus_id for link in gpu.nvlinks if link.active and link.remote_kind == "switch")
        on_bus = {bus: n for bus, n in far.items() if bus in tree.switches}
        switches = {bus: max(switches.get(bus, 0), on_bus.get(bus, 0)) for bus in {*switches, *on_bus}}
        hidden = max(hidden, sum(far.values()) - sum(on_bus.values()))
        for link in gpu.nvlinks:
            if link.active and link.remote_bus_id in index and gpu.index < index[link.remote_bus_id]:
                pairs[gpu.index, index[link.remote_bus_id]] += 1
    return Wiring(
        pairs=tuple((a, b, n) for (a, b), n in sorted(pairs.items())),
        switches=dict(sorted(switches.items())),
        hidden_switch_links=hidden,
    )


def _clique(gpus: tuple[Gpu, ...]) -> Clique | None:
    fabric = gpus[0].fabric
    if fabric is None or not fabric.spans_hosts:
        return None
    return Clique(clique_id=fabric.clique_id or 0, cluster_uuid=str(fabric.cluster_uuid))


def as_text(profile: Profile) -> str:
    """The profile as a file of ``gpucheck/simulator/profiles``: without what is at its default."""
    import yaml

    return yaml.safe_dump(_short(profile), sort_keys=False, width=118, allow_unicode=True)


def _short(value: object) -> object:
    if isinstance(value, msgspec.Struct):
        left = {}
        for field in msgspec.structs.fields(value):
            own = getattr(value, field.name)
            default = field.default_factory() if callable(field.default_factory) else field.default
            if own != default and field.name != "name":
                left[field.name] = _short(own)
        return left
    if isinstance(value, dict):
        return {key: _short(one) for key, one in value.items()}
    return [_short(one) for one in value] if isinstance(value, tuple) else value
