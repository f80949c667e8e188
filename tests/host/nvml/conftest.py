"""What the tests of NVML readings share: readings of machines with faults, and of machines with other values."""

import pytest

from gpucheck.host.nvml.reading import read_nvml
from gpucheck.model import NvmlReading
from tests.simulator.helpers import answering


@pytest.fixture
def reading(activate):
    """Return the reading, or the failure, of a profile with faults."""

    def read(name, *faults):
        activate(name, faults)
        return read_nvml(lambda call, subject: None)

    return read


@pytest.fixture
def changed(activate, monkeypatch, tmp_path_factory):
    """Return the reading of a profile whose machine.txt has other or more lines; None removes a line."""

    def read(name, lines):
        made = activate(name, ())
        table = (made / "machine.txt").read_text()
        kept = [line for line in table.splitlines() if line.partition(" = ")[0] not in lines]
        added = [f"{key} = {value}" for key, value in lines.items() if value is not None]
        own = answering(tmp_path_factory.mktemp("m"), made, "\n".join([*kept, *added, ""]))
        monkeypatch.setenv("GPUCHECK_SIMULATOR", str(own))
        reading = read_nvml(lambda call, subject: None)
        assert isinstance(reading, NvmlReading)
        return reading

    return read
