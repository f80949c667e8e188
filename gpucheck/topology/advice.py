"""What to make of a topology: good groups of GPUs, where their processes should run, what is uneven."""

import msgspec

from gpucheck.model.advice import Advice, Choice, Pinning
from gpucheck.model.hardware import TopologyGpu
from gpucheck.model.topology import Topology
from gpucheck.topology.groups import best_group, nearness
from gpucheck.topology.uneven import asymmetries

USUAL_SIZES = (2, 4)


def with_advice(topology: Topology, size: int | None = None) -> Topology:
    """The same topology with advice. size: GPUs of the job, otherwise the usual sizes that the machine has room for.

    Raises ValueError where the machine has fewer GPUs.
    """
    count = len(topology.gpus)
    if size is None and count < 2:
        choices: tuple[Choice, ...] = ()
    else:
        sizes = (size,) if size is not None else tuple(k for k in USUAL_SIZES if k < count) or (count,)
        choices = tuple(best_group(topology, k) for k in sizes)
    advice = Advice(
        best=choices,
        pinning=tuple(pinning(topology, i) for i in range(count)),
        asymmetries=asymmetries(topology),
    )
    return msgspec.structs.replace(topology, advice=advice)


def pinning(topology: Topology, i: int) -> Pinning:
    """Where the process of the GPU at position `i` should run, and which network cards are nearest to it."""
    gpu = topology.gpus[i]
    near = max((nearness(nic.classes[i]) for nic in topology.nics), default=0)
    return Pinning(
        gpu=gpu.index,
        numa_node=gpu.numa_node,
        cpus=gpu.cpu_affinity,
        command=_command(gpu),
        nics=tuple(nic.name or nic.label for nic in topology.nics if near and nearness(nic.classes[i]) == near),
    )


def _command(gpu: TopologyGpu) -> str:
    """Empty where nothing is told. A node's memory is only asked for where its CPUs are known to be there.

    Memory of a GPU's own NUMA node (GPU NUMA ID) is device memory and never a place for the process.
    """
    if gpu.numa_node is not None:
        return f"numactl --cpunodebind={gpu.numa_node} --membind={gpu.numa_node}"
    return f"taskset -c {gpu.cpu_affinity}" if gpu.cpu_affinity else ""
