"""The machine of a profile: PCI functions and GPUs with their links. Faults change it, writers read it."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from msgspec.structs import replace

from gpucheck.model import DriverState
from gpucheck.simulator.machine.profile import (
    Cpu,
    GpuModel,
    Profile,
    ProfileDevice,
    Rdma,
    cpus,
    gpus_of,
    models_of,
    part_of,
    port_totals,
)

# NVML: nvmlIntNvLinkDeviceType_t
REMOTE_GPU, REMOTE_SWITCH = 0, 2


@dataclass
class Link:
    """One NVLink port. peer: (GPU index, its port) for a cable between two GPUs. bus_id None: the far end is hidden."""

    active: bool = False
    remote_type: int | None = None
    bus_id: str | None = None
    peer: tuple[int, int] | None = None


def check_nvlinks(profile: Profile) -> None:
    """Raise ValueError where a link is used twice, leads nowhere, or its GPU has no such link."""
    count = len(gpus_of(profile))
    for gpus, switches in _switched(profile):
        for switch in switches:
            _check_switch(profile, switch)
        for gpu in gpus:
            if not 0 <= gpu < count:
                raise ValueError(f"nvlink.boards: there is no GPU {gpu}; there are GPUs 0 to {count - 1}")
    for a, b, links in profile.nvlink.pairs:
        if a == b or not (0 <= a < count and 0 <= b < count) or links < 1:
            raise ValueError(f"nvlink.pairs [{a}, {b}, {links}]: needs two of GPUs 0 to {count - 1} and some links")
    links_of(profile)


def links_of(profile: Profile) -> list[list[Link]]:
    """Every port of every GPU, in NVML's order. Raises ValueError where a GPU has too few."""
    buses = [device.bus_id for device in gpus_of(profile)]
    ports = [[Link() for _ in range(m.nvlink.links if m.nvlink else 0)] for m in models_of(profile)]
    free = [iter(range(len(row))) for row in ports]

    def place(gpu: int) -> int:
        found = next(free[gpu], None)
        if found is None:
            name = models_of(profile)[gpu].name
            raise ValueError(f"nvlink: GPU {gpu} would need more links, {name} has {len(ports[gpu])}")
        return found

    for a, b, count in profile.nvlink.pairs:
        for _ in range(count):
            one, other = place(a), place(b)
            ports[a][one] = Link(True, REMOTE_GPU, buses[b], (b, other))
            ports[b][other] = Link(True, REMOTE_GPU, buses[a], (a, one))
    for gpus, switches in _switched(profile):
        for gpu in gpus:
            for switch, count in switches.items():
                for _ in range(count):
                    ports[gpu][place(gpu)] = Link(True, REMOTE_SWITCH, switch)
    for gpu, row in enumerate(ports):
        for _ in range(profile.nvlink.hidden_switch_links):
            row[place(gpu)] = Link(True, REMOTE_SWITCH)
    return ports


def _switched(profile: Profile) -> Iterator[tuple[tuple[int, ...], dict[str, int]]]:
    yield tuple(range(len(gpus_of(profile)))), profile.nvlink.switches
    for board in profile.nvlink.boards:
        yield board.gpus, board.switches


def _check_switch(profile: Profile, switch: str) -> None:
    device = next((device for device in profile.devices if device.bus_id == switch), None)
    if device is None or part_of(device, profile).kind != "nvswitch":
        raise ValueError(f"nvlink.switches {switch}: there is no NVSwitch with this bus id")


NO_APPLICATION_CLOCKS = 590
SLOWDOWN_C = 83.0  # of models without a published limit
UPTIME_S = 432_000  # five days: long enough that an error can be old
# What a bridge port can do to isolate what is below it (PCIe base specification 7.7.7), as Linux would turn it on
ACS_CAPABILITY = {"root-port": 0x001F, "switch-downstream": 0x005F}
ROCE_MTU = 4220
# Of the driver mlx5: Documentation/networking/devlink/mlx5.rst of Linux.
REPORTERS = ("fw", "fw_fatal", "tx", "rx")


