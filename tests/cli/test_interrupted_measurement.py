"""Ctrl-C and SIGTERM in the middle of a measurement: what was measured is printed, and is no pass."""

import json
import os
import signal as signals

import pytest
from msgspec.structs import replace

from gpucheck.cli._shared.progress import Progress
from gpucheck.compute import measure
from gpucheck.compute.engines.simulated import SimulatedBench
from gpucheck.measure.collectives import run as collectives
from gpucheck.measure.collectives.rank import RankOptions
from gpucheck.processes.ranks import supervisor
from gpucheck.processes.signals import TerminatedError
from gpucheck.run.steps import train
from tests.train.outcomes import ON_CPU

SIGNALS = [(KeyboardInterrupt(), 130), (TerminatedError(143), 143)]
P100S = ("--simulate", "p100-pcie-x2")


@pytest.fixture
def cut(monkeypatch):
    """Let a signal come before step `number` of a command's run."""

    def cut(number, signal):
        seen = []

        def step(*arguments):
            seen.append(arguments)
            if len(seen) == number:
                raise signal

        monkeypatch.setattr(Progress, "__call__", step)

    return cut


@pytest.mark.slow
def test_copies_that_were_measured_are_printed(run, cut):
    cut(20, KeyboardInterrupt())
    answer, out, err = run("bandwidth", *P100S, "--format", "json")
    report = json.loads(out)

    assert (answer, report["verdict"]) == (130, "unknown")
    assert report["matrices"]["p2p_uni_gb_s"][0][1] == pytest.approx(13.4, rel=0.01)
    assert "measure.copies-interrupted" in [finding["code"] for finding in report["findings"]]
    assert "gpucheck: " in err


@pytest.mark.parametrize(("signal", "status"), SIGNALS)
def test_what_was_computed_is_printed(run, cut, signal, status):
    cut(4, signal)
    answer, out, _ = run("compute", *P100S, "--format", "json")
    report = json.loads(out)

    assert (answer, report["verdict"]) == (status, "unknown")
    assert all(gpu["digests"] for gpu in report["gpus"])
    assert "compute.run-interrupted" in [finding["code"] for finding in report["findings"]]


@pytest.mark.parametrize("moment", ["_ending", "limits", "closing"])
def test_a_burn_in_prints_its_report_whenever_the_signal_comes(run, monkeypatch, tmp_path, moment):
    """Its rounds may all be done: while the report is made, and while the processes of the GPUs are ended."""
    owner, name = {"closing": (SimulatedBench, "close")}.get(moment, (measure, moment))
    original = getattr(owner, name)

    def late(*arguments, **options):
        if moment != "_ending" or arguments[1].ended(arguments[0], 600) == "complete":
            os.kill(os.getpid(), signals.SIGTERM)
        return original(*arguments, **options)

    monkeypatch.setattr(owner, name, late)
    status, out, _ = run(
        "compute", "--level", "burn-in", *P100S, "--duration", "10m", "--state", tmp_path / "state", "--format", "json"
    )

    assert status == 143
    assert (out == "") is (moment == "limits"), "before its first round there is nothing to print"
    assert moment == "limits" or json.loads(out)["burn_in"]["ended"] == "complete"


@pytest.mark.slow
def test_collectives_that_were_measured_are_printed(run, monkeypatch):
    """The first rank sends what it has after each of them."""
    watch = supervisor._watch

    def until_the_first(ranks, run, started):
        def cut(progress):
            if ranks[0].seen.part is not None:
                raise TerminatedError(143)
            return run.stall_s(progress)

        return watch(ranks, replace(run, stall_s=cut), started)

    monkeypatch.setattr(supervisor, "_watch", until_the_first)
    answer, out, _ = run("collectives", "--sizes", "8K", "--format", "json")
    report = json.loads(out)

    assert (answer, report["verdict"]) == (143, "unknown")
    assert report["results"][0]["operation"] == "all_reduce"
    assert len(report["results"]) < 6
    assert "measure.collectives-interrupted" in [finding["code"] for finding in report["findings"]]


def test_collectives_have_the_limit_for_each_round(monkeypatch):
    runs = []
    monkeypatch.setattr(collectives, "supervise", lambda run, _: runs.append(run))
    collectives.launch(RankOptions(backend="gloo", operations=("all_reduce",), sizes=(8192,), timeout_s=5.0), 2)
    (run,) = runs

    assert run.stall_s([b"rendezvous"] * 2) == collectives.START_S
    assert run.stall_s([b"rendezvous", b"all_reduce of 8192 bytes, round 1 of 7"]) == 5.0


def test_trainings_that_ended_are_printed(run, monkeypatch):
    answers = iter([ON_CPU])

    def run_smoke(_options):
        try:
            return next(answers)
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setenv("GPUCHECK_SIMULATOR", "")
    monkeypatch.setattr(train, "run_smoke", run_smoke)
    answer, out, _ = run("smoke", "--strategy", "all", "--framework", "torch", "--format", "json")
    report = json.loads(out)

    assert (answer, report["verdict"], len(report["outcomes"])) == (130, "unknown", 1)
    assert report["findings"][-1]["code"] == "training.runs-interrupted"


@pytest.mark.parametrize("command", ["bandwidth", "compute"])
def test_before_the_first_result_nothing_is_printed(run, cut, command):
    cut(1, KeyboardInterrupt())

    assert run(command, *P100S)[:2] == (130, "")


def test_a_file_keeps_its_last_whole_report(run, cut, tmp_path):
    old = tmp_path / "report.json"
    old.write_text("old")
    cut(4, KeyboardInterrupt())
    status, out, err = run("compute", *P100S, "--format", "json", "-o", old)

    assert (status, out, old.read_text()) == (130, "", "old")
    assert "compute  interrupted: the remaining steps unknown" in err
    assert f"{old}: not written, for the run was interrupted" in err
