"""docs/topology.md is run: each of its commands, and its numbers are those of the knowledge room."""

import re
import shlex
from pathlib import Path

import click
import pytest

from gpucheck.cli import main
from gpucheck.knowledge import healthy_rates
from gpucheck.render.subjects.topology import MEANING
from tests.imports import nccl
from tests.imports.corpus import by_id

PAGE = (Path(__file__).parents[2] / "docs/topology.md").read_text(encoding="utf-8")
(BLOCK,) = re.findall(r"^```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
ROWS = dict(re.findall(r"^\| `([^`]+)` \| [^|]* \| ([^|]*) \|$", PAGE, re.MULTILINE))


@pytest.mark.parametrize("line", BLOCK.splitlines())
def test_every_command_works(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("topo.txt").write_text(by_id("topo-a100x8-compact-spaces"), encoding="utf-8")
    Path("topo.xml").write_text(nccl.hgx(), encoding="utf-8")
    with pytest.raises(SystemExit) as stop:
        main(shlex.split(line)[1:])

    assert (stop.value.code or 0) == 0
    assert "GPU" in click.unstyle(capsys.readouterr().out)
    assert ("--svg" in line) == Path("machine.svg").exists()


def test_every_class_is_explained():
    assert list(ROWS) == list(MEANING)


@pytest.mark.parametrize("cls", ["PIX", "PXB", "PHB", "NODE", "SYS"])
def test_the_factors_are_those_that_are_used(cls):
    rates = healthy_rates()
    assert ROWS[cls].startswith(f"{rates.direct[cls][0]:.2f} of")
    assert ("on Intel" in ROWS[cls]) == (cls in rates.direct_intel)
    assert cls not in rates.direct_intel or f"{rates.direct_intel[cls]:.2f} on Intel" in ROWS[cls]