@dataclass
class Function:
    """One PCI function. generation and width are those of its link now; a bridge port's link is the one below it.

    parent: the bridge above, None on a root bus. ids: vendor:device. subsystem: the same of the board.
    acs_capability, acs_control: registers of a port that can isolate, None for one that cannot.
    errors: (correctable, nonfatal or fatal; the kernel's name of the error) -> how often since boot.
    net, infiniband, virtual_of: as in a profile. rdma: the files of each RDMA device below its folder. mtu, statistics:
    of each interface, by ethtool's names. reporters: of devlink, with their state. read_request: bytes that the
    function asks for at once.
    rebar: the size of BAR 1 can be changed. lost: it no longer answers, every register reads as ones.
    """

    bus_id: str
    kind: str
    ids: str
    subsystem: str
    class_id: str
    root: str
    parent: str | None
    numa_node: int | None
    max_generation: int
    max_width: int
    generation: int = 0
    width: int = 0
    bar1_mib: int = 0
    rebar: bool = False
    acs_capability: int | None = None
    acs_control: int = 0
    errors: dict[tuple[str, str], int] = field(default_factory=dict)
    net: tuple[str, ...] = ()
    virtual_of: str | None = None
    infiniband: tuple[str, ...] = ()
    rdma: dict[str, str] = field(default_factory=dict)
    reporters: dict[str, str] = field(default_factory=dict)
    mtu: int = 1500
    statistics: dict[str, int] = field(default_factory=dict)
    read_request: int = 512
    lost: bool = False


@dataclass(frozen=True)
class Process:
    """A process that computes on a GPU, as NVML lists it."""

    pid: int
    memory_mib: int
    name: str


@dataclass
class SimulatedGpu:
    """One GPU. visible false: on the PCI bus, but not among those that NVML counts. nvml: keys that override.

    fabric_state: as in gpucheck.model.Fabric; shown only by models that report it.
    fabric_up: paths lead over NVSwitches; older models report no state, and lose the paths as well.
    memory_node: the NUMA node of its memory, None if it has none. mig: its GPU instances, empty with MIG off.
    compute: what differs from a healthy GPU while it computes, by the names of gpucheck.compute.engines.simulated.
    open_error: of its device file. processes: on it. p2p_refused: NVML's P2P status to another GPU, by its bus id.
    """

    function: Function
    model: GpuModel
    uuid: str
    links: list[Link]
    visible: bool = True
    fabric_state: str = "completed"
    fabric_up: bool = True
    open_error: str | None = None
    memory_node: int | None = None
    mig: tuple[str, ...] = ()
    processes: list[Process] = field(default_factory=list)
    p2p_refused: dict[str, int] = field(default_factory=dict)
    nvml: dict[str, str] = field(default_factory=dict)
    compute: dict[str, float | bool] = field(default_factory=dict)

    @property
    def slowdown_c(self) -> float:
        """The temperature from which the driver lowers the clock."""
        return float(self.model.thermal.operating or self.model.thermal.slowdown or SLOWDOWN_C)

    def answer(self, values: Mapping[str, object], when: str = "always") -> None:
        """Override what NVML reports: ``always``, or only under ``load``. Raises ValueError for another word."""
        if when not in ("always", "load"):
            raise ValueError(f"when={when}: always, or load")
        for key, value in values.items():
            self.nvml[f"{key}.load"] = str(value)
            if when == "always":
                self.nvml[key] = str(value)


@dataclass
class LoggedMessage:
    """A line of the kernel log, age_s seconds before now. priority: syslog's, 3 is an error, 6 information."""

    text: str
    age_s: float
    priority: int = 6


@dataclass
class Kernel:
    """An installed kernel: are its build headers there, and was the driver's module built for it?"""

    headers: bool = True
    module: bool = True


