"""machine.txt: every answer of the simulated NVML library as ``key = value``. A key left out is NOT_SUPPORTED."""

from collections.abc import Iterator

from gpucheck.simulator.machine import REMOTE_GPU, REMOTE_SWITCH, Link, Machine, SimulatedGpu
from gpucheck.simulator.paths import CAPABILITIES, common_ancestor, p2p_status
from gpucheck.simulator.profile import HERE, read

MIB = 1 << 20
RESERVED_MIB = 512  # what a driver keeps for itself, roughly
# NVML field ids: raw speed of links 0-5 and 6-11; then counters that are zero on a healthy GPU
SPEED_FIELDS = (*range(84, 90), *range(132, 138))
ZERO_PER_LINK = (161, 162, 163)  # replay, recovery, CRC
ZERO_LINK_TOTALS = (38, 45, 52, 59)
LINK_ERRORS = range(5)
LINK_CAPABILITIES = (1, 1, 1, 1, 0, 1)  # P2P, system memory, P2P atomics, system atomics, SLI, valid


def answers(machine: Machine) -> str:
    """The text of machine.txt for the GPUs that NVML can see, renumbered without gaps as the driver does."""
    visible = [gpu for gpu in machine.gpus if gpu.visible]
    lines = {"profile": machine.profile.name, "gpu.count": str(len(visible))}
    lines |= {f"cuda.{branch}": str(version) for branch, version in _cuda_by_branch().items()}
    for index, gpu in enumerate(visible):
        own = dict(_gpu(machine, gpu, index)) | dict(_links(machine, gpu)) | dict(_pairs(machine, gpu, visible))
        lines |= {f"gpu.{index}.{key}": str(value) for key, value in (own | gpu.nvml).items()}
    lines |= machine.nvml
    head = "# SIMULATED machine: what libnvidia-ml.so.1 answers here. An absent key is NOT_SUPPORTED.\n"
    return head + "".join(f"{key} = {value}\n" for key, value in lines.items())


def _cuda_by_branch() -> dict[int, int]:
    """Driver branch -> CUDA version as NVML counts it, 13000 for 13.0."""
    table: dict[int, str] = read(HERE / "cuda.yml", dict[int, str])
    versions = {branch: version.split(".") for branch, version in table.items()}
    return {branch: int(major) * 1000 + int(minor) * 10 for branch, (major, minor) in versions.items()}


def _gpu(machine: Machine, gpu: SimulatedGpu, index: int) -> Iterator[tuple[str, object]]:
    model = gpu.model
    vendor, device = gpu.function.ids.split(":")
    major, minor = model.compute_capability.split(".")
    yield from (("name", model.name), ("uuid", gpu.uuid), ("index", index), ("minor", index))
    yield from (("bus_id", gpu.function.bus_id), ("pci_device_id", f"0x{device}{vendor}"))
    yield "pci_subsystem_id", f"0x{model.subsystem_id}10de"
    yield from (("compute.major", major), ("compute.minor", minor))
    yield from (("architecture", model.architecture), ("brand", model.brand))
    yield from (("memory.total", model.memory_mib * MIB), ("memory.reserved", RESERVED_MIB * MIB), ("memory.used", 0))
    yield "bar1.total", model.bar1_mib * MIB
    yield from _pcie(machine, gpu)
    yield from _state(machine, gpu)
    node = gpu.function.numa_node
    yield "cpus", machine.profile.numa_nodes[node or 0]
    yield "numa_nodes", node or 0


def _pcie(machine: Machine, gpu: SimulatedGpu) -> Iterator[tuple[str, object]]:
    function = gpu.function
    slot = machine.functions[function.parent] if function.parent else function
    yield from (("pcie.generation", function.generation), ("pcie.width", function.width), ("pcie.replays", 0))
    yield "pcie.max_generation", min(function.max_generation, slot.max_generation)
    yield "pcie.max_width", min(function.max_width, slot.max_width)
    yield "pcie.device_max_generation", function.max_generation
    yield from (("field.94", 0), ("field.95", 0))


