"""NUMA: is the CPU node of each GPU known, and do NVML and the kernel agree?

Sources: numa_node of the PCI function in sysfs (-1 = the firmware did not report it), nvmlDeviceGetCpuAffinity, and the
nodes below /sys/devices/system/node. Ranks that run on the wrong node copy through the socket link.
"""

import re
from collections.abc import Iterator

from gpucheck.checks._case import observed
from gpucheck.checks._machine import Machine
from gpucheck.checks._nvml import about, gaps_of, not_reported, of_each_gpu, quick_check, with_gpus
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding, Gpu, NvmlReading
from gpucheck.model.diagnosis.observations import HostDevice
from gpucheck.model.facts import Facts

NAME = "numa"
SYSTEM, NODES = "/sys/devices/system", "/sys/devices/system/node"
AFFINITY = "nvmlDeviceGetCpuAffinity"
COPIES = "host-copies"  # the check name of copies between host memory and GPUs
# Another node's memory is slower by the socket link; less than this is no difference.
SLOWER_NODE, NEAR_PART = 0.85, 0.72
ABOVE_PCIE = 1.05  # of the raw rate: the GPU has a faster way to host memory (NVLink to the CPU)


def more(facts: Facts) -> tuple[str, ...]:
    listed = facts.folders[NODES]
    return (f"folder:{SYSTEM}",) if listed is None else tuple(f"text:{path}" for path in _cpu_lists(listed).values())


def _cpu_lists(names: tuple[str, ...]) -> dict[int, str]:
    return {int(name[4:]): f"{NODES}/{name}/cpulist" for name in names if re.fullmatch(r"node\d+", name, re.ASCII)}


def _nodes(facts: Facts) -> dict[int, str] | None:
    """The CPU list of each node, None where sysfs does not show them.

    Nodes without CPUs (the memory of a Grace GPU) are left out: no rank could run on them.
    """
    listed = facts.folders[NODES]
    if listed is None:  # a kernel without NUMA support shows its CPUs and no nodes
        return {} if "cpu" in (facts.folders[SYSTEM] or ()) else None
    cpus = {node: facts.texts[path] for node, path in sorted(_cpu_lists(listed).items())}
    if not cpus or None in cpus.values():
        return None
    return {node: text.strip() for node, text in cpus.items() if text is not None and text.strip()}


@with_gpus(NAME)
def evaluate(facts: Facts, _: NvmlReading) -> Iterator[Finding]:
    """One finding a GPU; a host with one node has no placement to check."""
    nodes = _nodes(facts)
    if nodes is None:
        yield Subject(check=NAME).unknown("pcie.numa-nodes-unknown")
    elif len(nodes) < 2:
        yield Subject(check=NAME).skips("pcie.one-numa-node")
    else:
        yield from _of_gpus(facts)


@of_each_gpu(NAME, nothing="pcie.no-numa-node")
def _of_gpus(facts: Facts, gpu: Gpu) -> Finding:
    nodes = _nodes(facts) or {}
    kernel = {device.bus_id: device.numa_node for device in facts.pci if device.is_nvidia_gpu}
    node = kernel.get(gpu.pci_bus_id)  # None: the firmware did not report one
    subject = about(
        NAME,
        gpu,
        f"sysfs numa_node: {'not reported' if node is None else node}",
        f"{AFFINITY}: {gpu.cpu_affinity or 'not reported'}",
        *(f"node {n}: CPUs {cpus}" for n, cpus in nodes.items()),
    )
    if gpu.pci_bus_id not in kernel:
        return subject.unknown("pcie.gpu-not-in-sysfs")
    if node is None:
        return subject.warns("pcie.numa-not-reported", "NUMA node not reported", "a node")
    own = nodes.get(node)
    if gpu.cpu_affinity is not None and own is not None and not _cpus(gpu.cpu_affinity) & _cpus(own):
        seen, wanted = f"CPUs {gpu.cpu_affinity} by NVML", f"CPUs {own} of node {node}"
        return subject.warns("pcie.numa-disagreement", seen, wanted)
    refused = gpu.cpu_affinity is None and any(not gap.absent for gap in gaps_of(facts.nvml, gpu, AFFINITY))
    missing = not_reported(NAME, facts.nvml, gpu, AFFINITY, what="CPU affinity by NVML") if refused else None
    return missing or subject.passes(f"NUMA node {node}")


def _cpus(text: str) -> set[int]:
    """The numbers of a Linux CPU list, ``0-15,32-47``."""
    ranges = re.findall(r"(\d{1,6})(?:-(\d{1,6}))?", text)
    return {cpu for first, last in ranges for cpu in range(int(first), int(last or first) + 1)}


def placed(m: Machine, i: int, rows: list[HostDevice]) -> Finding | None:
    """Memory of another NUMA node, by the nodes of the copies and of the GPU."""
    gpu, node, best = observed(COPIES, m.gpu_label(i)), m.gpu(i).numa_node, max(rows, key=lambda row: row.slower)
    own = max((row.slower for row in rows if node is not None and row.numa_node == node), default=None)
    other = [row for row in rows if row.numa_node is not None and node is not None and row.numa_node != node]
    most = max(row.slower for row in m.measured.host_device)
    if own is not None and other and own < SLOWER_NODE * best.slower:
        return gpu.warns("access.host-firmware-node", own, best.slower, nearer=best.numa_node, node=node)
    raw = m.raw[i]
    if own is None and other and best.slower < (NEAR_PART * raw.gb_s if raw else SLOWER_NODE * most):
        nodes = tuple(sorted({row.numa_node for row in other if row.numa_node is not None}))
        wanted = NEAR_PART * raw.gb_s if raw else most
        return gpu.warns("access.host-other-node", best.slower, wanted, nodes=nodes, node=node)
    same = [row for row in m.measured.host_device if row.numa_node == best.numa_node and row.gpu != i]
    rates = [row.slower for row in same if m.gpu(row.gpu).model == m.gpu(i).model]
    slower = best.slower < SLOWER_NODE * max(rates, default=0.0) and m.passed[i] > ABOVE_PCIE * best.slower
    if node is None and best.numa_node is not None and m.host.sockets != 1 and slower:
        return gpu.warns("access.host-node-suspected", best.slower, most, node=best.numa_node)
    return None


CHECK = quick_check(NAME, "hardware pcie", evaluate, ("nvml", "pci", f"folder:{NODES}"), more=more)