@dataclass
class Machine:
    """A whole machine, free to be changed until it is written. nvml: machine-wide lines for machine.txt.

    release: the driver branch whose functions the NVML library exports, None for its own.
    services: systemd's ActiveState by unit. packages: installed versions by name. Both only of what goes with the GPUs.
    surroundings: what the machine answers in place of this process's own limits, environment and libraries.
    running, upcoming: the kernel that runs, and the one that the next boot takes.
    peer_memory: nvidia_peermem is loaded, where there are network cards and the modules are not the open ones.
    missing_nodes: device nodes below /dev that should be there and are not.
    """

    profile: Profile
    driver: DriverState
    functions: dict[str, Function]
    gpus: list[SimulatedGpu]
    persistence: bool = True
    faults: tuple[str, ...] = ()
    nvml: dict[str, str] = field(default_factory=dict)
    services: dict[str, str] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)
    surroundings: dict[str, object] = field(default_factory=dict)
    iommu: str = "off"
    messages: list[LoggedMessage] = field(default_factory=list)
    secure_boot: bool = False
    governor: str = "performance"
    running: Kernel = field(default_factory=Kernel)
    upcoming: Kernel = field(default_factory=Kernel)
    missing_nodes: set[str] = field(default_factory=set)
    peer_memory: bool = True
    release: str | None = None

    def gpu(self, index: int) -> SimulatedGpu:
        """A GPU by its number in the profile. Raises ValueError if there is none."""
        if not 0 <= index < len(self.gpus):
            numbers = f"GPUs 0 to {len(self.gpus) - 1}" if self.gpus else "no GPU"
            raise ValueError(f"there is no GPU {index}; profile {self.profile.name} has {numbers}")
        return self.gpus[index]

    def function(self, bus_id: str) -> Function:
        """A PCI function. Raises ValueError if there is none."""
        if bus_id not in self.functions:
            raise ValueError(f"bus_id={bus_id}: no such device; there are {', '.join(sorted(self.functions))}")
        return self.functions[bus_id]

    @property
    def has_application_clocks(self) -> bool:
        """Drivers from 590 on no longer offer them, of any GPU (nvidia-smi -q of 590.48.01, 595.80 and 610.57.04)."""
        return int(self.profile.driver.version.partition(".")[0]) < NO_APPLICATION_CLOCKS

    @property
    def cpu(self) -> Cpu | None:
        """The profile's CPU, None where it names none."""
        return cpus()[self.profile.cpu] if self.profile.cpu else None

    def nic(self, number: int) -> Function:
        """A network card with an RDMA device by its number in the profile, by bus id. Raises ValueError."""
        nics = sorted(device.bus_id for device in self.profile.devices if device.infiniband)
        if not 0 <= number < len(nics):
            numbers = f"network cards 0 to {len(nics) - 1}" if nics else "no network card with RDMA"
            raise ValueError(f"there is no network card {number}; profile {self.profile.name} has {numbers}")
        card = self.functions.get(nics[number])
        if card is None or not card.infiniband:
            raise ValueError(f"network card {number} is missing already")
        return card

    @property
    def device_files(self) -> dict[str, str]:
        """The file below /dev/infiniband by RDMA device: ``uverbs0`` of the first by bus id."""
        devices = sorted(self.profile.devices, key=lambda device: device.bus_id)
        names = [name for device in devices for name in device.infiniband]
        return {name: f"uverbs{number}" for number, name in enumerate(names)}

    def chosen(self, words: str) -> list[SimulatedGpu]:
        """One GPU by its number in the profile, or ``all`` of them. Raises ValueError for anything else."""
        if words == "all" and self.gpus:
            return self.gpus
        if words != "all" and not (words.isascii() and words.isdigit()):
            raise ValueError(f"gpu={words}: a number, or all")
        return [self.gpu(int(words) if words != "all" else 0)]

    def by_minor(self) -> list[SimulatedGpu]:
        return sorted(self.gpus, key=lambda gpu: gpu.function.bus_id)

    def chain(self, bus_id: str) -> list[Function]:
        """The bridges above a function, from the root port down."""
        above: list[Function] = []
        parent = self.functions[bus_id].parent
        while parent is not None:
            above.insert(0, self.functions[parent])
            parent = above[0].parent
        return above

    def slot(self, function: Function) -> Function:
        """The bridge port above a function; the function itself on a root bus."""
        return self.functions[function.parent] if function.parent else function

    def active_link(self, gpu: int, link: int) -> Link:
        """A link of a GPU. Raises ValueError for one that is not there or is down."""
        links = self.gpu(gpu).links
        if not links:
            raise ValueError(f"GPU {gpu} ({self.gpu(gpu).model.name}) has no NVLink")
        if link >= len(links) or not links[link].active:
            active = [number for number, one in enumerate(links) if one.active]
            raise ValueError(f"link={link}: the active links of GPU {gpu} are {active}")
        return links[link]

    def ports(self) -> list[Function]:
        """The bridge ports that can isolate what is below them."""
        return [function for function in self.functions.values() if function.acs_capability is not None]

    def require_driver(self) -> None:
        if self.driver.loaded_version is None:
            raise ValueError("no driver is loaded on this machine")

    def unload_driver(self, **changes: object) -> None:
        self.driver = replace(self.driver, loaded_version=None, loaded_flavour=None, **changes)

    def surround(self, key: str, /, **entry: object) -> None:
        """Add an entry to a list of surroundings.json: ``libraries``, ``measurement`` or ``training``."""
        entries = self.surroundings.setdefault(key, [])
        assert isinstance(entries, list)  # noqa: S101 - written here only
        entries.append(entry)

    def log(self, text: str, age_s: float, priority: int = 3) -> None:
        """Add a line to the kernel log. Raises ValueError for one from before the machine started."""
        if not 0 <= age_s <= UPTIME_S:
            raise ValueError(f"age={age_s:g}: the machine runs since {UPTIME_S} seconds")
        self.messages.append(LoggedMessage(text, age_s, priority))


