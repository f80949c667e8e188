"""docs/machines.md is current, and one file is all that a machine needs to become a row and a simulated machine."""

import json

import pytest

from gpucheck import simulator
from gpucheck.host.recording import read_recording
from gpucheck.simulator.from_recording import as_text, from_recording
from tests import forked
from tests.machines_page import machine, page
from tests.test_docs import ROOT

pytestmark = pytest.mark.slow
ALIKE = ("h100-nvl-x2", "rtx4090-x2", "hgx-h100-x8", "dgx1-v100", "t4-vm-x1")


@pytest.fixture
def record(monkeypatch, cache, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))

    def run(name, *options):
        path = tmp_path / f"{name}.json.gz"
        done = forked.gpucheck("record", "--simulate", name, *options, "-o", path)
        assert done.returncode == 0, done.stderr
        return path

    return run


def findings(*arguments):
    done = forked.gpucheck("verify", *arguments, "--level", "quick", "--format", "json")
    return {(f["check"], f["subject"], f["verdict"], f["cause"]) for f in json.loads(done.stdout)["findings"]}


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


@pytest.mark.parametrize("name", ALIKE)
def test_the_machine_of_a_recording_gets_the_verdicts_of_the_recorded_one(record, tmp_path, name):
    path = record(name)
    profile = tmp_path / "again.yml"
    done = forked.gpucheck("profiles", "--from", path, "-o", profile)

    assert done.returncode == 0, done.stderr
    assert findings("--simulate", profile) == findings("--simulate", name)


def test_the_machine_of_a_recording_has_no_fault_of_it(record, tmp_path):
    path = record("hgx-h100-x8", "--fault", "nvlink-down:gpu=2,link=3", "--fault", "pcie-width:gpu=1,width=8")
    (tmp_path / "again.yml").write_text(as_text(from_recording(read_recording(path), source="test")))

    loud = {one for one in findings("--simulate", tmp_path / "again.yml") if one[2] in ("warn", "fail")}
    assert loud == set()


def test_a_gpu_that_no_model_describes_is_named(record, tmp_path, monkeypatch):
    import gzip

    path = record("rtx4090-x2")
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()).replace(b"GeForce RTX 4090", b"Foo 9000")))
    done = forked.gpucheck("profiles", "--from", path)

    assert done.returncode == 64
    assert "no simulated model is NVIDIA Foo 9000" in done.stderr


def test_what_is_written_is_a_profile_without_what_is_at_its_default(record, tmp_path):
    path = record("p100-pcie-x2")
    profile = from_recording(read_recording(path), source="test")
    file = tmp_path / "again.yml"
    file.write_text(as_text(profile))

    again = simulator.load(str(file))
    assert [one.bus_id for one in again.devices] == [one.bus_id for one in profile.devices]
    assert "cable" not in file.read_text()
