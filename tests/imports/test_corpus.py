"""Every real paste reads to the right matrix, NICs and affinities; every paste without a matrix is refused."""

import pytest

from gpucheck.imports import ImportProblem, read
from gpucheck.model import Verdict
from tests.imports.corpus import CASES, raw, today

READABLE = [case for case in CASES if not case.get("negative")]
NEGATIVE = [case for case in CASES if case.get("negative")]


def ids(cases):
    return [case["id"] for case in cases]


def test_the_corpus_is_here():
    """A glob that finds nothing would make every test below pass."""
    assert len(READABLE) >= 55
    assert len(NEGATIVE) >= 4
    assert all(case["source"] for case in CASES)


@pytest.mark.parametrize("case", READABLE, ids=ids(READABLE))
def test_paste_reads_as_recorded(case):
    topology = read(raw(case))
    expected = [[today(cell) for cell in row] for row in case["matrix"]]
    absent = [None] * len(topology.gpus)

    assert [gpu.index for gpu in topology.gpus] == list(range(case["gpus"]["count"]))
    for i, row in enumerate(topology.matrix):
        for j, cell in enumerate(row):
            # A paste that lost rows holds some cells neither in the row nor in the mirrored one.
            assert cell == expected[i][j] or (cell is None and not case["raw_complete"]), (i, j)
    assert [gpu.cpu_affinity for gpu in topology.gpus] == (case["cpu_affinity"] or absent)
    assert [gpu.numa_affinity for gpu in topology.gpus] == (case["numa_affinity"] or absent)
    assert [gpu.gpu_numa_id for gpu in topology.gpus] == (case.get("gpu_numa_id") or absent)
    assert any(finding.verdict is not Verdict.SKIP for finding in topology.findings) is not case["raw_complete"]
    network_cards_read_as_recorded(topology, case.get("nics") or {"columns": [], "gpu_to_nic": [[] for _ in absent]})
    # N/A must not become node 0, and "0-1" is no node.
    nodes = {gpu.index: gpu.numa_node for gpu in topology.gpus}
    if case["cross_numa_pairs"] is None:
        assert None in nodes.values()
    else:
        assert sum(nodes[pair.a] != nodes[pair.b] for pair in topology.pairs) == case["cross_numa_pairs"]


def network_cards_read_as_recorded(topology, nics):
    assert [nic.label for nic in topology.nics] == nics["columns"]
    for i in range(len(topology.gpus)):
        assert [nic.classes[i] for nic in topology.nics] == [today(cls) for cls in nics["gpu_to_nic"][i]]
    names = {nic.label: nic.name for nic in topology.nics}
    assert {label: names[label] for label in nics.get("names", {})} == nics.get("names", {})


@pytest.mark.parametrize("case", NEGATIVE, ids=ids(NEGATIVE))
def test_a_paste_without_a_matrix_is_refused_with_the_reason(case):
    with pytest.raises(ImportProblem) as problem:
        read(raw(case))

    assert case.get("refusal", raw(case)[:20]) in str(problem.value)
    assert problem.value.do
