"""machine.txt: every answer of the simulated NVML library as ``key = value``. A key left out is NOT_SUPPORTED.

nvml/simulator.h defines what a value may be besides a number or a text.
"""

import hashlib
from collections.abc import Iterator
from uuid import UUID

from gpucheck.simulator.machine import REMOTE_GPU, REMOTE_SWITCH, Link, Machine, SimulatedGpu
from gpucheck.simulator.machine.paths import CAPABILITIES, common_ancestor, p2p_status
from gpucheck.simulator.machine.profile import ADA, AMPERE, BLACKWELL, HOPPER, TURING, VOLTA, cuda_versions

DEPRECATED = "!26"
IDLE = 0x1  # nvmlClocksEventReason
ALL_REASONS = 0x1FF
XID, PSTATE, CLOCK, SINGLE_BIT, DOUBLE_BIT = 0x8, 0x4, 0x10, 0x1, 0x2  # nvmlEventType
# nvmlTemperatureThresholds_t
SHUTDOWN, SLOWDOWN, MEMORY, OPERATING = range(4)
CELSIUS, CELSIUS_BUSY = 34, 62
PCIE_ERROR_FIELDS, L0_TO_RECOVERY = range(173, 184), 169
# nvmlMemoryLocation_t
L1, L2, DRAM, REGISTERS, TEXTURE, TEXTURE_SHARED, CBU, SRAM = range(8)
THROTTLED_FIELDS = range(269, 272)  # nanoseconds: software thermal, hardware thermal, power brake
VIOLATIONS = range(5)  # nvmlPerfPolicyType_t: power, thermal, sync boost, board limit, low utilization


def state(machine: Machine, gpu: SimulatedGpu) -> Iterator[tuple[str, object]]:
    yield from (("persistence", int(machine.persistence)), ("compute_mode", 0), ("performance_state", 0))
    yield from (("display_mode", int(gpu.model.display)), ("display_active", 0))
    yield from (("clocks_event_reasons", IDLE), ("clocks_event_reasons.load", 0))
    yield "supported_clocks_event_reasons", ALL_REASONS
    yield from ((f"violation.{policy}", 0) for policy in VIOLATIONS)
    yield from ((f"field.{field}", "0ull") for field in THROTTLED_FIELDS)
    yield "event_types", XID | PSTATE | CLOCK | (SINGLE_BIT | DOUBLE_BIT if gpu.model.ecc else 0)
    if gpu.model.architecture >= AMPERE:
        yield "recovery_action", 0
    yield from _utilization(machine, gpu)
    yield from _heat(gpu)
    yield from _power(gpu)
    yield from _pcie_errors(gpu)
    yield from _ecc(gpu)
    yield from _repairs(gpu)
    if gpu.model.architecture >= TURING:
        yield from (("gsp.enabled", 1), ("gsp.default", 1), ("gsp.version", machine.profile.driver.version))
    if gpu.model.mig:
        yield from (("mig.current", int(bool(gpu.mig))), ("mig.pending", int(bool(gpu.mig))))


def _utilization(machine: Machine, gpu: SimulatedGpu) -> Iterator[tuple[str, object]]:
    sm, memory = gpu.model.clocks_mhz
    for domain, mhz in enumerate((sm, sm, memory, sm)):  # graphics, SM, memory, video
        yield from ((f"clock.{domain}", mhz), (f"max_clock.{domain}", mhz))
        # The default of some real products is below their maximum; here it is the maximum.
        if not machine.has_application_clocks:
            yield from ((f"{which}application_clock.{domain}", DEPRECATED) for which in ("", "default_"))
        elif gpu.model.application_clocks:
            yield from ((f"{which}application_clock.{domain}", mhz) for which in ("", "default_"))
    if gpu.mig:
        return  # NVML does not report it for a GPU that is divided
    yield from ((f"utilization.{what}", 0) for what in ("gpu", "memory", "encoder", "decoder"))
    yield from (("utilization.gpu.load", 100), ("utilization.memory.load", 60), ("utilization.sampling_us", 100_000))


