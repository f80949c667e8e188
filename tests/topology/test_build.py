"""A live topology: NVLink over NVML's ancestor over sysfs, and every disagreement is a finding."""

from itertools import combinations

import msgspec
import pytest
from hypothesis import given, settings

from gpucheck import imports
from gpucheck.model import NvLink, Verdict
from gpucheck.topology import build, classify, with_expectations
from tests.imports.corpus import by_id
from tests.machines import h100, on_bus, p100, reading
from tests.topology.servers import GPU_CLASS, function
from tests.topology.strategies import machines, switch_trees

P100S = (p100(0), p100(1))
H100S = (h100(0), h100(1), h100(2))


def changed(value, **fields):
    return msgspec.structs.replace(value, **fields)


def build_(reading_, pci, **options):
    return build(reading_, pci, False, **options)


def test_a_pair_below_one_switch():
    topology = build_(reading(*P100S), on_bus(*P100S))

    assert topology.matrix == (("X", "PIX"), ("PIX", "X"))
    assert topology.findings == ()
    assert topology.pairs[0].expected is not None
    assert topology.pairs[0].expected.basis == "PCIe Gen3 x16 15.75 GB/s x 0.85 (PIX)"
    assert (topology.source, topology.simulated, topology.gpus[0].numa_node) == ("nvml", False, 0)


def test_nvml_and_sysfs_disagreeing_is_a_warning_about_the_pair():
    (finding,) = build_(reading(*P100S, ancestor="SYS"), on_bus(*P100S)).findings

    assert (finding.verdict, finding.check, finding.cause) == (Verdict.WARN, "topology", None)
    assert finding.subject == "pair:0000:03:00.0-0000:04:00.0"
    assert finding.seen == "NVML reports SYS, the bridge chain in sysfs is PIX"


def test_nvml_contradicting_itself_counts_as_the_farther_class():
    said = changed(reading(*P100S), ancestors=(("X", "PIX"), ("SYS", "X")))
    topology = build_(said, ())

    assert topology.matrix == (("X", "SYS"), ("SYS", "X"))
    assert topology.findings[0].verdict is Verdict.WARN


def test_sysfs_fills_in_for_a_silent_nvml():
    topology = build_(changed(reading(*P100S), ancestors=()), on_bus(*P100S))

    assert topology.pairs[0].cls == "PIX"


def test_a_pair_that_nobody_knows_is_unknown():
    topology = build_(changed(reading(*P100S), ancestors=()), ())

    assert topology.matrix[0] == ("X", None)
    assert topology.findings[0].verdict is Verdict.UNKNOWN


def test_ends_that_count_links_differently_are_a_warning():
    a, b = P100S
    to_b, to_a = (NvLink(link=0, active=True, remote_kind="gpu", remote_bus_id=g.pci_bus_id) for g in (b, a))
    pair = changed(a, nvlinks=(to_b, changed(to_b, link=1))), changed(b, nvlinks=(to_a,))
    topology = build_(reading(*pair), on_bus(*pair))

    assert topology.pairs[0].cls == "NV1"
    assert [(f.verdict, f.seen) for f in topology.findings] == [(Verdict.WARN, "1 NVLinks at one end, 2 at the other")]


@pytest.mark.parametrize("status", ["CNS", "GNS", "TNS", "DR", "NS"])
def test_a_pair_without_p2p_expects_nothing_and_says_why(status):
    """GeForce copies go through host memory: the path's rate says nothing about them."""
    refused = changed(reading(*P100S), p2p={"read": (("X", status), (status, "X"))})
    topology = build_(refused, on_bus(*P100S))

    assert topology.pairs[0].expected is None
    assert [f.verdict for f in topology.findings] == [Verdict.SKIP]
    assert status in str(topology.findings[0].seen)


@given(machines())
def test_any_machine_gives_a_symmetric_matrix(machine):
    nvml, pci = machine
    topology = build_(nvml, pci)
    count = len(nvml.gpus)

    assert [len(row) for row in topology.matrix] == [count] * count
    assert all(topology.matrix[i][j] == topology.matrix[j][i] for i in range(count) for j in range(count))
    assert all((topology.matrix[i][j] == "X") is (i == j) for i in range(count) for j in range(count))
    assert len(topology.pairs) == count * (count - 1) // 2
    assert all(pair.cls == topology.matrix[pair.a][pair.b] for pair in topology.pairs)


def test_a_paste_expects_only_what_it_names():
    names = "".join(f"GPU {i}: NVIDIA GeForce RTX 3090 (UUID: GPU-{i})\n" for i in range(2))
    paste = by_id("topo-3090x2-nv4-am4")
    named, nameless = with_expectations(imports.read(names + paste)), with_expectations(imports.read(paste))

    assert named.pairs[0].expected is not None
    assert named.pairs[0].expected.high_gb_s == 56.25
    assert named.findings == ()
    assert nameless.pairs[0].expected is None
    assert [finding.verdict for finding in nameless.findings] == [Verdict.SKIP]


def test_pairs_with_one_problem_share_a_finding():
    """Twelve pairs that NVML and sysfs class differently are one fact about the host."""
    gpus = [p100(n) for n in range(5)]
    (finding,) = build_(reading(*gpus, ancestor="SYS"), on_bus(*gpus)).findings

    assert (finding.subject, finding.verdict) == ("host", Verdict.WARN)
    assert finding.seen == "NVML reports SYS, the bridge chain in sysfs is PIX for 10 pairs"
    assert finding.evidence[0] == ("pair:0000:03:00.0-0000:04:00.0: NVML SYS, sysfs PIX, NVLinks 0/0, P2P OK")


def test_lost_gpu_leaves_the_other_pairs_as_they_are():
    """Matrices are by place: NVML's index of GPU 2 is not its row."""
    left = (H100S[0], H100S[2])
    p2p = (("X", "CNS"), ("CNS", "X"))
    pair = build_(changed(reading(*left), p2p={"read": p2p, "write": p2p}), on_bus(*left)).pairs[0]

    assert (pair.a, pair.b, pair.cls) == (0, 2, "NV18")


UP = "0000:02:00.0"


def gpu(bus, *path, root="pci0000:00", numa=0):
    return function(f"0000:{bus}:00.0", GPU_CLASS, numa, path, root=root)


@pytest.mark.parametrize(
    ("a", "b", "cls"),
    [
        (gpu("10", "rp"), gpu("11", "rp"), "PIX"),
        (gpu("10", "rp", UP, "d0", "bridge"), gpu("11", "rp", UP, "d1"), "PXB"),
        (gpu("10"), gpu("11"), "PHB"),
        (gpu("10", "rp0", numa=None), gpu("11", "rp1", root="pci0000:80", numa=1), None),
        (gpu("10", "rp0", numa=None), gpu("11", "rp1", root="pci0000:80", numa=None), None),
        (gpu("10"), gpu("10"), "X"),
    ],
)
def test_the_class_follows_the_bridge_chains(a, b, cls):
    """Firmware that tells no NUMA node leaves NODE and SYS undecided. The others: test_sysfs_class_is_nvml_class."""
    assert classify(a, b) == cls
    assert classify(b, a) == cls


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
