"""Verifying in one round trip: a verdict of any kind is an answer, a breakdown is none, an old report never is."""

import json
import subprocess
import time
from pathlib import Path

import pytest

from tests.playbooks.modules import action, module
from tests.playbooks.stubs import script
from tests.playbooks.test_runs import play

SECONDS = 60
PLAY = """
- hosts: gpu
  connection: local
  gather_facts: false
  tasks:
    - gpucheck.provision.gpu_verify:
        host: n1
        dest: {folder}/reports/n1.json
        program: {folder}/gpucheck
        report: {folder}/host-report.json
      register: answer
    - ansible.builtin.debug:
        msg: "KEYS {{{{ answer.keys() | sort | join(' ') }}}} STATUS {{{{ answer.status }}}}"
"""


@pytest.fixture
def program(tmp_path):
    """Makes the host's gpucheck a script; $5 is where its report goes (verify --format json -o FILE)."""
    return lambda text: script(tmp_path / "gpucheck", f"#!/bin/sh\n{text}\n")


VERDICTS = ("pass", "warn", "fail", "unknown")


def writes(text, status):
    """A gpucheck that leaves this report and ends so."""
    return f"printf '%s' '{text}' > \"$5\"; exit {status}"


@pytest.mark.parametrize("status", range(4))
def test_every_verdict_is_an_answer(program, tmp_path, status):
    report, text = tmp_path / "report.json", f'{{"verdict": "{VERDICTS[status]}"}}'

    found = module("gpu_verify").verify(program(writes(text, status)), str(report), SECONDS)

    assert found == (status, text, "")


@pytest.mark.parametrize(
    ("commands", "status", "words"),
    [
        ("exit 0", 0, ""),
        ("echo 'no such option' >&2; exit 64", 64, "no such option"),
        (
            "echo Traceback >&2; printf '{}' > \"$5\"; exit 1",
            1,
            "its report is damaged, or does not match the exit status. Traceback",
        ),
    ],
    ids=["silent", "usage", "breakdown"],
)
def test_a_breakdown_is_no_verdict_and_an_old_report_no_answer(program, tmp_path, commands, status, words):
    report = tmp_path / "report.json"
    report.write_text('{"old": true}')

    found = module("gpu_verify").verify(program(commands), str(report), SECONDS)

    assert found == (status, "", words)


def test_a_host_without_gpucheck_says_so(tmp_path):
    status, report, wrong = module("gpu_verify").verify(str(tmp_path / "none"), str(tmp_path / "report.json"), SECONDS)

    assert (status, report) == (None, "")
    assert "No such file" in wrong


def test_a_program_that_hangs_is_ended_with_what_it_started(program, tmp_path):
    """It gets the chance to end its own children first."""
    commands = f"trap 'kill $child; exit 1' TERM; sleep 600 & child=$!; echo $child >{tmp_path}/child; wait"

    with pytest.raises(subprocess.TimeoutExpired):
        module("gpu_verify").verify(program(commands), str(tmp_path / "report.json"), 1)

    child = Path("/proc") / (tmp_path / "child").read_text().strip()
    for _ in range(100):
        if not child.exists() or "\nState:\tZ" in (child / "status").read_text():
            return
        time.sleep(0.1)
    pytest.fail("the child is still there")


@pytest.mark.slow
def test_the_report_arrives_as_a_file_and_does_not_stay_in_memory(program, tmp_path):
    report = {"schema": "gpucheck.report/1", "host": "who-knows", "verdict": "warn", "findings": []}
    program(f"printf '%s' '{json.dumps(report)}' > \"$5\"; exit 1")

    done = play(tmp_path, PLAY.format(folder=tmp_path), hosts=["n1"])

    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "reports/n1.json").read_text()) == {**report, "host": "n1"}
    assert "STATUS 1" in done.stdout
    assert "report" not in done.stdout.split("KEYS ")[1].split(" STATUS")[0].split()


def found(check, verdict, **more):
    return {"check": check, "verdict": verdict, "subject": "host", **more}


@pytest.mark.parametrize(
    ("findings", "gpus", "why"),
    [
        ([found("driver", "pass"), found("smoke-ddp", "unknown"), found("fabric", "skip")], 8, []),
        ([found("pcie-link", "warn")], 7, []),
        ([], 9, ["8 GPUs of 9 before"]),
        ([found("fabric", "fail", why="GPU 2 has not joined")], 8, ["FAIL fabric of host: GPU 2 has not joined"]),
        ([found("driver", "unknown", seen="no answer")], 8, ["UNKNOWN driver of host: no answer"]),
        ([found("inventory", "unknown")], 8, ["UNKNOWN inventory of host: "]),
        ([found("smoke-ddp", "fail", why="a\nb")], 8, ["FAIL smoke-ddp of host: a\\nb"]),
    ],
)
def test_what_keeps_a_host_from_service(findings, gpus, why):
    """Training is UNKNOWN without torch, which the plan may leave out."""
    report = {"findings": findings, "topology": {"gpus": [{}] * 8}}

    assert action("gpu_verify").faults(report, gpus) == why
    assert action("gpu_verify").faults({"findings": findings}, 1)[0] == "0 GPUs of 1 before"


PARTIAL = '{{"verdict": "{}", "partial": {{"usable": [], "hidden": ["0000:19:00.0"], "by": "{}"}}}}'
UNIT = """#!/bin/sh
echo "$@" >>"{folder}/runs"
while [ "$1" != "{folder}/gpucheck" ]; do shift; done
shift
{inside}
"""


@pytest.fixture
def session(tmp_path, program, monkeypatch):
    """A session with this report; the answer of the module, and the units that were started."""

    def run(text, inside, *, systemd=True):
        gpu_verify = module("gpu_verify")
        monkeypatch.setattr(gpu_verify, "SYSTEMD", str(tmp_path if systemd else tmp_path / "none"))
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        script(tmp_path / "systemd-run", UNIT.format(folder=tmp_path, inside=inside))
        report, runs = tmp_path / "report.json", tmp_path / "runs"
        found = gpu_verify.verify(program(writes(text, 3)), str(report), SECONDS)
        assert report.read_text() == found[1]
        return found, runs.read_text() if runs.exists() else ""

    return run


HIDDEN = PARTIAL.format("unknown", "device-cgroup")


def test_a_login_session_that_slurm_adopted_is_left_by_a_unit_of_systemd(session):
    """Its cgroup hides the GPUs of other jobs: the host as it is counts."""
    found, runs = session(HIDDEN, writes('{"verdict": "pass"}', 0))

    assert found == (0, '{"verdict": "pass"}', "")
    assert runs.startswith("--wait --pipe --quiet --collect --property=RuntimeMaxSec=")


@pytest.mark.parametrize("inside", ["exit 1", "echo 'Failed to connect to bus' >&2; exit 1", "echo x >$5; exit 0"])
def test_without_a_report_of_the_unit_that_of_the_session_counts(session, inside):
    assert session(HIDDEN, inside)[0] == (3, HIDDEN, "")


@pytest.mark.parametrize(
    ("text", "systemd"),
    [
        (HIDDEN, False),
        (PARTIAL.format("unknown", "container"), True),
        ('{"verdict": "unknown", "partial": null}', True),
    ],
)
def test_a_unit_is_started_only_if_a_cgroup_hides_gpus(session, text, systemd):
    assert session(text, "exit 1", systemd=systemd) == ((3, text, ""), "")
