"""docs/machines.md is current, and one file is all that a machine needs to become a row."""

import pytest

from tests import forked
from tests.machines_page import machine, page
from tests.test_docs import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture
def record(monkeypatch, cache, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))

    def run(name, *options):
        path = tmp_path / f"{name}.json.gz"
        done = forked.gpucheck("record", "--simulate", name, *options, "-o", path)
        assert done.returncode == 0, done.stderr
        return path

    return run


def test_page_is_current():
    """After a recording or a public case was added: python -m tests.machines_page > docs/machines.md"""
    assert page() == (ROOT / "docs" / "machines.md").read_text(encoding="utf-8")


def test_a_recording_is_a_row_with_its_verdict(record, tmp_path):
    record("h100-nvl-x2", "--fault", "ecc-uncorrected:gpu=1")

    row = machine(tmp_path / "h100-nvl-x2.json.gz")
    assert (row.gpus, row.verdict, row.causes) == ("2 x NVIDIA H100 NVL", "fail", "ecc-uncorrected")
    assert f"| {' | '.join(row)} |\n" in page(tmp_path)


def test_a_recording_that_is_not_redacted_is_no_row(record, tmp_path):
    path = record("rtx4090-x2", "--no-redact")

    with pytest.raises(AssertionError, match="not redacted"):
        machine(path)
