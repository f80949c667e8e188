"""NCCL's topology XML reads to the machine that it describes; what is unknown is stated, broken XML is one line."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucheck.imports import ImportProblem, read
from gpucheck.imports.nccl.topology import cpu_list
from gpucheck.model import Verdict
from gpucheck.topology import with_expectations
from tests.imports import nccl
from tests.imports.nccl import cpu, gpu, hgx, mesh, pci, system
from tests.shared import from_yaml

# Files of real machines, and of vendors for NCCL_TOPO_FILE.
FOLDER = Path(__file__).parent.parent / "data" / "nccl"
FILES = [from_yaml(path) for path in sorted(FOLDER.glob("xml-*.yml"))]
CASES = [case for case in FILES if not case["expect"]["refused"]]
REFUSED = [case for case in FILES if case["expect"]["refused"]]
VENDORS = ("xml-aws-p4d-24xl", "xml-aws-p4de-24xl", "xml-azure-ndv2", "xml-azure-ndv4", "xml-azure-ndv5")
WITHOUT_SPEED = ("xml-azure-ncv4",)
PLAIN_PAIR = cpu(0, gpu("0000:3b:00.0", 0), gpu("0000:3c:00.0", 1))


def basis_of(text):
    """Of the first pair."""
    answer = with_expectations(read(text)).pairs[0].expected
    return answer.basis if answer else ""


def test_an_nvswitch_machine():
    topology = read(hgx())

    assert topology.source == "nccl-xml"
    assert {pair.cls for pair in topology.pairs} == {"NV18"}
    assert [gpu.numa_node for gpu in topology.gpus] == [0] * 4 + [1] * 4
    assert [gpu.cpu_affinity for gpu in topology.gpus] == ["0-15"] * 4 + ["32-47"] * 4
    assert {gpu.compute_capability for gpu in topology.gpus} == {"9.0"}
    assert topology.findings == ()


def test_network_cards_have_their_class_to_gpus_and_to_each_other():
    nics = read(hgx()).nics

    assert [nic.name for nic in nics] == [f"mlx5_{n}" for n in range(8)]
    assert nics[0].classes == ("PIX", "NODE", "NODE", "NODE", "SYS", "SYS", "SYS", "SYS")
    assert nics[5].peers == ("SYS", "SYS", "SYS", "SYS", "NODE", "X", "NODE", "NODE")


def test_a_mesh_of_direct_links():
    topology = read(mesh())

    assert topology.matrix[0] == ("X", "NV1", "NV1", "NV2", "NV2", "SYS", "SYS", "SYS")
    assert topology.wiring is not None
    assert {(b.a, b.b): b.links for b in topology.wiring.nvlinks} == {
        (f"GPU{a}", f"GPU{b}"): links for (a, b), links in nccl.MESH.items()
    }


@pytest.mark.parametrize(
    ("inside", "cls"),
    [
        ([pci("0000:01:00.0", nccl.SWITCH, gpu("0000:3b:00.0", 0), gpu("0000:3c:00.0", 1))], "PIX"),
        (
            [
                pci(
                    "0000:01:00.0",
                    nccl.SWITCH,
                    pci("0000:02:00.0", nccl.SWITCH, gpu("0000:3b:00.0", 0)),
                    gpu("0000:3c:00.0", 1),
                )
            ],
            "PXB",
        ),
        ([gpu("0000:3b:00.0", 0), gpu("0000:3c:00.0", 1)], "NODE"),
    ],
)
def test_the_class_is_how_far_up_the_common_switch_is(inside, cls):
    assert read(system(cpu(0, *inside))).pairs[0].cls == cls


def test_what_the_file_cannot_tell_is_said():
    """Host bridges are not in it, so NODE may be PHB; in two PCI domains it cannot be."""
    vague = read(system(PLAIN_PAIR)).findings
    certain = read(system(cpu(0, gpu("0001:00:00.0", 0), gpu("0002:00:00.0", 1)))).findings

    assert [(f.verdict, f.seen) for f in vague] == [(Verdict.SKIP, "1 pairs are NODE that may be PHB")]
    assert certain == ()


def test_switches_that_hide_their_address_join_all():
    """Blackwell machines name every NVLink's far end ffffffff:ff:ff.0."""
    links = [("fffffff:ff:ff.0", 18, nccl.TO_SWITCH)]
    text = system(cpu(0, gpu("0008:01:00.0", 0, links, 100), gpu("0009:01:00.0", 1, links, 100)))

    assert read(text).pairs[0].cls == "NV18"
    assert basis_of(text) == "18 NVLinks of generation 5 x 50 GB/s x 0.83 copy engine"


def test_hosts_fused_into_one_file():
    """A rack's NVLink domain: the same bus ids and indexes on every host, ranks tell the GPUs apart."""
    links = [("fffffff:ff:ff.0", 18, nccl.TO_SWITCH)]
    hosts = (cpu(0, gpu("0008:01:00.0", 0, links, 100, rank), host=f"0x{rank}") for rank in range(3))
    topology = read(system(*hosts))

    assert [gpu.index for gpu in topology.gpus] == [0, 1, 2]
    assert {pair.cls for pair in topology.pairs} == {"NV18"}
    assert topology.wiring is None


