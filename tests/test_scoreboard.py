"""bench/scoreboard: what an output counts as, and that a checker that misbehaves costs its own row only."""

import os
import sys
import tempfile
from importlib import import_module
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bench" / "scoreboard"))
page, run = import_module("page"), import_module("run")

ROW = {"fault": "nvlink-down:gpu=2,link=3", "gpu": "2|4c:00", "names": "nvlink"}
HEALTHY = "2026-11-29 10:00:00 GPU 0 ok\nGPU 2 ok\n"
STATUS = {"name": "x"}
WORDS = {"name": "x", "alarm": "^FAIL"}
VIEWER = {"name": "x", "viewer": True}
TRACEBACK = "Traceback (most recent call last)\nKeyError"


@pytest.mark.parametrize(
    ("peer", "status", "output", "word"),
    [
        (STATUS, 1, "GPU 2: NVLink 3 is down", "named"),
        (STATUS, 1, "0000:4c:00.0 nvlink", "named"),
        (STATUS, 1, "NVLink down on GPUs: [2:GPU-ee53]", "named"),
        (STATUS, 1, "NVLink down on GPU(s): [2]", "named"),
        (STATUS, 1, "GPU 12: NVLink 3 is down", "weak"),
        (STATUS, 1, "something is wrong with GPU 2", "weak"),
        (STATUS, 0, "GPU 2: NVLink 3 is down", "value"),
        (STATUS, 0, "2026-11-30 11:11:11 GPU 0 ok\nGPU 2 ok\n", "silent"),
        (STATUS, 1, TRACEBACK, "crashed"),
        (STATUS, 0, TRACEBACK, "silent"),
        (STATUS, 1, "SIMULATED hardware with nvlink-down:gpu=2", "weak"),
        (STATUS, 124, "GPU 2: NVLink", "hung"),
        (STATUS, 137, "", "hung"),
        (WORDS, 0, "FAIL GPU 2 nvlink", "named"),
        (WORDS, 1, "no verdict", "silent"),
        (VIEWER, 0, "[2] 90 C", "value"),
        (VIEWER, 1, "[0] 90 C", "silent"),
    ],
)
def test_an_output_counts_as(peer, status, output, word):
    assert run.outcome(peer, ROW, status, output, HEALTHY) == word


def test_what_is_printed_without_the_fault_names_no_fault():
    both = "GPU 2: nvlink ok\n"

    assert run.outcome(STATUS, ROW, 1, both, both) == "weak"


@pytest.mark.parametrize(
    ("peer", "status", "output", "word"),
    [
        (STATUS, 0, "fine", "silent"),
        (STATUS, 2, "", "false alarm"),
        (WORDS, 0, "FAIL", "false alarm"),
        ({**WORDS, "baseline": True}, 0, "FAIL", "not compared"),
        (STATUS, 1, TRACEBACK, "crashed"),
        (STATUS, 124, "", "hung"),
    ],
)
def test_a_machine_without_a_fault_counts_as(peer, status, output, word):
    assert run.well(peer, status, output) == word


def test_where_another_checker_is_better_is_the_first_line():
    own = {"missing": None, "faults": {"a": "silent"}, "foreign": {}, "healthy": {"m": "false alarm"}}
    other = {**own, "faults": {"a": "named"}, "healthy": {"m": "silent"}}

    first = page.first({"gpucheck": own, "x": other}, ["gpucheck", "x"])
    assert first == "**Better than gpucheck here**: x names `a`, gpucheck is silent; gpucheck complains about m."
    assert page.first({"gpucheck": other, "x": own}, ["gpucheck", "x"]).startswith("No checker")


def test_a_recipe_that_could_not_be_installed_is_named_on_the_page():
    own = {"missing": None, "faults": {"a": "named"}, "foreign": {}, "healthy": {"hgx-h100-x8": "silent"}}
    peers = [{"name": "gpucheck", "version": "1", "run": ["a {gpus}"]}, {"name": "x", "version": "2", "run": ["b"]}]
    text = page.page({"gpucheck": own, "x": {**own, "missing": "not built: Go"}}, peers, "2026-11-29")

    assert "Not run here: x (not built: Go)." in text
    assert "| gpucheck | 1 of 1 | 0 | 0 of 1 | 0 |" in text


@pytest.mark.parametrize(
    ("peer", "base", "with_fault", "word"),
    [
        ({}, "status 124\n", "status 124\n", "not observable"),
        ({}, "status 0\nfine", "status 124\n", "hung"),
        ({}, "status 0\nfine", "status 0\nfine", "silent"),
        ({"blind": {"foreign": "an old driver"}}, "status 0\nfine", "status 0\nfine", "not observable"),
        ({"blind": {"foreign": "an old driver"}}, "status 0\nfine", "status 1\nGPU 1 lost", "named"),
    ],
)
def test_a_fault_is_not_observable_where_a_checker_does_not_check_the_machine_without_it(
    tmp_path, peer, base, with_fault, word
):
    folder = tmp_path / "output" / "x"
    folder.mkdir(parents=True)
    (folder / "foreign-0.txt").write_text(base)
    (folder / "foreign-1.txt").write_text(with_fault)

    results = run.judged(tmp_path, [{"name": "x", **peer}], {})
    assert results["x"]["foreign"] == {"fail --mode lost --gpu 1": word}
    assert f"| x | {int(word == 'named')} of {int(word != 'not observable')} |" in page.totals(results, ["x"])


@pytest.fixture(scope="module")
def outside():
    """A folder that no folder of a peer covers, wherever pytest has its own, with a cache."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


def test_a_folder_that_the_peers_folders_would_cover_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["run.py", "/dev/shm/work"])
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    with pytest.raises(SystemExit):
        run.main()
    assert "WORK must not be below /dev/shm" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize(
    ("command", "limit_s", "status", "printed"),
    [
        ("setsid sleep 1000 & sleep 1000", 3, 124, ""),
        ("head -c 100000000 /dev/zero > full", 60, 1, "File too large"),
        ("touch /usr/new /etc/new", 60, 1, "Read-only file system"),
        ("bash -c 'echo > /dev/tcp/192.0.2.1/80'", 60, 1, "unreachable"),
        ("yes", 60, 1, "y\n"),
        (
            f"python3 -c 'import os, signal; [os.fork() or signal.pause() for _ in range({run.MOST_PROCESSES})]'",
            60,
            1,
            "Traceback",
        ),
        ("printf '\\033[2J\\033]0;title\\007 FAIL'", 60, 0, "\x1b[2J\x1b]0;title"),
    ],
)
def test_a_checker_that_misbehaves_costs_its_own_row(tmp_path, outside, command, limit_s, status, printed):
    work = outside / "work"
    (work / "cache").mkdir(parents=True, mode=0o700, exist_ok=True)
    peer = {"name": "x", "run": [command], "timeout_s": limit_s}
    found, output = run.run(work, peer, tmp_path / "none", 0, machine="p100-pcie-x2", faults=[], gpus=2)

    assert found == status
    assert printed in output[:2000]
    assert len(output) <= run.MOST_BYTES
    assert not Path("/usr/new").exists()
    assert list((work / "cells" / "0").iterdir()) == []
