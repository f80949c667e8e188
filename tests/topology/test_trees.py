"""The class from sysfs is NVML's class, for any tree of real switches: NVML counts the switches that are crossed."""

from itertools import combinations

from hypothesis import given, settings

from gpucheck.topology import classify
from tests.topology.strategies import switch_trees


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