def _state(machine: Machine, gpu: SimulatedGpu) -> Iterator[tuple[str, object]]:
    """An idle, healthy GPU."""
    model = gpu.model
    limit = model.power_limit_w * 1000
    yield from (("persistence", int(machine.persistence)), ("compute_mode", 0))
    yield from (("performance_state", 0), ("clocks_event_reasons", 1))  # 1: the GPU is idle
    yield from (("power.usage_mw", limit // 10), ("power.limit_mw", limit), ("power.default_limit_mw", limit))
    yield from (("power.enforced_limit_mw", limit), ("temperature.0", 34), ("threshold.0", 90), ("threshold.1", 85))
    yield from ((f"utilization.{what}", 0) for what in ("gpu", "memory", "encoder", "decoder"))
    yield from (("utilization.sampling_us", 100000), ("display_mode", int(model.display)))
    yield "display_active", 0
    sm, memory = model.clocks_mhz
    for domain, mhz in enumerate((sm, sm, memory, sm)):  # graphics, SM, memory, video
        yield from ((f"clock.{domain}", mhz), (f"max_clock.{domain}", mhz))
    if model.fan:
        yield "fan_speed", 30
    if model.ecc:
        yield from (("ecc.current", 1), ("ecc.pending", 1))
        yield from ((f"ecc.errors.{kind}.{span}", 0) for kind in (0, 1) for span in (0, 1))
    if model.mig:
        yield from (("mig.current", 0), ("mig.pending", 0))
    if model.row_remap:
        yield from ((f"remap.{what}", 0) for what in ("correctable", "uncorrectable", "pending", "failed"))
        yield from ((f"field.{field}", 0) for field in range(142, 146))
    if model.fabric is not None:
        yield from (("fabric.status", 0), ("fabric.clique", 0), ("fabric.state", gpu.fabric_state))
        yield from (("fabric.health_mask", model.fabric.health_mask), ("fabric.health_summary", 1))


def _links(machine: Machine, gpu: SimulatedGpu) -> Iterator[tuple[str, object]]:
    ports = gpu.model.nvlink
    if ports is None:
        return
    yield from (("nvlink.count", ports.links), ("field.91", ports.links), ("field.90", ports.speed_mb_s))
    yield "field.147", sum(link.active and link.remote_type == REMOTE_SWITCH for link in gpu.links)
    yield from ((f"field.{field}", "0ull") for field in ZERO_LINK_TOTALS)
    for number, link in enumerate(gpu.links):
        speed = ports.speed_mb_s if link.active else 0
        yield from ((f"nvlink.{number}.active", int(link.active)), (f"nvlink.{number}.version", ports.version))
        yield from ((f"field.164.{number}", speed), (f"field.165.{number}", int(link.active)))
        yield f"field.166.{number}", ports.version
        if number < len(SPEED_FIELDS):
            yield f"field.{SPEED_FIELDS[number]}", speed
        yield from ((f"field.{field}.{number}", "0ull") for field in ZERO_PER_LINK)
        yield from ((f"nvlink.{number}.errors.{counter}", 0) for counter in LINK_ERRORS)
        yield from ((f"nvlink.{number}.capability.{n}", value) for n, value in enumerate(LINK_CAPABILITIES))
        yield from ((f"nvlink.{number}.remote.{key}", value) for key, value in _remote(machine, link))


def _remote(machine: Machine, link: Link) -> Iterator[tuple[str, object]]:
    """The far end of a live link. The driver does not fill in its subsystem id."""
    if not link.active or link.remote_type is None:
        return
    yield "type", link.remote_type
    if link.bus_id is not None:
        vendor, device = machine.functions[link.bus_id].ids.split(":")
        yield from (("bus_id", link.bus_id), ("pci_device_id", f"0x{device}{vendor}"))
    if link.remote_type == REMOTE_GPU and link.peer is not None:
        yield "link", link.peer[1]


def _pairs(machine: Machine, gpu: SimulatedGpu, visible: list[SimulatedGpu]) -> Iterator[tuple[str, object]]:
    for index, other in enumerate(visible):
        yield f"ancestor.{index}", common_ancestor(machine, gpu, other)
        if other is not gpu:
            yield from ((f"p2p.{index}.{cap}", p2p_status(gpu, other, cap)) for cap in CAPABILITIES)
            for cap in CAPABILITIES if gpu.model.fabric is not None else ():
                yield f"p2p.{index}.{cap}.no_fabric", p2p_status(gpu, other, cap, fabric=False)
