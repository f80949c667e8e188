"""What terminals, mail, wikis and hurried people do to a matrix, one damage at a time: it reads as before."""

import re

import pytest

from gpucheck.imports import read
from gpucheck.imports.nvidia_smi._topo_blocks import scan
from gpucheck.model import Verdict
from tests.imports.corpus import HGX, MESH, PAIR, by_id


def same(damaged, original):
    """Matrix, NICs and affinities survived."""
    a, b = read(damaged), read(original)
    assert (a.matrix, a.nics, a.gpus) == (b.matrix, b.nics, b.gpus)
    return a


@pytest.mark.parametrize("original", [HGX, MESH, PAIR])
@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace("GPU", "G\u200bPU\u200b").replace("SYS", "\u2060SYS"),
        lambda text: text.replace("\n", "\n\n"),
        lambda text: text.expandtabs(8),
        lambda text: "".join(f"# {line}\n" for line in text.splitlines()),
        lambda text: "".join(f"    {line}   \n" for line in text.splitlines()),
        lambda text: "".join(f"{n:4}  {line}\n" for n, line in enumerate(text.splitlines())),
        lambda text: text.replace("\tGPU0", "\t\x1b[4mGPU0", 1).replace("GPU NUMA ID", "GPU NUMA ID\x1b[0m", 1),
        lambda text: text.replace("\tGPU0", "\t^[[4mGPU0", 1).replace("GPU NUMA ID", "GPU NUMA ID^[[0m", 1),
        lambda text: text.replace("\tGPU0", "\t[4mGPU0", 1).replace("GPU NUMA ID", "GPU NUMA ID[0m", 1),
        lambda text: text.replace(" X ", "\u00a0X\u00a0"),
        lambda text: "```\n" + text.replace("Legend:", "```\nLegend:"),
        lambda text: re.sub(r"^(\tGPU0)", r"GPU\1", text, flags=re.MULTILINE).replace("GPU\tGPU0", "\tGPU0"),
    ],
)
def test_the_same_paste_in_other_clothes(original, damage):
    topology = same(damage(original), original)

    assert {finding.verdict for finding in topology.findings} <= {Verdict.SKIP}


@pytest.mark.parametrize("width", [60, 72, 79, 80, 100, 117, 120, 132])
def test_lines_wrapped_by_a_terminal_are_put_together(width):
    """Hard wraps fall anywhere, inside a cell too."""
    text = by_id("topo-4090x8-nps4-allsys-numa-shuffled")
    wrapped = "\n".join(
        line[at : at + width] for line in text.splitlines() for at in range(0, max(len(line), 1), width)
    )

    assert read(wrapped).matrix == read(text).matrix
    assert [nic.classes for nic in read(wrapped).nics] == [nic.classes for nic in read(text).nics]


def test_a_wrapped_affinity_stays_with_its_row():
    text = "  GPU0 GPU1 CPU Affinity\n NUMA Affinity\nGPU0 X SYS 0-63,\n128-191 0\nGPU1 SYS X 64-127,\n192-255 1\n"

    assert [gpu.cpu_affinity for gpu in read(text).gpus] == ["0-63,128-191", "64-127,192-255"]
    assert [gpu.numa_node for gpu in read(text).gpus] == [0, 1]


@pytest.mark.parametrize(
    ("glued", "cells", "rest"),
    [
        ("XNV12NV12", ("X", "NV12", "NV12"), ""),
        ("XPIXSYS0-13", ("X", "PIX", "SYS"), "0-13"),
        ("XNODENV40-15", ("X", "NODE", "NV4"), "0-15"),
        ("XNODENV10-13", ("X", "NODE", "NV1"), "0-13"),
        ("XNODENV180-55", ("X", "NODE", "NV18"), "0-55"),
        ("XNODENV616-31", ("X", "NODE", "NV6"), "16-31"),
        ("X NODE NV18 0-55", ("X", "NODE", "NV18"), " 0-55"),
    ],
)
def test_glued_cells_come_apart(glued, cells, rest):
    """A GPU has at most 36 links, and a CPU list starts with a digit."""
    found = scan(glued, 3, frozenset())

    assert (found.values, found.rest) == (cells, rest)


@pytest.mark.parametrize("case", ["topo-a100x4-nv4-slurm-blank-affinity", "topo-windows-single-blank-affinity"])
def test_blank_affinities_are_told_by_position_once_tabs_are_spaces(case):
    """A job's cpuset hides the CPUs of a GPU, and Windows knows none."""
    same(by_id(case).expandtabs(8), by_id(case))


def test_the_first_of_two_matrices_is_read_and_the_other_mentioned():
    topology = read(PAIR + "\nother host\n" + MESH)

    assert len(topology.gpus) == 2
    assert topology.findings[0].seen == "2 matrices"


def test_gpu_numbers_are_kept():
    """A container may see GPUs 2 and 5 only."""
    topology = read("\tGPU2\tGPU5\nGPU2\t X \tSYS\nGPU5\tSYS\t X \n")

    assert [gpu.index for gpu in topology.gpus] == [2, 5]
    assert [(pair.a, pair.b) for pair in topology.pairs] == [(2, 5)]
