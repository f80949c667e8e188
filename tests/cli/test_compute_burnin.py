"""gpucheck compute --level burn-in: its file of rounds, its messages, and its end by a signal."""

import json
import os
import subprocess
import sys
import time

import pytest

from gpucheck.cli import compute
from tests.shared import END_S

P100 = ("compute", "--level", "burn-in", "--simulate", "p100-pcie-x2")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The current directory, where the file of a run is by default; root's, too, for this test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compute, "STATE_OF_ROOT", tmp_path)
    return tmp_path


def test_a_healthy_machine_passes_and_its_file_is_kept(run, folder):
    status, text, message = run(*P100, "--duration", "10m")

    assert status == 0, message
    assert "4 of 4 rounds; ended: complete" in text
    assert "10 min of cold and hot load, 4 rounds" in text
    kept = json.loads((folder / "gpucheck-burn-in.json").read_bytes())
    assert (kept["verdict"], kept["burn_in"]["rounds"]) == ("pass", 4)


@pytest.mark.parametrize("kind", ["file", "fifo", "link"])
def test_a_file_that_is_there_is_not_written(run, folder, kind):
    kept = folder / "kept"
    kept.write_bytes(b"a file of this user")
    if kind == "fifo":
        os.mkfifo(folder / "state")
    elif kind == "file":
        os.link(kept, folder / "state")
    else:
        (folder / "state").symlink_to(kept)
    status, out, message = run(*P100, "--duration", "10m", "--state", "state")

    assert (status, out) == (64, ""), message
    assert "state: exists" in message
    assert kept.read_bytes() == b"a file of this user"
    assert os.path.lexists(folder / "state")


def test_a_full_disk_is_named_once_and_the_run_ends_with_its_results(run, monkeypatch):
    def full(*_, left=[1]):  # noqa: B006 - the first write is before the load
        left.append(1)
        if len(left) > 2:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(compute, "write_atomic", full)
    status, text, message = run(*P100, "--duration", "10m", "--format", "json")
    report = json.loads(text)

    assert (status, report["burn_in"]["ended"]) == (0, "complete")
    assert message.count("No space left on device") == 1
    assert any("not written" in note for note in report["notes"])


def test_a_finding_is_printed_once_as_it_comes_up(run):
    status, text, message = run(*P100, "--duration", "2h", "--fault", "sdc:gpu=1", "--format", "json")
    report = json.loads(text)

    assert status == 2
    assert message.count("after 5 min: fail compute-results") == 1
    assert message.count("compute-results") == 1
    assert report["level"] == "burn-in"
    assert report["burn_in"]["limits"][0].startswith("temperature of a GPU: 83 C (source: NVML's shutdown")


def test_a_limit_given_by_hand_ends_the_run_with_a_warning(run):
    status, text, _ = run(*P100, "--duration", "10m", "--max-temperature", "50")

    assert status == 1
    assert "limit 50 C (--max-temperature)" in " ".join(text.split())
    assert "ended: limit" in text


def test_a_state_that_cannot_be_written_is_named(run):
    status, _, message = run(*P100, "--duration", "10m", "--state", "/proc/nothing/state")

    assert status == 74
    assert "--state FILE" in message


def test_a_signal_ends_it_with_what_is_proven_and_the_file_has_each_round(folder):
    words = (sys.executable, "-m", "gpucheck", *P100, "--duration", "48h", "--state", "state", "--format", "json")
    command = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + END_S
    while time.monotonic() < deadline and not ((folder / "state").exists() and rounds(folder / "state") > 1):
        time.sleep(0.02)
    command.terminate()
    out, err = command.communicate(timeout=END_S)
    report = json.loads(out)

    assert command.returncode == 143, err
    assert report["burn_in"]["ended"] == "interrupted"
    assert report["verdict"] == "unknown"
    done_before = report["burn_in"]["rounds"]
    assert 1 < done_before < 288
    assert report["checked_values"] > 0
    assert json.loads((folder / "state").read_bytes())["burn_in"]["rounds"] in (done_before - 1, done_before)


def rounds(file) -> int:
    return int(json.loads(file.read_bytes())["burn_in"]["rounds"])
