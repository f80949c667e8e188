"""What the tests of several commands share."""

import pytest

from gpucheck.cli import main
from tests.fleet.reports import report, steady, write


@pytest.fixture
def folder(tmp_path):
    """Reports of eight hosts that are alike, and of one with slow pairs."""
    reports = tmp_path / "reports"
    reports.mkdir()
    return write(reports, *steady(8), report("slow", 340.0))


@pytest.fixture
def topo(capsys):
    def run(*arguments):
        with pytest.raises(SystemExit) as stop:
            main(["topo", *arguments])
        out, err = capsys.readouterr()
        return stop.value.code or 0, out, err

    return run
