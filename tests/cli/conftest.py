"""What the tests of several commands share."""

import pytest

from gpucheck.cli import main


@pytest.fixture
def topo(capsys):
    def run(*arguments):
        with pytest.raises(SystemExit) as stop:
            main(["topo", *arguments])
        out, err = capsys.readouterr()
        return stop.value.code or 0, out, err

    return run
