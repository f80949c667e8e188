"""NUMA nodes of GPUs."""

import pytest

from gpucheck.checks.pcie import numa
from tests.checks.judging import codes
from tests.checks.pcie.trees import NODES, host, tree

WITHOUT_GPU_1 = tuple(device for device in tree() if device.bus_id != "0000:04:00.0")


@pytest.mark.parametrize(
    ("host", "found"),
    [
        (host(tree(gpu1={"numa_node": None})), [None, "pcie.numa-not-reported"]),  # sysfs prints -1
        # NVML reports CPUs 0-15, the kernel node 1.
        (host(tree(gpu1={"numa_node": 1})), [None, "pcie.numa-disagreement"]),
        (host(WITHOUT_GPU_1), [None, "pcie.gpu-not-in-sysfs"]),
        # A host of one node has nothing to place, whatever the firmware reports; a kernel without NUMA support has no
        # such directory and still shows its CPUs. Node 7 has no readable CPU list.
        (host(tree(gpu0={"numa_node": None}), folders={NODES: ("node0", "online")}), ["pcie.one-numa-node"]),
        (host(tree(), folders={"/sys/devices/system": ("cpu", "memory")}), ["pcie.one-numa-node"]),
        (host(tree(), folders={NODES: ("node0", "node7")}), ["pcie.numa-nodes-unknown"]),
        (host(tree(), folders={NODES: ()}), ["pcie.numa-nodes-unknown"]),
        (host(tree(), folders={}), ["pcie.numa-nodes-unknown"]),
    ],
)
def test_nodes_of_a_host(host, found):
    assert codes(numa, host) == found
