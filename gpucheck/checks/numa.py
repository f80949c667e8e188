"""NUMA: is it known which CPU node each GPU hangs on, and do NVML and the kernel agree?

Sources: numa_node of the PCI function in sysfs (-1 = the firmware did not say), nvmlDeviceGetCpuAffinity, and the nodes
below /sys/devices/system/node. Ranks that run on the wrong node copy through the socket link.
"""

from collections.abc import Iterator

import msgspec

from gpucheck.checks._nvml import each_gpu
from gpucheck.model import Check, Finding, Gpu, Host, NvmlFailure, NvmlReading
from gpucheck.model.about import About

NAME = "numa"
NODES = "/sys/devices/system/node"


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs, their node by the kernel, and the CPU list of every node."""

    nvml: NvmlReading | NvmlFailure
    kernel: dict[str, int | None]
    nodes: dict[int, str]


def probe(host: Host) -> Values:
    """Ask NVML and sysfs. Nodes without CPUs (the memory of a Grace GPU) are none that a rank could run on."""
    names = [name for name in host.list_names(NODES) or () if name.startswith("node") and name[4:].isdigit()]
    cpus = {int(name[4:]): (host.read_text(f"{NODES}/{name}/cpulist") or "").strip() for name in names}
    return Values(
        nvml=host.nvml(),
        kernel={device.bus_id: device.numa_node for device in host.pci() if device.is_nvidia_gpu},
        nodes={node: text for node, text in sorted(cpus.items()) if text},
    )


def evaluate(values: Values) -> Iterator[Finding]:
    """One finding a GPU; a machine of one node has nothing to place."""
    if isinstance(values.nvml, NvmlReading) and values.nvml.gpus and len(values.nodes) < 2:
        yield About(check=NAME).skips("this machine has one NUMA node, so every CPU is as near as any other")
        return
    yield from each_gpu(NAME, values.nvml, lambda gpu: _judge(values, gpu), nothing="no GPU to place")


def _judge(values: Values, gpu: Gpu) -> Finding:
    node = values.kernel.get(gpu.pci_bus_id)
    about = About(
        check=NAME,
        subject=f"gpu:{gpu.pci_bus_id}",
        evidence=(
            f"sysfs numa_node: {node}",
            f"nvmlDeviceGetCpuAffinity: {gpu.cpu_affinity}",
            *(f"node {n}: CPUs {cpus}" for n, cpus in values.nodes.items()),
        ),
    )
    if node is None:
        why = "the firmware does not tell which node the GPU hangs on, so ranks cannot be placed near it"
        fix = "update the BIOS and set NUMA nodes per socket to Auto; until then measure with gpucheck bandwidth"
        return about.warns("unknown", "a node", why, fix, "wrong-numa-placement", "possible")
    told = values.nodes.get(node)
    if gpu.cpu_affinity is not None and told is not None and not _cpus(gpu.cpu_affinity) & _cpus(told):
        why = "NVML and the kernel name different CPUs for this GPU: tools that pin by one of them pin wrong"
        fix = "compare nvidia-smi topo -m with lscpu; in a container give it all CPUs of the node"
        return about.warns(gpu.cpu_affinity, told, why, fix, "wrong-numa-placement", "possible")
    return about.passes(f"node {node}")


def _cpus(text: str) -> set[int]:
    """The numbers of a Linux CPU list, ``0-15,32-47``."""
    ranges = (part.partition("-") for part in text.split(",") if part.strip())
    return {cpu for first, _, last in ranges for cpu in range(int(first), int(last or first) + 1)}


CHECK = Check(NAME, frozenset({"hardware", "quick"}), probe, evaluate)
