"""A profile put together: PCI functions and GPUs with their links. Faults change this, writers read it."""

import hashlib
from dataclasses import dataclass, field

from gpucheck.model import DriverState
from gpucheck.simulator.profile import Bridge, Device, GpuModel, Profile, gpu_model
from gpucheck.simulator.wiring import gpus_of, part_of

# NVML: nvmlIntNvLinkDeviceType_t
REMOTE_GPU, REMOTE_SWITCH = 0, 2


@dataclass
class Function:
    """One PCI function. generation and width are those of its link now; a bridge port's link is the one below it.

    parent: the bridge above, None on a root bus. ids: vendor:device. subsystem: the same of the board.
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


@dataclass
class Link:
    """One NVLink port. peer: (GPU index, its port) for a cable between two GPUs. bus_id None: the far end is hidden."""

    active: bool = False
    remote_type: int | None = None
    bus_id: str | None = None
    peer: tuple[int, int] | None = None


@dataclass
class SimulatedGpu:
    """One GPU. visible false: on the PCI bus, but not among those that NVML counts. nvml: keys that override.

    fabric_state: as in gpucheck.model.Fabric; shown only by models that report it.
    """

    function: Function
    model: GpuModel
    uuid: str
    links: list[Link]
    visible: bool = True
    fabric_state: str = "completed"
    nvml: dict[str, str] = field(default_factory=dict)


@dataclass
class Machine:
    """A whole machine, free to be changed until it is written. nvml: machine-wide lines for machine.txt.

    services: systemd's ActiveState by unit. packages: installed versions by name. Both only of what goes with the GPUs.
    surroundings: what the machine answers in place of this process's own limits, environment and libraries.
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

    def gpu(self, index: int) -> SimulatedGpu:
        """A GPU by its number in the profile. Raises ValueError if there is none."""
        if not 0 <= index < len(self.gpus):
            numbers = f"GPUs 0 to {len(self.gpus) - 1}" if self.gpus else "no GPU"
            raise ValueError(f"there is no GPU {index}; profile {self.profile.name} has {numbers}")
        return self.gpus[index]

    def chain(self, bus_id: str) -> list[Function]:
        """The bridges above a function, from the root port down."""
        above: list[Function] = []
        parent = self.functions[bus_id].parent
        while parent is not None:
            above.insert(0, self.functions[parent])
            parent = above[0].parent
        return above


def build(profile: Profile, driver: DriverState) -> Machine:
    """The healthy machine of a profile, every link trained as far as both its ends allow."""
    functions = {device.bus_id: _function(device, profile) for device in profile.devices}
    for function in functions.values():
        _train(function, functions)
    devices = gpus_of(profile)
    gpus = [_gpu(device, functions[device.bus_id], profile.name) for device in devices]
    _wire(profile, gpus)
    machine = Machine(profile=profile, driver=driver, functions=functions, gpus=gpus)
    if driver.loaded_version is None:
        # Nothing has registered the GPUs or keeps them awake: that is what a later load of the driver finds.
        machine.persistence = False
        for gpu in gpus:
            gpu.fabric_state = "in-progress"
    return machine


def _function(device: Device, profile: Profile) -> Function:
    part = part_of(device)
    by_id = {d.bus_id: d for d in profile.devices}
    root = device
    while root.under in by_id:
        root = by_id[root.under]
    bridge = isinstance(part, Bridge)
    return Function(
        bus_id=device.bus_id,
        kind=part.kind if isinstance(part, Bridge) else "gpu",
        ids=part.ids if isinstance(part, Bridge) else f"10de:{part.device_id}",
        subsystem="0000:0000" if isinstance(part, Bridge) else f"10de:{part.subsystem_id}",
        class_id=part.class_id if isinstance(part, GpuModel) else "068000" if part.kind == "nvswitch" else "060400",
        root=root.under,
        parent=device.under if device.under in by_id else None,
        numa_node=profile.roots[root.under].numa_node,
        max_generation=part.generation,
        max_width=min(part.width, device.width or part.width),
        bar1_mib=0 if bridge or not isinstance(part, GpuModel) else part.bar1_mib,
    )


def _train(function: Function, functions: dict[str, Function]) -> None:
    """A port shows the link below it, every other function the link above it; each runs at what both ends can."""
    if function.kind in ("root-port", "switch-downstream"):
        other = next((f for f in functions.values() if f.parent == function.bus_id), None)
    else:
        other = functions.get(function.parent or "")
    function.generation = min(function.max_generation, other.max_generation) if other else function.max_generation
    function.width = min(function.max_width, other.max_width) if other else function.max_width


def _gpu(device: Device, function: Function, profile: str) -> SimulatedGpu:
    model = gpu_model(device.gpu or "")
    digest = hashlib.sha256(f"{profile} {device.bus_id}".encode()).hexdigest()
    uuid = f"GPU-{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"
    links = [Link() for _ in range(model.nvlink.links if model.nvlink else 0)]
    return SimulatedGpu(function=function, model=model, uuid=uuid, links=links)


def _wire(profile: Profile, gpus: list[SimulatedGpu]) -> None:
    free = [0] * len(gpus)

    def take(gpu: int) -> int:
        free[gpu] += 1
        return free[gpu] - 1

    for a, b, count in profile.nvlink.pairs:
        for _ in range(count):
            here, there = take(a), take(b)
            gpus[a].links[here] = Link(True, REMOTE_GPU, gpus[b].function.bus_id, (b, there))
            gpus[b].links[there] = Link(True, REMOTE_GPU, gpus[a].function.bus_id, (a, here))
    for index, gpu in enumerate(gpus):
        for switch, count in profile.nvlink.switches.items():
            for _ in range(count):
                gpu.links[take(index)] = Link(True, REMOTE_SWITCH, switch)
        for _ in range(profile.nvlink.hidden_switch_links):
            gpu.links[take(index)] = Link(True, REMOTE_SWITCH)
