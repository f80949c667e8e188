"""How two GPUs of a simulated machine reach each other, from its PCI tree and its cables."""

from gpucheck.simulator.machine import REMOTE_GPU, REMOTE_SWITCH, Machine, SimulatedGpu

# NVML: nvmlGpuTopologyLevel_t
INTERNAL, SINGLE, MULTIPLE, HOST_BRIDGE, NODE, SYSTEM = 0, 10, 20, 30, 40, 50
# NVML: nvmlGpuP2PStatus_t
P2P_OK, P2P_NOT_SUPPORTED = 0, 5
# nvmlGpuP2PCapsIndex_t: read 0, write 1, NVLink 2, atomics 3, PCIe 4
NVLINK, PCI = 2, 4
CAPABILITIES = range(5)


def common_ancestor(machine: Machine, a: SimulatedGpu, b: SimulatedGpu) -> int:
    """NVML's level of the PCIe path: one switch or fewer, several, the host bridge, the NUMA node, the system."""
    if a is b:
        return INTERNAL
    above_a, above_b = machine.chain(a.function.bus_id), machine.chain(b.function.bus_id)
    shared = [one for one, other in zip(above_a, above_b, strict=False) if one is other]
    if shared:
        # One switch is an upstream port with a downstream port to each side: two bridges below the root port at most.
        furthest = max(len(above_a), len(above_b)) - len(shared)
        return SINGLE if furthest <= 1 else MULTIPLE
    if a.function.root == b.function.root:
        return HOST_BRIDGE
    return NODE if a.function.numa_node == b.function.numa_node else SYSTEM


def by_nvlink(a: SimulatedGpu, b: SimulatedGpu, *, fabric: bool) -> bool:
    """Is there an NVLink path: a live cable between the two, or, with the fabric up, live links of both to switches?"""
    if any(link.active and link.remote_type == REMOTE_GPU and link.bus_id == b.function.bus_id for link in a.links):
        return True
    return fabric and all(
        any(link.active and link.remote_type == REMOTE_SWITCH for link in gpu.links) for gpu in (a, b)
    )


def p2p_status(a: SimulatedGpu, b: SimulatedGpu, capability: int, *, fabric: bool = True) -> int:
    """NVML's P2P status of an ordered pair. Over PCIe it is what the model's driver grants; no PCIe atomics there.

    With MIG on there is no P2P. A status set by a fault applies to every capability but NVLink.
    """
    over_pcie = a.model.pcie_p2p if a.model == b.model else P2P_NOT_SUPPORTED
    linked = by_nvlink(a, b, fabric=fabric and a.fabric_up and b.fabric_up)
    if a.mig or b.mig:
        return P2P_NOT_SUPPORTED
    if b.function.bus_id in a.p2p_refused and capability != NVLINK:
        return a.p2p_refused[b.function.bus_id]
    if capability in (0, 1):
        return P2P_OK if linked else over_pcie
    if capability == PCI:
        return over_pcie
    return P2P_OK if linked else P2P_NOT_SUPPORTED
