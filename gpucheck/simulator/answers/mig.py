"""The MIG devices of a GPU that is divided: one for each of its GPU instances, with one compute instance each."""

import hashlib
from collections.abc import Iterator

from gpucheck.simulator.answers.identity import MIB, SLICES, instance_ids, processes
from gpucheck.simulator.machine import SimulatedGpu


def mig(gpu: SimulatedGpu) -> Iterator[tuple[str, object]]:
    """Keys and values of a GPU. Raises ValueError as ``instance_ids`` does."""
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
    uuid = f"MIG-{digest[:8]}-{digest[8:12]}-5{digest[13:16]}-{digest[16:20]}-{digest[20:32]}"
    used = sum(process.memory_mib for process in gpu.processes) if number == 0 else 0
    yield from (("name", f"{gpu.model.name} MIG {name}"), ("uuid", uuid), ("index", number))
    yield from (("gpu_instance", instance), ("compute_instance", 0), ("mig.current", 1), ("mig.pending", 1))
    yield from (("memory.total", has.memory_mib * MIB), ("memory.reserved", 0), ("memory.used", used * MIB))
    yield from (("bar1.total", gpu.model.bar1_mib // 8 * has.slices * MIB), ("bar1.used", 0))
    yield from (("attribute.multiprocessors", has.multiprocessors), ("attribute.copy_engines", has.copy_engines))
    yield from (("attribute.decoders", has.decoders), ("attribute.encoders", 0), ("attribute.jpeg", has.jpeg))
    yield from (("attribute.ofa", has.ofa), ("attribute.gpu_slices", has.slices))
    yield from (("attribute.compute_slices", has.slices), ("attribute.memory_mib", has.memory_mib))
