"""A matrix with rows or cells missing, cut or contradicting each other is read as far as it goes, with a finding.

Input without a matrix is rejected in one line.
"""

import re

import pytest

from gpucheck.imports import ImportProblem, read
from gpucheck.model import Verdict
from tests.imports.corpus import HGX, MESH, PAIR, by_id

ALL_JOINED = "topo-a100x4-nv12-all-numa1"


def without(text, *labels):
    return "\n".join(line for line in text.splitlines() if not line.startswith(labels))


def cut_after(words):
    return MESH[: MESH.index("GPU7\tSYS") + len(words)]


UNKNOWN_CLASS = "\tGPU0\tGPU1\tGPU2\nGPU0\tX\tPIX\tFOO\nGPU1\tPIX\tX\tSYS\nGPU2\tFOO\tSYS\tX\n"
LOST_LABEL = "\tGPU0\tGPU1\nGPU0\tX\tNV4\tSYS\nGPU1\tNV4\tX\tSYS\nGPU2\tSYS\tSYS\tX\n"
FOO = "GPU0 holds FOO, which is not a path class"
SY = "GPU7 holds SY, which is not a path class"


@pytest.mark.parametrize(
    ("damaged", "whole", "unknown", "verdict", "code", "words"),
    [
        (LOST_LABEL, PAIR, [(0, 1)], Verdict.UNKNOWN, "rows-lost", "line 4: GPU2 is not among the columns"),
        # A row follows from its column, unless both rows of a pair are gone.
        (without(HGX, "GPU3"), HGX, [], Verdict.WARN, "rows-recovered", "7 GPU rows, 8 GPU rows, {'rows': ('GPU3',)}"),
        (without(MESH, "GPU3", "GPU5"), MESH, [(3, 5)], Verdict.UNKNOWN, "rows-lost", "'pairs': 1"),
        (cut_after("GPU7\tSYS\tSYS"), MESH, [], Verdict.WARN, "rows-cut", "line 9: GPU7 has 2 cells"),
        (cut_after("GPU7\tSYS\tSY"), MESH, [], Verdict.WARN, "rows-recovered", SY),
        (UNKNOWN_CLASS, UNKNOWN_CLASS, [(0, 2)], Verdict.UNKNOWN, "rows-lost", FOO),
    ],
    ids=["lost-label", "lost-row", "lost-rows", "cut-row", "cut-cell", "unknown-class"],
)
def test_damage_is_named_and_the_rest_is_read(damaged, whole, unknown, verdict, code, words):
    topology = read(damaged)
    finding = topology.findings[0]

    assert [(pair.a, pair.b) for pair in topology.pairs if pair.cls is None] == unknown
    assert all(
        cell in (None, right)
        for row, answer in zip(topology.matrix, read(whole).matrix, strict=True)
        for cell, right in zip(row, answer, strict=True)
    )
    assert (finding.verdict, finding.code) == (verdict, f"topology.{code}")
    assert words in f"{finding.seen}, {finding.wanted}, {finding.values}, {finding.evidence}"


def test_a_whole_matrix_counts_before_a_damaged_one():
    assert read(LOST_LABEL + PAIR).matrix == read(PAIR).matrix


@pytest.mark.parametrize("original", [PAIR, MESH, by_id("topo-4gpu-pxb-pix-sys-hang"), by_id(ALL_JOINED)])
def test_a_lost_header_follows_from_the_rows(original):
    lines = original.splitlines()
    rows = next(i for i, line in enumerate(lines) if re.match(r"\W*GPU0\s+X", line))
    topology = read("\n".join(lines[rows:]))

    assert topology.matrix == read(original).matrix
    assert [gpu.cpu_affinity for gpu in topology.gpus] == [gpu.cpu_affinity for gpu in read(original).gpus]
    assert topology.findings[0].code == "topology.header-lost"


def test_cells_that_contradict_their_mirror_image_are_reported_and_the_farther_counts():
    damaged = PAIR.replace("GPU1\tNV4", "GPU1\tPHB")
    topology = read(damaged)
    (finding,) = topology.findings

    assert topology.matrix == (("X", "NV4"), ("PHB", "X"))
    assert topology.pairs[0].cls == "PHB"
    assert finding.verdict is Verdict.WARN
    assert finding.evidence == ("GPU0-GPU1: NV4 in row GPU0, PHB in row GPU1",)


@pytest.mark.parametrize("cut", range(20, len(MESH), 97))
def test_a_paste_cut_anywhere_is_never_wrong(cut):
    """It is refused, or what it says is what the whole paste says and the gap is reported."""
    whole = read(MESH)
    try:
        topology = read(MESH[:cut])
    except ImportProblem:
        assert cut < MESH.index("GPU1\tNV1")
        return
    for row, answer in zip(topology.matrix, whole.matrix, strict=False):
        assert all(cell in (None, right) for cell, right in zip(row, answer, strict=False))
    if topology.gpus != whole.gpus or topology.matrix != whole.matrix:
        assert {finding.verdict for finding in topology.findings} & {Verdict.WARN, Verdict.UNKNOWN}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        (" \n\t\n", "empty"),
        ("hello world", "nothing in the input is recognized"),
        ("GPU0 and GPU1 are hot", "it starts with"),
        ("GPU0\t X \tNV4\t0-7\nGPU1\t X \tNV4\t0-7\n", "a line that names the columns"),
        ("GPU0\tX\tOK\nGPU1\tOK\tX\n", "peer access of 2 GPUs"),
        (" \tGPU0\tGPU1\n GPU0\tX\tNS\n GPU1\tNS\tX\n", "peer access of 2 GPUs"),
        ("a\0b", "binary"),
        (PAIR.encode("utf-16-le"), "UTF-16"),
        (b"\x7fELF\x02\x01\x01\0\0\0", "binary"),
        (b"\x1f\x8b\x08\x00\x00\x00", "binary"),
    ],
)
def test_what_is_no_matrix_is_refused_in_one_line_with_the_next_step(text, words):
    with pytest.raises(ImportProblem) as problem:
        read(text)

    message = str(problem.value)
    assert words in message
    assert "\n" not in message
    assert message.isprintable()
    assert all((problem.value.what, problem.value.where, problem.value.why, problem.value.do))


def test_two_labels_of_one_gpu_are_no_header():
    """A fuzzer's find: a damaged GPU17 that reads GPU07 beside GPU7."""
    paste = "\tGPU7\tGPU07\nGPU7\t X \tPIX\nGPU07\tPIX\t X \n"

    with pytest.raises(ImportProblem):
        read(paste)
