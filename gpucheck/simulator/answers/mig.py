"""The MIG devices of a GPU that is divided: one for each of its GPU instances, with one compute instance each."""

import hashlib
from collections.abc import Iterator

from gpucheck.simulator.answers.identity import MIB
from gpucheck.simulator.machine import SimulatedGpu
from gpucheck.simulator.profile import MigSlice

MOST = 7
# The ids that the driver gives GPU instances of so many slices (A100, ``nvidia-smi mig -lgi``)
INSTANCE_IDS = {7: (0,), 4: (1,), 3: (2, 1), 2: (3, 4, 5), 1: tuple(range(7, 14))}


def mig(gpu: SimulatedGpu) -> Iterator[tuple[str, object]]:
    """Keys and values of a GPU. Raises ValueError for instances that its model does not have or that do not fit."""
    if not gpu.mig:
        return
    known = gpu.model.mig_slices
    for name in gpu.mig:
        if name not in known:
            raise ValueError(f"mig: {gpu.model.name} has no instance {name!r}. It has: {', '.join(known) or 'none'}")
    slices = [known[name] for name in gpu.mig]
    if sum(one.slices for one in slices) > MOST:
        raise ValueError(f"mig: {', '.join(gpu.mig)} are more than the {MOST} slices of a GPU")
    yield from (("mig.max", MOST), ("mig.count", len(gpu.mig)))
    for number, (name, instance) in enumerate(zip(gpu.mig, _instance_ids(slices), strict=True)):
        own = dict(_device(gpu, number, name, instance))
        yield from ((f"mig.{number}.{key}", value) for key, value in own.items())


def _instance_ids(slices: list[MigSlice]) -> list[int]:
    taken: list[int] = []
    for one in slices:
        taken.append(next(number for number in INSTANCE_IDS[one.slices] if number not in taken))
    return taken


def _device(gpu: SimulatedGpu, number: int, name: str, instance: int) -> Iterator[tuple[str, object]]:
    has = gpu.model.mig_slices[name]
    digest = hashlib.sha256(f"{gpu.uuid} {instance}".encode()).hexdigest()
    uuid = f"MIG-{digest[:8]}-{digest[8:12]}-5{digest[13:16]}-{digest[16:20]}-{digest[20:32]}"
    yield from (("name", f"{gpu.model.name} MIG {name}"), ("uuid", uuid), ("index", number))
    yield from (("gpu_instance", instance), ("compute_instance", 0), ("mig.current", 1), ("mig.pending", 1))
    yield from (("memory.total", has.memory_mib * MIB), ("memory.reserved", 0), ("memory.used", 0))
    yield from (("bar1.total", gpu.model.bar1_mib // 8 * has.slices * MIB), ("process.compute.count", 0))
    yield from (("attribute.multiprocessors", has.multiprocessors), ("attribute.copy_engines", has.copy_engines))
    yield from (("attribute.decoders", has.decoders), ("attribute.encoders", 0), ("attribute.jpeg", has.jpeg))
    yield from (("attribute.ofa", has.ofa), ("attribute.gpu_slices", has.slices))
    yield from (("attribute.compute_slices", has.slices), ("attribute.memory_mib", has.memory_mib))
