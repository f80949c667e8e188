"""``gpucheck smoke``: what is printed, and what it exits with."""

import json
import os

import click
import pytest
from msgspec.structs import replace

from gpucheck.model import Finding, Verdict
from gpucheck.model.smoke import SmokeReport
from gpucheck.render.formats import show
from gpucheck.render.subjects.smoke import ShownRun, document
from gpucheck.run.steps import train
from tests.forked import gpucheck
from tests.train.data.test_idx import write_set
from tests.train.outcomes import HANG, ON_CPU, ON_GPUS

pytestmark = pytest.mark.slow


@pytest.fixture
def smoke(monkeypatch, run):
    """Run the command; the training answers with the given outcome and keeps what it was asked for."""
    monkeypatch.setenv("GPUCHECK_SIMULATOR", "")  # a command with --simulate that ran in this process has set it

    def go(outcome, *arguments):
        asked = []

        def run_smoke(options):
            asked.append(options)
            return outcome

        monkeypatch.setattr(train, "run_smoke", run_smoke)
        monkeypatch.setattr(train, "real_gpus", lambda host: None)
        framework = () if "--framework" in arguments else ("--framework", "torch")
        return *run("smoke", *framework, *arguments), asked

    return go


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (ON_GPUS, 0),
        (ON_CPU, 0),
        (HANG, 2),
        (replace(ON_GPUS, gradients_differ_from_step=3), 2),
        (replace(HANG, kind="timeout", rank=None), 3),
        (replace(HANG, kind="missing-package", missing="torch", rank=None), 3),
    ],
)
def test_the_exit_status_is_the_verdict(smoke, outcome, status):
    assert smoke(outcome)[0] == status


def test_the_worst_run_comes_first_and_what_was_not_run_is_a_line_each():
    def made(check, verdict):
        return Finding(check=check, verdict=verdict, subject="host", seen="seen", why=f"{check} reason", fix="f")

    parts = [
        ShownRun("torch ddp: summary", ("fact",), (made("a", Verdict.PASS),)),
        ShownRun("tensorflow mirrored: summary", (), (made("b", Verdict.SKIP),)),
        ShownRun("torch dp: summary", (), (made("c", Verdict.PASS), made("d", Verdict.FAIL))),
    ]
    report = SmokeReport(
        host="host",
        simulated=False,
        simulation=None,
        started="2024-02-29T00:00:00+00:00",
        seconds=1.0,
        verdict=Verdict.FAIL,
        counts={"fail": 1},
        findings=(),
        outcomes=(),
    )
    lines = click.unstyle(show(document(report, parts), "text")).splitlines()

    assert [line for line in lines if line.startswith("torch")] == ["torch dp: summary", "torch ddp: summary"]
    assert [line.split()[0] for line in lines if line[:1].isupper()] == ["FAIL", "PASS", "PASS", "SKIP", "FAIL"]
    assert lines[-3] == "SKIP    tensorflow mirrored: b reason"


def test_a_simulated_machine_is_marked_in_text_and_json(smoke, monkeypatch, tmp_path):
    """The training is real, the machine's GPUs are not: nobody may take one for the other."""
    (tmp_path / "simulation.json").write_text('{"profile": "p100-pcie-x2", "faults": [], "stand_ins": []}')
    (tmp_path / "root").mkdir()
    monkeypatch.setenv("GPUCHECK_SIMULATOR", str(tmp_path))

    lines = smoke(ON_CPU)[1].splitlines()
    assert "SIMULATED" in lines[0]
    assert "SIMULATED" in lines[-1]
    assert json.loads(smoke(ON_CPU, "--format", "json")[1])["simulated"] is True


def test_options_reach_the_run(smoke):
    (asked,) = smoke(ON_CPU, "--steps", "77", "--timeout", "12.5", "--framework", "torch", "--strategy", "ddp")[3]

    assert (asked.steps, asked.timeout_s, asked.fault) == (77, 12.5, None)
    assert asked.start_s > 60, "a host that reads torch for a minute has no hung rank"


def test_the_whole_command_trains_for_real():
    """The one run with everything: 40 steps, and the answer on stdout alone."""
    done = gpucheck("smoke", "--format", "json", env=os.environ | {"CUDA_VISIBLE_DEVICES": ""})

    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["counts"] == {"pass": 12, "warn": 0, "fail": 0, "unknown": 0, "skip": 3}
    assert answer["outcomes"][0]["steps"] == 40
    assert {f["verdict"] for f in answer["findings"] if f["check"] == "smoke-ddp"} == {"pass"}
    missing = [f["seen"] for f in answer["findings"] if f["check"] not in ("smoke-ddp", "smoke-placement")]
    assert missing == ["package tensorflow is not installed", "package cupy is not installed"]


def test_devices_of_a_simulated_machine_reach_the_run(smoke, monkeypatch):
    monkeypatch.setenv("GPUCHECK_SIMULATOR", os.environ.get("GPUCHECK_SIMULATOR", ""))
    asked = smoke(ON_CPU, "--simulate", "p100-pcie-x2", "--devices", "1,0")[3]

    assert (asked[0].visible_devices, asked[0].world_size) == ("1,0", 2)


def test_training_without_one_of_the_gpus_of_the_host_is_no_pass(smoke, monkeypatch):
    monkeypatch.setenv("GPUCHECK_SIMULATOR", os.environ.get("GPUCHECK_SIMULATOR", ""))
    status, out, *_ = smoke(ON_CPU, "--simulate", "p100-pcie-x2", "--fault", "gpu-lost:gpu=1")

    assert status == 2
    assert "FAIL    inventory" in click.unstyle(out)


def test_a_damaged_data_folder_is_refused_before_anything_is_started(smoke, tmp_path):
    write_set(tmp_path)
    assert smoke(ON_CPU, "--data", str(tmp_path))[3][0].data == str(tmp_path)

    (tmp_path / "train-labels-idx1-ubyte").write_bytes(b"<html>not found</html>")
    status, out, err, asked = smoke(ON_CPU, "--data", str(tmp_path))
    assert (status, out, asked) == (64, "", [])
    assert "train-labels-idx1-ubyte: not an idx file" in err
