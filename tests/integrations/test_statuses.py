"""docs/integrations: what acts on a node acts on a verdict only, whatever gpucheck ends with and prints."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.playbooks.stubs import script as program

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "integrations"
SCRIPTS = [path for path in sorted(PAGES.rglob("*")) if path.is_file() and path.read_bytes().startswith(b"#!/bin/sh\n")]
# gpucheck ends with $STATUS, after $TEXT on stdout or in the file of -o. Above 128 a signal ends it, as from outside.
GPUCHECK = """#!/bin/sh
out=/dev/stdout
while [ $# -gt 0 ]; do [ "$1" != -o ] || out=$2; shift; done
[ -z "$TEXT" ] || printf "$TEXT" >"$out"
case $STATUS in 137 | 139) kill -$((STATUS - 128)) $$ ;; esac
exit "$STATUS"
"""
# Notes every change that is asked for.
SCONTROL = '#!/bin/sh\ncase $1 in show) echo "NodeName=n1 $NODE" ;; *) echo "$@" >>"$NOTES" ;; esac\n'
STATES = {0: "OK", 1: "WARNING", 2: "CRITICAL", 3: "UNKNOWN"}
NO_VERDICT = (64, 70, 74, 124, 126, 127, 129, 130, 137, 139, 141, 143)
IDLE, DRAINED = (
    "State=IDLE",
    "State=IDLE+DRAIN Reason=gpucheck:nvlink-down g2 17/18 reset-gpu [root@2026-11-20T10:00:00]",
)
REASON = "gpucheck:pcie-link-downgraded g0 contact-support"
DRAIN = f"update NodeName=n1 State=DRAIN Reason={REASON}\n"
RESUME = "update NodeName=n1 State=RESUME\n"


def whole(status: int) -> str:
    return rf"GPUCHECK {STATES[status]} - pcie-link gpu:0 | fail=1;;0;0\n"


def slurm(status: int) -> str:
    """The whole answer of ``--format slurm``."""
    verdict = ("pass", "warn", "fail", "unknown")[status]
    lines = rf"{verdict} site contact-support {REASON}\n" if verdict in ("warn", "fail") else ""
    return rf"gpucheck.slurm/1 {verdict} {1 if lines else 0}\n{lines}end\n"


# What is printed with a status and is no verdict: cut at the end or in the middle, of another status, of another tool.
def broken(status: int) -> list[str]:
    text = slurm(status)
    cut = ["", text.removesuffix(r"\n"), text[:14], text.replace(r"end\n", r"en\n")]
    return [*cut, slurm((status + 1) % 4), r"Traceback (most recent call last):\n"]


# The last two are answers of another format.
NOT_ACTED_ON = [
    *((status, text) for status in STATES for text in broken(status)),
    *((status, "") for status in NO_VERDICT),
    *((status, slurm((0, 2, 3)[number % 3])) for number, status in enumerate(NO_VERDICT)),
    (2, whole(2)),
    (0, whole(0)),
]
# For the scripts that read the answer with the same function as the health check.
SOME = NOT_ACTED_ON[::5]


def environment(folder, **more):
    """What a script runs in on node n1, with the programs of a directory."""
    return {
        **os.environ,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "NODE": IDLE,
        "NOTES": str(folder / "notes"),
        "SLURMD_NODENAME": "n1",
        "GPUCHECK_SLURM_POLICY": str(PAGES / "slurm/gpucheck-policy"),
        "GPUCHECK_SLURM_RESULTS": str(folder / "results"),
        **more,
    }


@pytest.fixture
def script(tmp_path):
    """Run a script of the pages with a gpucheck that ends so; the answer and what was asked of the cluster."""
    program(tmp_path / "gpucheck", GPUCHECK)
    program(tmp_path / "scontrol", SCONTROL)
    notes = tmp_path / "notes"
    (tmp_path / "results").mkdir()

    def run(command, status, text, node=IDLE, **more):
        notes.unlink(missing_ok=True)
        # What the prolog reads, and the other scripts replace.
        (tmp_path / "results/n1").write_text(text.replace(r"\n", "\n") + f"status {status}\n")
        around = environment(tmp_path, STATUS=str(status), TEXT=text, NODE=node, **more)
        done = subprocess.run(command, env=around, capture_output=True, text=True, check=False)
        return done, notes.read_text() if notes.exists() else ""

    return run


def test_slurm_leaves_the_node_without_a_verdict(script):
    for node, status, text in (*((IDLE, *case) for case in NOT_ACTED_ON), *((DRAINED, *case) for case in SOME)):
        done, changes = script([PAGES / "slurm/gpucheck-health"], status, text, node)

        assert (done.returncode, changes) == (0, ""), (status, text)
        assert f"n1: left as it is: no verdict (exit status {status})" in done.stderr, (status, text)


def test_slurm_starts_a_job_unless_the_verdict_is_fail(script):
    prolog = [PAGES / "slurm/gpucheck-prolog"]
    for status, text in SOME:
        assert script(prolog, status, text)[0].returncode == 0, (status, text)

    assert [script(prolog, status, slurm(status))[0].returncode for status in STATES] == [0, 0, 1, 0]


@pytest.mark.parametrize(("restarts", "changes"), [("", "requeue 7\n"), ("1", "requeue 7\n"), ("2", "")])
def test_a_job_is_requeued_for_a_complete_failure_only_and_not_without_end(script, tmp_path, restarts, changes):
    program(tmp_path / "srun", '#!/bin/sh\nwhile case $1 in -*) ;; *) false ;; esac; do shift; done\nexec "$@"\n')
    job, more = [PAGES / "slurm/gpucheck-job"], {"SLURM_JOB_ID": "7"}
    more |= {"SLURM_RESTART_COUNT": restarts} if restarts else {}
    for status, text in SOME:
        done, asked = script(job, status, text, **more)
        assert (done.returncode, asked) == (0, ""), (status, text)

    for status in (0, 1, 3):
        assert script(job, status, slurm(status), **more)[0].returncode == 0
    done, asked = script(job, 2, slurm(2), **more)
    assert (done.returncode, asked) == (1, changes)
    assert ("not requeued again after 2 restarts" in done.stderr) == (not changes)


METRICS = r"gpucheck_build_info 1\ngpucheck_status 2\n"
SERVICE = (PAGES / "systemd/gpucheck.service").read_text(encoding="utf-8")


def started_by_systemd(script, folder, status, text):
    """ExecStartPre and ExecStart, and ExecStartPost after a status of success, as systemd.service(5) has it."""
    unit = SERVICE.replace("/var/lib/node_exporter/textfile_collector", str(folder)).replace("/opt/gpucheck/bin/", "")
    names = ("ExecStartPre", "ExecStart", "ExecStartPost")
    (before,), (start,), (after,) = (re.findall(rf"^{name}=(.*)$", unit, re.M) for name in names)
    (good,) = re.findall(r"^SuccessExitStatus=(.*)$", unit, re.M)
    script(shlex.split(before), 0, "")
    done, _ = script(shlex.split(start), status, text)
    if str(done.returncode) in ["0", *good.split()]:
        script(shlex.split(after), 0, "")


def test_systemd_replaces_the_metrics_after_a_verdict_only(script, tmp_path):
    folder = tmp_path / "metrics"
    folder.mkdir()
    metrics = folder / "gpucheck.prom"
    metrics.write_text("old")
    for status, text in (*((s, METRICS) for s in NO_VERDICT), *((s, "") for s in STATES), (0, METRICS[:20])):
        started_by_systemd(script, folder, status, text)
        assert metrics.read_text() == "old", (status, text)

    for status in STATES:
        metrics.write_text("old")
        started_by_systemd(script, folder, status, METRICS)
        assert "gpucheck_status 2\n" in metrics.read_text()
        assert [file.name for file in folder.iterdir()] == ["gpucheck.prom"]


REPORT = r'{\n  "schema": "gpucheck.report/1",\n  "system": {\n  }\n}\n'


def test_the_daemon_set_replaces_a_report_after_a_verdict_only(script, tmp_path):
    pod = yaml.safe_load((PAGES / "kubernetes/daemonset.yaml").read_text(encoding="utf-8"))["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    (loop,) = container["args"]
    once = loop.replace("/reports/", f"{tmp_path}/").replace("sleep 3600", "exit 0")
    report = tmp_path / "n1.json"
    report.write_text("old")
    lost = (*((s, REPORT) for s in NO_VERDICT), *((s, "") for s in STATES), (0, REPORT.removesuffix(r"}\n")))
    for status, text in lost:
        done, _ = script([*container["command"], once], status, text, NODE_NAME="n1")
        assert report.read_text() == "old", (status, text)
        assert f"no verdict (exit status {status}), the last report is kept" in done.stderr

    for status in STATES:
        report.write_text("old")
        script([*container["command"], once], status, REPORT, NODE_NAME="n1")
        assert report.read_text().startswith("{")
    assert not list(tmp_path.glob(".n1*"))


# Ours on a simulated machine.
SIMULATED = (
    f'#!/bin/sh\nexec {sys.executable} -m gpucheck "$@" --simulate p100-pcie-x2 --fault pcie-width:gpu=1,width=8\n'
)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_the_scripts_are_clean_posix_shell(path):
    assert os.access(path, os.X_OK)
    words = [Path(sys.executable).parent / "shellcheck", path]
    done = subprocess.run(words, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (0, "")


def test_a_broken_node_is_drained_with_the_finding_as_the_reason_and_starts_no_job(tmp_path):
    program(tmp_path / "gpucheck", SIMULATED)
    program(tmp_path / "scontrol", SCONTROL)
    around, notes = environment(tmp_path, PYTHONPATH=str(ROOT)), tmp_path / "notes"
    reason = "gpucheck:pcie-width-reduced g1 8/16 contact-support SIMULATED"
    for name, status in (("gpucheck-health", 0), ("gpucheck-prolog", 1)):
        done = subprocess.run([PAGES / "slurm" / name], env=around, capture_output=True, text=True, check=False)

        assert (done.returncode, done.stdout) == (status, "")
        assert notes.read_text() == f"update NodeName=n1 State=DRAIN Reason={reason}\n"
        notes.unlink()
    assert f"no job is started: {reason}" in done.stderr
