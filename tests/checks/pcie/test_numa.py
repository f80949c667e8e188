"""NUMA nodes of GPUs."""

import pytest

from gpucheck.checks.pcie import numa
from tests.checks.judging import PASS, SKIP, UNKNOWN, WARN, judge
from tests.checks.pcie.trees import NODES, host, tree


def test_a_gpu_whose_node_the_firmware_does_not_tell_is_named():
    """sysfs prints -1."""
    found = judge(numa, host(tree(gpu1={"numa_node": None})))

    assert [(f.verdict, f.subject) for f in found] == [(PASS, "gpu:0000:03:00.0"), (WARN, "gpu:0000:04:00.0")]


def test_nvml_naming_cpus_of_another_node_is_a_disagreement():
    """NVML says 0-15, the kernel node 1."""
    found = judge(numa, host(tree(gpu1={"numa_node": 1})))

    assert [(f.verdict, f.cause) for f in found] == [(PASS, None), (WARN, "wrong-numa-placement")]


def test_a_machine_of_one_node_has_nothing_to_place():
    """Whatever the firmware says."""
    (finding,) = judge(numa, host(tree(gpu0={"numa_node": None}), folders={NODES: ("node0", "online")}))

    assert finding.verdict is SKIP


def test_numa_node_of_a_gpu_that_sysfs_does_not_show_is_unknown():
    """The firmware has not been asked; only a GPU in sysfs with node -1 is the firmware's doing."""
    pci = tuple(device for device in tree() if device.bus_id != "0000:04:00.0")

    assert [f.verdict for f in judge(numa, host(pci))] == [PASS, UNKNOWN]


@pytest.mark.parametrize(
    ("folders", "verdict"),
    [
        ({"/sys/devices/system": ("cpu", "memory")}, SKIP),
        ({NODES: ("node0", "node7")}, UNKNOWN),
        ({NODES: ()}, UNKNOWN),
        ({}, UNKNOWN),
    ],
)
def test_numa_nodes_that_cannot_be_read_are_not_one_node(folders, verdict):
    """A kernel without NUMA support has no such directory and still shows its CPUs. Node 7 has no readable CPU list."""
    (finding,) = judge(numa, host(tree(), folders=folders))

    assert finding.verdict is verdict