def test_a_gpu_with_fewer_links_than_the_others_is_a_warning():
    full, short = [("ffffffff:ff:ff.0", 18, nccl.TO_SWITCH)], [("ffffffff:ff:ff.0", 17, nccl.TO_SWITCH)]
    topology = read(system(cpu(0, gpu("0001:00:00.0", 0, full), gpu("0002:00:00.0", 1, short))))

    assert topology.pairs[0].cls == "NV17"
    assert [(f.verdict, f.subject, f.seen, f.wanted) for f in topology.findings] == [
        (Verdict.WARN, "gpu:0002:00:00.0", 17, 18)
    ]


def test_ends_of_a_direct_link_that_differ_are_a_warning():
    ids = "0001:00:00.0", "0002:00:00.0"
    text = system(cpu(0, gpu(ids[0], 0, [(ids[1], 2, nccl.TO_GPU)]), gpu(ids[1], 1, [(ids[0], 1, nccl.TO_GPU)])))
    (finding,) = read(text).findings

    assert (finding.subject, finding.seen, finding.wanted) == (f"pair:{ids[0]}-{ids[1]}", 1, 2)


def test_the_cpu_of_the_file_counts():
    """An Intel host bridge splits peer traffic."""
    amd = system(cpu(0, gpu("0001:00:00.0", 0), kind=nccl.MILAN), cpu(1, gpu("0002:00:00.0", 1), kind=nccl.MILAN))

    assert "x 0.70 (SYS)" in basis_of(amd)
    assert "x 0.68" in basis_of(system(PLAIN_PAIR))


@given(st.sets(st.integers(0, 300), min_size=1))
def test_every_cpu_of_a_mask_is_in_its_list(cpus):
    words = [sum(1 << (c % 32) for c in cpus if c // 32 == w) for w in range(max(cpus) // 32, -1, -1)]
    told = cpu_list(",".join(f"{word:08x}" for word in words))
    ranges = [[int(end) for end in part.split("-")] for part in (told or "").split(",")]

    assert {c for first, *last in ranges for c in range(first, (last or [first])[0] + 1)} == cpus


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["id"]))
def test_file_reads_to_its_known_matrix(case):
    topology = read(case["raw"])

    assert [gpu.pci_bus_id for gpu in topology.gpus] == case["expect"]["bus_ids"]
    assert [list(row) for row in topology.matrix] == case["expect"]["matrix"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["id"]))
def test_file_of_a_vendor_lists_no_nvlinks_and_expects_nothing(case):
    """NCCL queries NVML for the NVLinks of such a machine: NV12 there is PIX, NODE and SYS in the file."""
    topology = with_expectations(read(case["raw"]))
    vendor = case["id"] in VENDORS

    assert [f.seen for f in topology.findings].count("NVLinks not listed") == vendor
    assert {pair.expected is None for pair in topology.pairs} == {vendor or case["id"] in WITHOUT_SPEED}


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: str(case["id"]))
def test_file_without_a_whole_machine_is_refused(case):
    """Or, where that is accepted, read to the GPUs that are in it."""
    try:
        found = len(read(case["raw"]).gpus)
    except ImportProblem:
        found = 0

    assert found in (0, case["expect"].get("or_gpus", 0))


BOMB = '<!DOCTYPE lolz [<!ENTITY a "lol"><!ENTITY b "&a;&a;&a;">]><system version="1"><cpu numaid="&b;"/></system>'
OUTSIDE = '<!DOCTYPE system SYSTEM "file:///etc/passwd"><system version="1"><cpu numaid="0"/></system>'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BOMB, "declares a document type"),
        (OUTSIDE, "declares a document type"),
        (hgx()[:-400], "cut short"),
        (system(cpu(0)), "no GPU in this NCCL topology XML"),
        (system("<pci>" * 200 + "</pci>" * 200), "no GPU in this NCCL topology XML"),
        (system("<a/>\n" * 100_001), "more than 50000 elements"),
        (system('<cpu numaid="&undefined;"/>'), "undefined entity"),
        ('<graphs version="1"><graph id="0" pattern="4"/></graphs>', "NCCL_GRAPH_DUMP_FILE"),
        ('<root><system version="1"><cpu/></system></root>', "no GPU"),
    ],
)
def test_what_is_no_topology_is_refused_in_one_line_with_the_next_step(text, words):
    with pytest.raises(ImportProblem) as problem:
        read(text)

    message = str(problem.value)
    assert words in message
    assert "\n" not in message
    assert "NCCL_TOPO_DUMP_FILE" in message


def test_the_line_of_the_damage_is_that_of_the_file():
    with pytest.raises(ImportProblem, match="line 4"):
        read("a log\n\n" + '<system version="1">\n<cpu numaid=0></cpu></system>')


def test_oddities_are_told_and_left_out():
    text = system(cpu(0, gpu("0001:00:00.0", 0), pci("nonsense", nccl.GPU)), '<gpu dev="9"/>')
    findings = read(text).findings

    assert [f.verdict for f in findings] == [Verdict.WARN, Verdict.WARN]
    assert "nonsense" in str(findings[0].seen)