def _heat(gpu: SimulatedGpu) -> Iterator[tuple[str, object]]:
    limits = gpu.model.thermal
    yield from (("temperature.0", CELSIUS), ("temperature.0.load", CELSIUS_BUSY))
    known = {SHUTDOWN: limits.shutdown, SLOWDOWN: limits.slowdown, MEMORY: limits.memory, OPERATING: limits.operating}
    yield from ((f"threshold.{which}", celsius) for which, celsius in known.items() if celsius is not None)
    if limits.memory is not None:
        yield from (("temperature.memory", CELSIUS + 4), ("temperature.memory.load", CELSIUS_BUSY + 8))
    if gpu.model.architecture >= ADA and limits.slowdown is not None:
        operating = limits.operating or limits.slowdown
        yield "temperature.margin", operating - CELSIUS
        yield "temperature.margin.load", operating - CELSIUS_BUSY
        yield "temperature.slowdown_margin", operating - limits.slowdown
    if gpu.model.fan:
        yield from (("fan_speed", 30), ("fan_speed.load", 55), ("fans", 1))


def _power(gpu: SimulatedGpu) -> Iterator[tuple[str, object]]:
    """Milliwatts. From Volta on the driver also counts the energy, which is what the power makes of the time."""
    limit = gpu.model.power_limit_w * 1000
    least, most = (watts * 1000 for watts in gpu.model.power_range_w)
    yield from (("power.usage_mw", limit // 10), ("power.usage_mw.load", limit * 8 // 10), ("power.managed", 1))
    yield from ((f"power.{which}_mw", limit) for which in ("limit", "default_limit", "enforced_limit"))
    yield from (("power.min_limit_mw", least), ("power.max_limit_mw", most))
    if gpu.model.architecture >= VOLTA:
        yield "energy_mj", f"3600000+{limit // 10}/s"


def _pcie_errors(gpu: SimulatedGpu) -> Iterator[tuple[str, object]]:
    yield from ((f"pcie.{name}", 0) for name in ("replays", "rollovers", "throughput_kb_s.0", "throughput_kb_s.1"))
    if gpu.model.architecture >= AMPERE:
        yield from ((f"field.{field}", 0) for field in (L0_TO_RECOVERY, *PCIE_ERROR_FIELDS))


def _ecc(gpu: SimulatedGpu) -> Iterator[tuple[str, object]]:
    """Counters are reported only while ECC is on. Turing and newer count caches and registers together, as SRAM."""
    if not gpu.model.ecc:
        return
    enabled = int(gpu.model.ecc_enabled)
    yield from (("ecc.current", enabled), ("ecc.pending", enabled))
    older = (L1, L2, DRAM, REGISTERS) if gpu.model.architecture == VOLTA else (L2, DRAM, REGISTERS, TEXTURE_SHARED)
    places = (DRAM, SRAM) if gpu.model.architecture >= TURING else older
    if enabled and gpu.model.architecture >= AMPERE:
        counts = (f"{span}.{kind}" for span in ("volatile", "aggregate") for kind in ("corrected", "parity", "sec_ded"))
        yield from ((f"sram.{count}", 0) for count in (*counts, "exceeded"))
    for kind in (0, 1) if enabled else ():
        for span in (0, 1):
            yield f"ecc.errors.{kind}.{span}", 0
            yield from ((f"ecc.location.{kind}.{span}.{place}", 0) for place in places)


def _repairs(gpu: SimulatedGpu) -> Iterator[tuple[str, object]]:
    """Rows are not reported while the GPU is divided."""
    if gpu.model.retired_pages:
        yield from ((f"retired.{what}", 0) for what in ("0", "1", "pending"))
    if gpu.model.row_remap and not gpu.mig:
        yield from ((f"remap.{what}", 0) for what in ("correctable", "uncorrectable", "pending", "failed"))
        yield "remap.banks.all", gpu.model.memory_mib // 128
        yield from ((f"remap.banks.{left}", 0) for left in ("high", "partial", "low", "none"))
    if gpu.model.architecture >= HOPPER:
        yield from (("repair.channel_pending", 0), ("repair.tpc_pending", 0))


LINK_ERRORS = range(5)  # nvmlNvLinkErrorCounter_t: replay, recovery, CRC flit, CRC data, ECC data
LINK_CAPABILITIES = (1, 1, 1, 1, 0, 1)  # P2P, system memory, P2P atomics, system atomics, SLI, valid
NVLINK_5 = 7  # NVML's version enum
# Per link from NVLink 5 on: packets and bytes both ways, errors by kind, recoveries, bit error rates. A rate that is
# too low to measure is mantissa 15, exponent 255 (nvml.h, NVML_NVLINK_BER_*).
NVLINK_5_COUNTERS = dict.fromkeys(range(201, 223), 0) | dict.fromkeys((220, 222), 0xFFF)
TRAFFIC = range(138, 142)  # KiB: data sent and received, raw sent and received
ALL_LINKS = 0xFFFFFFFF
# NVLink-C2C: field of the count, and of each link whether it is active, MB/s, three kinds of errors, power state.
# Speed: nvidia-smi c2c -s of GH200 (10 links) and GB200; 5 links on GB200 and GB300 follows from their 225 GB/s.
C2C_COUNT, C2C_LINKS, C2C = 170, 5, {171: 1, 172: 44712, 231: 0, 232: 0, 233: 0, 234: 0}


def links(machine: Machine, gpu: SimulatedGpu) -> Iterator[tuple[str, object]]:
    yield from _fabric(gpu)
    if gpu.model.coherent:
        yield f"field.{C2C_COUNT}", C2C_LINKS
        yield from ((f"field.{field}.{link}", value) for link in range(C2C_LINKS) for field, value in C2C.items())
    ports = gpu.model.nvlink
    if ports is None:
        return
    yield from (("nvlink.count", ports.links), ("nvlink.speed", ports.speed_mb_s), ("nvlink.encrypted", 0))
    if gpu.model.architecture >= BLACKWELL:
        yield "nvlink.bandwidth_mode", 0
    yield "nvlink.switch_links", sum(link.active and link.remote_type == REMOTE_SWITCH for link in gpu.links)
    newest = ports.version >= NVLINK_5
    yield from ((f"field.{field}.{ALL_LINKS}", "0ull") for field in (() if newest else TRAFFIC))
    for number, link in enumerate(gpu.links):
        speed = ports.speed_mb_s if link.active else 0
        yield from ((f"nvlink.{number}.active", int(link.active)), (f"nvlink.{number}.version", ports.version))
        yield f"nvlink.{number}.speed", speed
        yield from ((f"nvlink.{number}.capability.{n}", value) for n, value in enumerate(LINK_CAPABILITIES))
        if newest:
            yield from ((f"field.{field}.{number}", f"{value}ull") for field, value in NVLINK_5_COUNTERS.items())
        else:
            yield from ((f"nvlink.{number}.errors.{counter}", 0) for counter in LINK_ERRORS)
            yield from ((f"field.{field}.{number}", "0ull") for field in TRAFFIC)
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


def _fabric(gpu: SimulatedGpu) -> Iterator[tuple[str, object]]:
    if gpu.model.fabric is None:
        return
    yield from (("fabric.status", 0), ("fabric.clique", 0), ("fabric.state", gpu.fabric_state))
    yield from (("fabric.health_mask", gpu.model.fabric.health_mask), ("fabric.health_summary", 1))


MIB = 1 << 20
RESERVED_MIB = 512  # what a driver keeps for itself, roughly
PASSTHROUGH = 1  # nvmlGpuVirtualizationMode_t
GEFORCE = 5  # nvmlBrandType_t
ADDRESSING_NONE, ADDRESSING_ATS = 0, 2
# Firmware as each architecture (nvmlDeviceArchitecture_t) numbers it; the exact build is made up.
VBIOS = {
    4: "86.00.4D.00.01",
    5: "88.00.80.00.01",
    6: "90.04.96.00.01",
    7: "92.00.45.00.03",
    8: "95.02.66.00.02",
    9: "96.00.89.00.01",
    10: "97.00.82.00.10",
}
SLICES = 7  # of compute, of a GPU that can be divided
# The ids that the driver gives GPU instances of so many slices (A100, ``nvidia-smi mig -lgi``)
INSTANCE_IDS = {7: (0,), 4: (1,), 3: (2, 1), 2: (3, 4, 5), 1: tuple(range(7, 14))}


def identity(machine: Machine, gpu: SimulatedGpu, index: int) -> Iterator[tuple[str, object]]:
    """Keys and values of a GPU, index being its number among those that NVML shows."""
    model = gpu.model
    vendor, device = gpu.function.ids.split(":")
    major, minor = model.compute_capability.split(".")
    yield from (("name", model.name), ("uuid", gpu.uuid), ("index", index), ("minor", index))
    yield from (("bus_id", gpu.function.bus_id), ("pci_device_id", f"0x{device}{vendor}"))
    yield from (("pci_subsystem_id", f"0x{model.subsystem_id}10de"), ("pci_class", f"0x{model.class_id}"))
    yield from (("compute.major", major), ("compute.minor", minor))
    yield from (("architecture", model.architecture), ("brand", model.brand), ("vbios", VBIOS[model.architecture]))
    yield from (("board", f"0x{gpu.function.bus_id[5:7]}00"), ("multi_gpu_board", 0))
    yield "virtualization", PASSTHROUGH if machine.profile.virtual else 0
    if model.brand != GEFORCE:
        # Boards for data centers and workstations report them; made up from the UUID.
        yield "serial", f"16{int(hashlib.sha256(gpu.uuid.encode()).hexdigest(), 16) % 10**11:011d}"
        yield "part_number", f"SIMULATED-{model.device_id}-{model.subsystem_id}"
        yield "inforom.image", "SIMULATED"
    yield from _memory(machine, gpu)
    yield from _pcie(machine, gpu)


def _memory(machine: Machine, gpu: SimulatedGpu) -> Iterator[tuple[str, object]]:
    model, node = gpu.model, gpu.function.numa_node
    used = sum(process.memory_mib for process in gpu.processes)
    yield from (("memory.total", model.memory_mib * MIB), ("memory.reserved", RESERVED_MIB * MIB))
    yield from (("memory.used", used * MIB), ("bar1.total", model.bar1_mib * MIB), ("bar1.used", 0))
    yield from processes(gpu)
    yield from (("cpus", machine.profile.numa_nodes[node or 0]), ("numa_nodes", node or 0))
    if gpu.memory_node is not None:
        yield "memory_numa_node", gpu.memory_node
    if model.coherent and machine.profile.clique is not None:
        yield from (("rack.chassis", "SIMULATED"), ("rack.slot", 14), ("rack.tray", 4), ("rack.host", 1))
        yield "rack.module", machine.gpus.index(gpu) + 1
    if model.architecture >= TURING:
        yield "addressing_mode", ADDRESSING_ATS if model.coherent else ADDRESSING_NONE


def processes(gpu: SimulatedGpu) -> Iterator[tuple[str, object]]:
    """Of a GPU; on one that is divided, all of them run on its first MIG device."""
    yield "process.compute.count", len(gpu.processes)
    for number, process in enumerate(gpu.processes):
        yield f"process.compute.{number}.pid", process.pid
        yield f"process.compute.{number}.memory", process.memory_mib * MIB
        if gpu.mig:
            yield f"process.compute.{number}.gpu_instance", instance_ids(gpu)[0]
            yield f"process.compute.{number}.compute_instance", 0


def instance_ids(gpu: SimulatedGpu) -> list[int]:
    """The id of each GPU instance. Raises ValueError for instances that the model does not have or that do not fit."""
    known, taken = gpu.model.mig_slices, list[int]()
    for name in gpu.mig:
        if name not in known:
            raise ValueError(f"mig: {gpu.model.name} has no instance {name!r}. It has: {', '.join(known) or 'none'}")
        free = [number for number in INSTANCE_IDS[known[name].slices] if number not in taken]
        if not free or sum(known[one].slices for one in gpu.mig) > SLICES:
            raise ValueError(f"mig: {', '.join(gpu.mig)} are more than the {SLICES} slices of a GPU")
        taken.append(free[0])
    return taken


def _pcie(machine: Machine, gpu: SimulatedGpu) -> Iterator[tuple[str, object]]:
    function = gpu.function
    slot = machine.slot(function)
    yield from (("pcie.generation", function.generation), ("pcie.width", function.width))
    yield "pcie.max_generation", min(function.max_generation, slot.max_generation)
    yield "pcie.max_width", min(function.max_width, slot.max_width)
    yield "pcie.device_max_generation", function.max_generation


def mig(gpu: SimulatedGpu) -> Iterator[tuple[str, object]]:
    """Keys and values of the MIG devices of a GPU: one for each of its GPU instances, with one compute instance each.

    Raises ValueError as ``instance_ids`` does.
    """
    if not gpu.mig:
        return
    yield from (("mig.max", SLICES), ("mig.count", len(gpu.mig)))
    for number, (name, instance) in enumerate(zip(gpu.mig, instance_ids(gpu), strict=True)):
        own = dict(_device(gpu, number, name, instance))
        own |= dict(processes(gpu)) if number == 0 else {"process.compute.count": 0}
        yield from ((f"mig.{number}.{key}", value) for key, value in own.items())


def _device(gpu: SimulatedGpu, number: int, name: str, instance: int) -> Iterator[tuple[str, object]]:
    has = gpu.model.mig_slices[name]
    digest = hashlib.sha256(f"{gpu.uuid} {instance}".encode()).hexdigest()
    uuid = f"MIG-{UUID(f'{digest[:12]}5{digest[13:32]}')}"
    used = sum(process.memory_mib for process in gpu.processes) if number == 0 else 0
    yield from (("name", f"{gpu.model.name} MIG {name}"), ("uuid", uuid), ("index", number))
    yield from (("gpu_instance", instance), ("compute_instance", 0), ("mig.current", 1), ("mig.pending", 1))
    yield from (("memory.total", has.memory_mib * MIB), ("memory.reserved", 0), ("memory.used", used * MIB))
    yield from (("bar1.total", gpu.model.bar1_mib // 8 * has.slices * MIB), ("bar1.used", 0))
    yield from (("attribute.multiprocessors", has.multiprocessors), ("attribute.copy_engines", has.copy_engines))


def answers(machine: Machine) -> str:
    """The text of machine.txt for the GPUs that NVML can see, renumbered without gaps as the driver does."""
    visible = [gpu for gpu in machine.gpus if gpu.visible]
    lines = {"profile": machine.profile.name, "gpu.count": str(len(visible))}
    lines |= {f"cuda.{branch}": str(version) for branch, version in cuda_versions().items()}
    lines |= {key: str(value) for key, value in _host(visible)}
    for index, gpu in enumerate(visible):
        own = dict(identity(machine, gpu, index)) | dict(state(machine, gpu)) | dict(links(machine, gpu))
        own |= dict(_pairs(machine, gpu, visible)) | dict(mig(gpu))
        lines |= {f"gpu.{index}.{key}": str(value) for key, value in (own | gpu.nvml).items()}
    lines |= machine.nvml
    head = "# SIMULATED machine: what libnvidia-ml.so.1 answers here. An absent key is NOT_SUPPORTED.\n"
    return head + "".join(f"{key} = {value}\n" for key, value in lines.items())


def _host(visible: list[SimulatedGpu]) -> Iterator[tuple[str, object]]:
    """What the GPUs share: confidential computing, off, where a GPU knows it; the names of processes."""
    if any(gpu.model.architecture >= HOPPER for gpu in visible):
        for what in ("environment", "feature", "dev_tools", "multi_gpu", "cpu", "gpus", "ready"):
            yield f"confidential.{what}", 0
    if any(gpu.model.architecture == HOPPER and gpu.model.fabric is not None for gpu in visible):
        yield "nvlink.bandwidth_mode", 0
    for gpu in visible:
        yield from ((f"process.{process.pid}.name", process.name) for process in gpu.processes)


def _pairs(machine: Machine, gpu: SimulatedGpu, visible: list[SimulatedGpu]) -> Iterator[tuple[str, object]]:
    for index, other in enumerate(visible):
        yield f"ancestor.{index}", common_ancestor(machine, gpu, other)
        if other is not gpu:
            yield from ((f"p2p.{index}.{cap}", p2p_status(gpu, other, cap)) for cap in CAPABILITIES)
            for cap in CAPABILITIES if gpu.model.fabric is not None else ():
                yield f"p2p.{index}.{cap}.no_fabric", p2p_status(gpu, other, cap, fabric=False)
