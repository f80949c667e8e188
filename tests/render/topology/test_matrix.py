"""A matrix that a terminal has no room for is folded without losing a class; in a file it stays whole."""

import re

import click
import pytest
from hypothesis import given, settings

from gpucheck import imports
from gpucheck.printable import ranges
from gpucheck.render.subjects.topology import like_gpus
from tests.imports import nccl
from tests.render.views import matrix
from tests.topology.servers import topology
from tests.topology.strategies import pasted

LABEL = re.compile(r"GPU(\d[\d,-]*)$")


def members(label: str) -> list[int]:
    match = LABEL.match(label)
    parts = [[int(end) for end in part.split("-")] for part in (match[1] if match else "").split(",")]
    return [n for first, *last in parts for n in range(first, (last or [first])[0] + 1)]


def unfolded(lines: list[str]) -> dict[tuple[int, int], str]:
    """The class of every pair that the folded tables tell."""
    told: dict[tuple[int, int], str] = {}
    columns: list[str] = []
    for line in lines:
        cells = line.split()
        if line.startswith(" "):
            columns = cells if all(map(LABEL.match, cells)) else []
        elif cells and cells[0].startswith("GPU"):
            for column, cell in zip(columns, cells[1:], strict=False):
                for a in members(cells[0]):
                    told |= {(a, b): cell for b in members(column) if a != b}
    return told


@settings(max_examples=100)
@given(pasted())
def test_folding_loses_no_class(made):
    lines = [click.unstyle(line) for line in matrix(made, 50)]
    count = len(made.gpus)
    if "share a row" not in lines[0] or any("..." in line for line in lines):
        return
    told = unfolded(lines[3:])

    assert told == {(i, j): made.matrix[i][j] for i in range(count) for j in range(count) if i != j}


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize(
    "made", [topology(16, 4), topology(72, 8), topology(72, 4, switch_links=18)], ids=["16", "72", "rack"]
)
def test_wide_machines_fit_a_terminal(made, columns):
    assert max(len(click.unstyle(line)) for line in matrix(made, columns)) <= columns


def test_seventy_two_gpus_on_switches_are_one_row():
    lines = [click.unstyle(line).split() for line in matrix(topology(72, 4, switch_links=18), 100)]

    assert ["GPU0-71", "NV18"] in lines
    assert ["GPU0-35", "0-63", "0"] in lines


def test_what_fits_is_whole():
    made = topology(8)

    assert matrix(made, 120) == matrix(made)


def test_without_a_terminal_every_line_is_whole_and_can_be_read_back():
    made = topology(72, 8)
    back = imports.read("\n".join(matrix(made)))

    assert back.matrix == made.matrix
    assert [nic.peers for nic in back.nics] == [nic.peers for nic in made.nics]


def test_gpus_that_differ_in_one_class_are_not_joined():
    assert like_gpus(imports.read(nccl.mesh())) == [[n] for n in range(8)]
    assert like_gpus(topology(4, 2)) == [[0, 1], [2, 3]]


@pytest.mark.parametrize(("numbers", "words"), [([0], "0"), ([0, 1], "0-1"), ([0, 2, 3, 4, 9], "0,2-4,9"), ([], "")])
def test_ranges(numbers, words):
    assert ranges(numbers) == words


def test_no_line_ends_with_a_blank_when_its_colors_are_taken_away():
    lines = [click.unstyle(line) for line in matrix(imports.read(nccl.hgx()))]

    assert lines == [line.rstrip() for line in lines]
