"""Classes from bridge chains: one switch, several, the host bridge, the socket, the machine. NVML has the same."""

from itertools import combinations

import pytest
from hypothesis import given, settings

from gpucheck.topology import classify
from tests.topology.servers import GPU_CLASS, function
from tests.topology.strategies import pci_trees, switch_trees

UP, UP2 = "0000:02:00.0", "0000:04:00.0"


def gpu(bus, *path, root="pci0000:00", numa=0):
    return function(f"0000:{bus}:00.0", GPU_CLASS, numa, path, root=root)


@pytest.mark.parametrize(
    ("a", "b", "cls"),
    [
        (gpu("10", "rp", UP, "d0"), gpu("11", "rp", UP, "d1"), "PIX"),
        (gpu("10", "rp"), gpu("11", "rp"), "PIX"),
        (gpu("10", "rp", UP, "d0", UP2, "e0"), gpu("11", "rp", UP, "d0", UP2, "e1"), "PIX"),
        (gpu("10", "rp", UP, "d0", UP2, "e0"), gpu("11", "rp", UP, "d1", "0000:05:00.0", "f0"), "PXB"),
        (gpu("10", "rp", UP, "d0", UP2, "e0"), gpu("11", "rp", UP, "d1"), "PXB"),
        (gpu("10", "rp", UP, "d0", "bridge"), gpu("11", "rp", UP, "d1"), "PXB"),
        (gpu("10", "rp0"), gpu("11", "rp1"), "PHB"),
        (gpu("10"), gpu("11"), "PHB"),
        (gpu("10", "rp0", root="pci0000:00"), gpu("11", "rp1", root="pci0000:40"), "NODE"),
        (gpu("10", "rp0", numa=0), gpu("11", "rp1", root="pci0000:80", numa=1), "SYS"),
        (gpu("10", "rp0", numa=None), gpu("11", "rp1", root="pci0000:80", numa=1), None),
        (gpu("10", "rp0", numa=None), gpu("11", "rp1", root="pci0000:80", numa=None), None),
        (gpu("10"), gpu("10"), "X"),
    ],
)
def test_the_class_follows_the_bridge_chains(a, b, cls):
    """Firmware that tells no NUMA node leaves NODE and SYS undecided."""
    assert classify(a, b) == cls
    assert classify(b, a) == cls


@given(pci_trees())
def test_any_tree_gives_a_symmetric_matrix(devices):
    for a in devices:
        for b in devices:
            assert classify(a, b) == classify(b, a)
            assert (classify(a, b) == "X") is (a.bus_id == b.bus_id)


def as_nvml_defines_it(a, b, switch_of):
    """nvmlGpuTopologyLevel_t by its words: a single switch, several, the host bridge, the NUMA node, the system."""
    if set(a.path) & set(b.path):
        crossed = {switch_of[port] for port in set(a.path) ^ set(b.path)}
        return "PIX" if len(crossed) <= 1 else "PXB"
    if a.root == b.root:
        return "PHB"
    return "NODE" if a.numa_node == b.numa_node else "SYS"


@settings(max_examples=200)
@given(switch_trees())
def test_sysfs_class_is_nvml_class(tree):
    devices, switch_of = tree
    for a, b in combinations(devices, 2):
        assert classify(a, b) == classify(b, a) == as_nvml_defines_it(a, b, switch_of)
