"""Ctrl-C and SIGTERM in the middle of bandwidth and compute: what was measured is printed, and is no pass."""

import json

import pytest

from gpucheck.cli.bandwidth import progress
from gpucheck.compute.measure import Heard
from gpucheck.processes.signals import TerminatedError

SIGNALS = [(KeyboardInterrupt(), 130), (TerminatedError(143), 143)]
P100S = ("--simulate", "p100-pcie-x2")


@pytest.fixture
def cut(monkeypatch):
    """Let a signal come before step `number` of a command's run."""

    def cut(command, number, signal):
        seen = []
        owner, name = (progress.Display, "step") if command == "bandwidth" else (Heard, "run")
        original = getattr(owner, name)

        def step(*arguments):
            seen.append(arguments)
            if len(seen) == number:
                raise signal
            return original(*arguments)

        monkeypatch.setattr(owner, name, step)

    return cut


@pytest.mark.slow
@pytest.mark.parametrize(("signal", "status"), SIGNALS)
def test_copies_that_were_measured_are_printed(run, cut, signal, status):
    cut("bandwidth", 20, signal)
    answer, out, err = run("bandwidth", *P100S, "--format", "json")
    report = json.loads(out)

    assert (answer, report["verdict"]) == (status, "unknown")
    assert report["matrices"]["p2p_uni_gb_s"][0][1] == pytest.approx(13.4, rel=0.01)
    assert "measure.copies-interrupted" in [finding["code"] for finding in report["findings"]]
    assert "gpucheck: " in err


@pytest.mark.parametrize(("signal", "status"), SIGNALS)
def test_what_was_computed_is_printed(run, cut, signal, status):
    cut("compute", 4, signal)
    answer, out, _ = run("compute", *P100S, "--format", "json")
    report = json.loads(out)

    assert (answer, report["verdict"]) == (status, "unknown")
    assert all(gpu["digests"] for gpu in report["gpus"])
    assert "compute.run-interrupted" in [finding["code"] for finding in report["findings"]]


@pytest.mark.parametrize("command", ["bandwidth", "compute"])
def test_before_the_first_result_nothing_is_printed(run, cut, command):
    cut(command, 1, KeyboardInterrupt())

    assert run(command, *P100S)[:2] == (130, "")


def test_a_file_keeps_its_last_whole_report(run, cut, tmp_path):
    old = tmp_path / "report.json"
    old.write_text("old")
    cut("compute", 4, KeyboardInterrupt())
    status, out, err = run("compute", *P100S, "--format", "json", "-o", old)

    assert (status, out, old.read_text()) == (130, "", "old")
    assert "compute  interrupted: the remaining steps unknown" in err
    assert f"{old}: not written, for the run was interrupted" in err