def build(profile: Profile, driver: DriverState) -> Machine:
    """The healthy machine of a profile, every link trained as far as both its ends allow."""
    by_id = {device.bus_id: device for device in profile.devices}
    functions = {bus_id: _function(device, by_id, profile) for bus_id, device in by_id.items()}
    children = {f.parent: f for f in reversed(functions.values()) if f.parent is not None}
    for device in profile.devices:
        _train(functions[device.bus_id], functions, children, device.trained)
    rows = zip(gpus_of(profile), models_of(profile), links_of(profile), strict=True)
    gpus = [_gpu(device, model, functions[device.bus_id], links, profile) for device, model, links in rows]
    iommu = {"off": "off", "identity": "identity", "translating": "DMA-FQ"}[profile.iommu]
    machine = Machine(profile=profile, driver=driver, functions=functions, gpus=gpus, iommu=iommu)
    if driver.loaded_version is None:
        # Nothing has registered the GPUs or keeps them awake: that is what a later load of the driver finds.
        machine.persistence = False
        for gpu in gpus:
            gpu.fabric_state = "in-progress"
    return machine


def _function(device: ProfileDevice, by_id: dict[str, ProfileDevice], profile: Profile) -> Function:
    part = part_of(device, profile)
    root = device
    while root.under in by_id:
        root = by_id[root.under]
    rdma = part.rdma
    ethernet = rdma is not None and rdma.layer == "Ethernet"
    return Function(
        bus_id=device.bus_id,
        kind=part.kind,
        ids=part.ids,
        subsystem=part.subsystem,
        class_id=part.class_id or ("068000" if part.kind == "nvswitch" else "060400"),
        root=root.under,
        parent=device.under if device.under in by_id else None,
        numa_node=profile.roots[root.under].numa_node,
        max_generation=part.generation,
        max_width=min(part.width, device.width or part.width),
        bar1_mib=part.bar1_mib,
        rebar=part.rebar,
        acs_capability=None if profile.virtual else ACS_CAPABILITY.get(part.kind),
        acs_control=device.acs,
        virtual_of=device.virtual_of,
        net=device.net,
        infiniband=device.infiniband,
        rdma=_rdma(rdma, cable=device.cable) if rdma else {},
        reporters=dict.fromkeys(REPORTERS, "healthy") if rdma and part.ids.startswith("15b3:") else {},
        mtu=ROCE_MTU if ethernet else 1500,
        statistics=port_totals()["ethernet"] if ethernet else {},
    )


