"""Advice on a topology: good groups of GPUs, CPU pinning of their processes, asymmetries."""

import msgspec

from gpucheck.model.advice import Advice, Choice, Pinning
from gpucheck.model.host.hardware import TopologyGpu
from gpucheck.model.topology import Topology
from gpucheck.topology.advice.asymmetry import asymmetries
from gpucheck.topology.advice.groups import MOST, best_group, nearness

USUAL_SIZES = (2, 4)


def with_advice(topology: Topology, size: int | None = None) -> Topology:
    """Return the topology with advice. size: GPUs of the job. Default: the usual sizes, none above MOST GPUs.

    Raises ValueError if the host has fewer GPUs, or more than MOST.
    """
    count = len(topology.gpus)
    if size is None and not 2 <= count <= MOST:
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
    """Return the CPUs for the process of the GPU at position `i`, and its nearest network cards."""
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
    """Return the command prefix, empty if neither node nor CPUs are known.

    The NUMA node is that of the CPUs: the GPU's own node (GPU NUMA ID) is device memory.
    """
    if gpu.numa_node is not None:
        return f"numactl --cpunodebind={gpu.numa_node} --membind={gpu.numa_node}"
    return f"taskset -c {gpu.cpu_affinity}" if gpu.cpu_affinity else ""
