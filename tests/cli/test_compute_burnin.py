"""gpucheck compute --level burn-in: its file, its messages, and its end by a signal."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from gpucheck.cli import compute

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
    assert (folder / "gpucheck-burn-in.json").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of other users")
def test_the_result_of_another_user_is_not_believed(run, folder):
    """Its identity is public: a forged file would turn FAIL into PASS."""
    run(*P100, "--duration", "10m", "--state", "good")
    status, _, _ = run(*P100, "--duration", "10m", "--fault", "sdc:gpu=1", "--state", "bad")
    good, bad = (json.loads((folder / name).read_bytes()) for name in ("good", "bad"))
    text = json.dumps({**good, "identity": bad["identity"], "ended": None})
    forged = folder / "forged"
    forged.write_text(text)
    mine, _, _ = run(*P100, "--duration", "10m", "--fault", "sdc:gpu=1", "--state", "forged")
    forged.write_text(text)
    os.chown(forged, 65534, 65534)
    theirs, out, message = run(*P100, "--duration", "10m", "--fault", "sdc:gpu=1", "--state", "forged")

    assert (status, mine) == (2, 0), "the file is a valid one"
    assert (theirs, out) == (64, "")
    assert "forged: not read: " in message
    assert "belongs to user 65534" in message


@pytest.mark.parametrize("kind", ["fifo", "hard link", "link"])
def test_a_planted_file_neither_hangs_nor_is_written(run, folder, kind):
    kept = folder / "kept"
    kept.write_bytes(b"a file of this user")
    if kind == "fifo":
        os.mkfifo(folder / "state")
    elif kind == "hard link":
        os.link(kept, folder / "state")
    else:
        (folder / "state").symlink_to(kept)
    status, out, message = run(*P100, "--duration", "10m", "--state", "state")

    assert (status, out) == (64, ""), message
    assert "state: not " in message
    assert "Remove it, or name a file in a directory of your own with --state FILE" in message
    assert kept.read_bytes() == b"a file of this user"
    assert os.path.lexists(folder / "state")


def test_a_finding_is_printed_as_it_comes_up_and_is_in_the_report(run):
    status, text, message = run(*P100, "--duration", "2h", "--fault", "sdc:gpu=1", "--format", "json")
    report = json.loads(text)

    assert status == 2
    assert "after 5 min: fail compute-results" in message
    assert report["level"] == "burn-in"
    assert report["burn_in"]["noticed"][0]["cause"] == "silent-corruption"
    assert report["burn_in"]["limits"][0].startswith("temperature of a GPU: 83 C (source: NVML's shutdown")


def test_a_run_that_has_ended_is_not_overwritten(run):
    run(*P100, "--duration", "10m")
    status, _, message = run(*P100, "--duration", "10m")

    assert status != 0
    assert "has ended (complete)" in message


def test_a_limit_given_by_hand_ends_the_run_with_a_warning(run):
    status, text, _ = run(*P100, "--duration", "10m", "--max-temperature", "50")

    assert status == 1
    assert "limit 50 C (--max-temperature)" in " ".join(text.split())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--duration", "5m"), "outside 10m to 48h"),
        (("--duration", "soon"), "Write 10m, 12h or 1h30m"),
        (("--state", "/proc/nothing/state"), "--state FILE"),
    ],
)
def test_wrong_options_have_a_reason(run, words, expected):
    status, _, message = run(*P100, *words)

    assert status != 0
    assert expected in message


def test_the_options_of_a_burn_in_need_its_level(run):
    _, _, message = run("compute", "--simulate", "p100-pcie-x2", "--duration", "10m")

    assert "require --level burn-in" in message


def test_a_damaged_file_is_named_without_a_traceback(run, folder):
    (folder / "state").write_bytes(b'{"schema"')
    _, _, message = run(*P100, "--duration", "10m", "--state", "state")

    assert "state: no state of a burn-in" in message
    assert "Name another file with --state FILE" in message


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_with_what_is_proven_and_the_next_start_goes_on(run, number, status, folder):
    words = (sys.executable, "-m", "gpucheck", *P100, "--duration", "48h", "--state", "state", "--format", "json")
    # Background jobs of some shells ignore SIGINT.
    command = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not ((folder / "state").exists() and rounds(folder / "state") > 1):
        time.sleep(0.02)
    os.kill(command.pid, number)
    out, err = command.communicate(timeout=60)
    report = json.loads(out)

    assert command.returncode == status, err
    assert report["burn_in"]["ended"] == "interrupted"
    assert report["verdict"] == "unknown"
    done_before = report["burn_in"]["rounds"]
    assert 1 < done_before < 288
    assert report["checked_values"] > 0

    status, text, message = run(*P100, "--duration", "48h", "--state", "state", "--format", "json")
    after = json.loads(text)["burn_in"]
    assert status == 0, message
    assert (after["ended"], after["sessions"]) == ("complete", 2)
    assert after["rounds"] in (287, 288)


def rounds(file) -> int:
    return len(json.loads(file.read_bytes())["rounds"])


def test_another_plan_or_machine_does_not_continue_it(run, folder):
    from gpucheck.compute.burnin import plan as state

    run(*P100, "--duration", "10m", "--state", "state")
    kept = state.read(folder / "state")
    kept.ended = None
    state.write(folder / "state", kept)
    *_, plan = run(*P100, "--duration", "20m", "--state", "state")
    *_, machine = run(
        "compute", "--level", "burn-in", "--simulate", "a100-sxm-x4", "--duration", "10m", "--state", "state"
    )

    assert "of another run (duration)" in plan
    assert "of another run (gpus, simulation)" in machine