def _rdma(rdma: Rdma, *, cable: bool) -> dict[str, str]:
    """What drivers/infiniband/core/sysfs.c shows. A port without a cable polls, and shows the lowest rate."""
    infiniband = rdma.layer == "InfiniBand"
    counters = {f"ports/1/counters/{name}": str(value) for name, value in port_totals()["infiniband"].items()}
    product = {"hca_type": rdma.model, "board_id": rdma.board}
    return {
        "node_type": "1: CA",
        **{name: text for name, text in product.items() if text is not None},
        "fw_ver": rdma.firmware,
        "ports/1/state": "4: ACTIVE" if cable else "1: DOWN",
        "ports/1/phys_state": "5: LinkUp" if cable else "2: Polling",
        "ports/1/rate": rdma.rate if cable else "10 Gb/sec (4X)",
        "ports/1/link_layer": rdma.layer,
        "ports/1/lid": "0x1" if infiniband and cable else "0xffff" if infiniband else "0x0",
        **({"ports/1/pkeys/0": "0xffff", "ports/1/pkeys/1": "0x0000", **counters} if infiniband else {}),
        **(_roce(cable=cable) if rdma.layer == "Ethernet" else {}),
    }


def _roce(*, cable: bool) -> dict[str, str]:
    """Each address has an entry of RoCE v1 and one of v2; without a cable there are those of the link alone."""
    addresses = ["fe80:0000:0000:0000:0a00:00ff:fe00:0001"]
    addresses += ["0000:0000:0000:0000:0000:ffff:0a00:0001"] if cable else []
    entries = [(address, kind) for address in addresses for kind in ("IB/RoCE v1", "RoCE v2")]
    files = {f"ports/1/hw_counters/{name}": str(value) for name, value in port_totals()["roce"].items()}
    for index, (address, kind) in enumerate(entries):
        files |= {f"ports/1/gids/{index}": address, f"ports/1/gid_attrs/types/{index}": kind}
    return files


def _train(
    function: Function, functions: dict[str, Function], children: dict[str, Function], trained: tuple[int, int] | None
) -> None:
    """A port shows the link below it, every other function the link above it; each runs at what both ends can."""
    if function.kind in ("root-port", "switch-downstream"):
        other = children.get(function.bus_id)
    else:
        other = functions.get(function.parent or "")
    ends = [function, other] if other else [function]
    function.generation = min(end.max_generation for end in ends)
    function.width = min(end.max_width for end in ends)
    if trained is not None:
        function.generation, function.width = trained


def _gpu(
    device: ProfileDevice, model: GpuModel, function: Function, links: list[Link], profile: Profile
) -> SimulatedGpu:
    digest = hashlib.sha256(f"{profile.name} {device.bus_id}".encode()).hexdigest()
    uuid = f"GPU-{UUID(digest[:32])}"
    gpu = SimulatedGpu(
        function=function, model=model, uuid=uuid, links=links, memory_node=device.memory_node, mig=device.mig
    )
    if device.mig:
        gpu.nvml |= {"mig.current": "1", "mig.pending": "1"}
    if profile.clique is not None:
        gpu.nvml |= {"fabric.clique": str(profile.clique.clique_id), "fabric.cluster": profile.clique.cluster_uuid}
    return gpu
