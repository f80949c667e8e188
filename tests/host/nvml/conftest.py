"""What the tests of NVML readings share: readings of machines with faults, and of machines with other values."""

import pytest

from gpucheck.host.nvml.reading import read_nvml
from gpucheck.model import NvmlReading
from tests.simulator.helpers import write


@pytest.fixture
def reading(activate):
    """Return the reading, or the failure, of a profile with faults."""

    def read(name, *faults):
        activate(name, faults)
        return read_nvml(lambda call, subject: None)

    return read


@pytest.fixture
def changed(activate, monkeypatch, tmp_path):
    """Return the reading of a profile whose machine.txt has other or more lines; None removes a line."""

    def read(name, lines):
        activate(name, ())
        table = write(tmp_path / "m", name, software=True) / "machine.txt"
        kept = [line for line in table.read_text().splitlines() if line.partition(" = ")[0] not in lines]
        added = [f"{key} = {value}" for key, value in lines.items() if value is not None]
        table.write_text("\n".join([*kept, *added, ""]))
        monkeypatch.setenv("GPUCHECK_SIMULATOR", str(tmp_path / "m"))
        reading = read_nvml(lambda call, subject: None)
        assert isinstance(reading, NvmlReading)
        return reading

    return read
