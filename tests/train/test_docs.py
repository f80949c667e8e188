"""docs/training.md is run: every command in it, and every name in its tables."""

import re
import shlex
from pathlib import Path

import pytest

from gpucheck.cli import main
from gpucheck.knowledge import causes
from gpucheck.train.strategies import all_strategies
from tests.shared import sampled

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[2] / "docs/training.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = [line for block in BLOCKS for line in block.splitlines() if line.startswith("gpucheck ")]


@pytest.mark.parametrize("line", sampled(COMMANDS, (1, 5)))
def test_every_command_does_what_it_is_shown_for(line, capsys, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("GPUCHECK_SIMULATOR", "")
    with pytest.raises(SystemExit) as stop:
        main(shlex.split(line)[1:])

    assert (stop.value.code or 0) == (2 if "--fault" in line else 0)
    assert capsys.readouterr().out.strip()


def test_the_table_has_every_strategy_with_its_level():
    rows = re.findall(r"^\| (\w+) `([a-z-]+)` \|.*\| (\w+) \|$", PAGE, re.MULTILINE)
    assert {(framework, name): level for framework, name, level in rows} == {
        key: strategy.level for key, strategy in all_strategies().items()
    }


def test_every_cause_named_is_known():
    named = {
        word for line in PAGE.splitlines() if line.startswith("| ") for word in re.findall(r"`([a-z]+-[a-z-]+)`", line)
    }
    strategies = {name for _, name in all_strategies()}
    assert named - strategies <= set(causes())
