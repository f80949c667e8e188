"""What the tests of several commands share."""

import functools
import os
import sys

import pytest

from tests.cli import commands
from tests.fleet.reports import report, steady, write
from tests.train.conftest import Marked


@pytest.fixture
def folder(tmp_path):
    """Reports of eight hosts that are alike, and of one with slow pairs."""
    reports = tmp_path / "reports"
    reports.mkdir()
    return write(reports, *steady(8), report("slow", 340.0))


@pytest.fixture
def run(capsys, monkeypatch):
    """Run a command in this process: exit status, stdout, stderr. given: its standard input."""

    def run(*arguments, given=None):
        if given is not None:
            monkeypatch.setattr(sys, "stdin", commands.as_stdin(given))
        return commands.run(capsys, *arguments)

    return run


@pytest.fixture
def topo(run):
    return functools.partial(run, "topo")


@pytest.fixture
def fleet(run):
    return functools.partial(run, "fleet")


@pytest.fixture
def explain(run):
    """What gpucheck explain prints about something that it knows."""

    def explain(*what):
        status, out, err = run("explain", *what)
        assert (status, err) == (0, "")
        return out

    return explain


@pytest.fixture
def marked():
    """What marks the processes of a command. Those that a failed test leaves are ended."""
    with Marked() as mark:
        # Without the simulated machine that another test of this process may have left.
        mark.environment |= {name: value for name, value in os.environ.items() if name != "GPUCHECK_SIMULATOR"}
        yield mark
