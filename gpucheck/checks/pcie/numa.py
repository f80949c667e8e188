"""NUMA: is the CPU node of each GPU known, and do NVML and the kernel agree?

Sources: numa_node of the PCI function in sysfs (-1 = the firmware did not report it), nvmlDeviceGetCpuAffinity, and the
nodes below /sys/devices/system/node. Ranks that run on the wrong node copy through the socket link.
"""

import re
from collections.abc import Iterator

import msgspec

from gpucheck.checks._nvml import each_gpu, gaps_of, not_reported
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Check, Finding, Gpu, Host, NvmlFailure, NvmlReading

NAME = "numa"
SYSTEM, NODES = "/sys/devices/system", "/sys/devices/system/node"
AFFINITY = "nvmlDeviceGetCpuAffinity"


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs, their node by the kernel, and the CPU list of every node that has CPUs.

    kernel: by bus id, None = the firmware did not report a node; a GPU that sysfs does not show is missing.
    nodes: None where sysfs does not show them.
    """

    nvml: NvmlReading | NvmlFailure
    kernel: dict[str, int | None]
    nodes: dict[int, str] | None


def probe(host: Host) -> Values:
    return Values(
        nvml=host.nvml(),
        kernel={device.bus_id: device.numa_node for device in host.pci() if device.is_nvidia_gpu},
        nodes=_nodes(host),
    )


def _nodes(host: Host) -> dict[int, str] | None:
    """Nodes without CPUs (the memory of a Grace GPU) are left out: no rank could run on them."""
    listed = host.list_names(NODES)
    if listed is None:  # a kernel without NUMA support shows its CPUs and no nodes
        return {} if "cpu" in (host.list_names(SYSTEM) or ()) else None
    names = [name for name in listed if name.startswith("node") and name[4:].isdigit()]
    cpus = {int(name[4:]): host.read_text(f"{NODES}/{name}/cpulist") for name in names}
    if not cpus or None in cpus.values():
        return None
    return {node: text.strip() for node, text in sorted(cpus.items()) if text is not None and text.strip()}


def evaluate(values: Values) -> Iterator[Finding]:
    """One finding a GPU; a host with one node has no placement to check."""
    if isinstance(values.nvml, NvmlReading) and values.nvml.gpus and values.nodes is None:
        yield Subject(check=NAME).unknown("pcie.numa-nodes-unknown")
    elif isinstance(values.nvml, NvmlReading) and values.nvml.gpus and len(values.nodes or ()) < 2:
        yield Subject(check=NAME).skips("pcie.one-numa-node")
    else:
        yield from each_gpu(NAME, values.nvml, lambda gpu: _evaluate(values, gpu), nothing="pcie.no-numa-node")


def _evaluate(values: Values, gpu: Gpu) -> Finding:
    nodes = values.nodes or {}
    node = values.kernel.get(gpu.pci_bus_id)
    subject = Subject(
        check=NAME,
        name=f"gpu:{gpu.pci_bus_id}",
        evidence=(
            f"sysfs numa_node: {'not reported' if node is None else node}",
            f"{AFFINITY}: {gpu.cpu_affinity or 'not reported'}",
            *(f"node {n}: CPUs {cpus}" for n, cpus in nodes.items()),
        ),
    )
    if gpu.pci_bus_id not in values.kernel:
        return subject.unknown("pcie.gpu-not-in-sysfs")
    if node is None:
        return subject.warns("pcie.numa-not-reported", "NUMA node not reported", "a node")
    own = nodes.get(node)
    if gpu.cpu_affinity is not None and own is not None and not _cpus(gpu.cpu_affinity) & _cpus(own):
        seen, wanted = f"CPUs {gpu.cpu_affinity} by NVML", f"CPUs {own} of node {node}"
        return subject.warns("pcie.numa-disagreement", seen, wanted)
    refused = gpu.cpu_affinity is None and any(not gap.absent for gap in gaps_of(values.nvml, gpu, AFFINITY))
    missing = not_reported(NAME, values.nvml, gpu, AFFINITY, what="CPU affinity by NVML") if refused else None
    return missing or subject.passes(f"NUMA node {node}")


def _cpus(text: str) -> set[int]:
    """The numbers of a Linux CPU list, ``0-15,32-47``."""
    ranges = re.findall(r"(\d{1,6})(?:-(\d{1,6}))?", text)
    return {cpu for first, last in ranges for cpu in range(int(first), int(last or first) + 1)}


CHECK = Check(NAME, frozenset({"hardware", "quick"}), probe, evaluate)
