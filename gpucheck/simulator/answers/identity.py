"""What a GPU is: its names and numbers, its place on the PCI bus, its memory. What does not change while it runs."""

import hashlib
from collections.abc import Iterator
from uuid import UUID

from gpucheck.simulator.machine import Machine, SimulatedGpu

MIB = 1 << 20
RESERVED_MIB = 512  # what a driver keeps for itself, roughly
PCIE = 2  # nvmlBusType_t
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
TURING = 6
SLICES = 7  # of compute, of a GPU that can be divided
# The ids that the driver gives GPU instances of so many slices (A100, ``nvidia-smi mig -lgi``)
INSTANCE_IDS = {7: (0,), 4: (1,), 3: (2, 1), 2: (3, 4, 5), 1: tuple(range(7, 14))}


def identity(machine: Machine, gpu: SimulatedGpu, index: int) -> Iterator[tuple[str, object]]:
    """Keys and values of a GPU, index being its number among those that NVML shows."""
    model = gpu.model
    vendor, device = gpu.function.ids.split(":")
    major, minor = model.compute_capability.split(".")
    yield from (("name", model.name), ("uuid", gpu.uuid), ("index", index), ("minor", index))
    yield from (("bus_id", gpu.function.bus_id), ("pci_device_id", f"0x{device}{vendor}"), ("bus_type", PCIE))
    yield from (("pci_subsystem_id", f"0x{model.subsystem_id}10de"), ("pci_class", f"0x{model.class_id}"))
    yield from (("compute.major", major), ("compute.minor", minor))
    yield from (("architecture", model.architecture), ("brand", model.brand), ("vbios", VBIOS[model.architecture]))
    yield from (("board", f"0x{gpu.function.bus_id[5:7]}00"), ("multi_gpu_board", 0), ("irq", 100 + index))
    yield "virtualization", PASSTHROUGH if getattr(machine.profile, "virtual", False) else 0
    if model.brand != GEFORCE:
        # Boards for data centers and workstations report them; made up from the UUID.
        yield "serial", f"16{int(hashlib.sha256(gpu.uuid.encode()).hexdigest(), 16) % 10**11:011d}"
        yield from (
            ("part_number", f"SIMULATED-{model.device_id}-{model.subsystem_id}"),
            ("inforom.image", "SIMULATED"),
        )
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
    if model.coherent:
        yield "c2c.enabled", 1
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
    yield from (("attribute.decoders", has.decoders), ("attribute.encoders", 0), ("attribute.jpeg", has.jpeg))
    yield from (("attribute.ofa", has.ofa), ("attribute.gpu_slices", has.slices))
    yield from (("attribute.compute_slices", has.slices), ("attribute.memory_mib", has.memory_mib))
