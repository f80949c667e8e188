"""The path class of two PCI devices from their bridge chains, independent of NVML.

Names as nvidia-smi topo prints them: PIX at most one PCIe switch, PXB several, PHB through the host bridge they share,
NODE between host bridges of one NUMA node, SYS between NUMA nodes.
"""

from gpucheck.model.host.hardware import PciDevice


def classify(a: PciDevice, b: PciDevice) -> str | None:
    """Return PIX, PXB, PHB, NODE or SYS; X for a device and itself; None if the firmware reports no NUMA node."""
    if a.bus_id == b.bus_id:
        return "X"
    shared = shared_bridges(a, b)
    if shared:
        # One switch is its upstream port, which both share, and one downstream port for each of the two.
        return "PIX" if max(len(a.path), len(b.path)) - shared <= 1 else "PXB"
    if a.root and a.root == b.root:
        return "PHB"
    if a.numa_node is None or b.numa_node is None:
        return None
    return "NODE" if a.numa_node == b.numa_node else "SYS"


def shared_bridges(a: PciDevice, b: PciDevice) -> int:
    """Return how many bridges the two chains share, counted from the root port."""
    count = 0
    for one, other in zip(a.path, b.path, strict=False):
        if one != other:
            break
        count += 1
    return count
