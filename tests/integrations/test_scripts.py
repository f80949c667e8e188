"""docs/integrations: the scripts are run against simulated machines, the cluster's own commands are played."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "integrations"
SCRIPTS = [path for path in sorted(PAGES.rglob("*")) if path.is_file() and path.read_bytes().startswith(b"#!/bin/sh\n")]
WELL, WARNING, BROKEN, NOTHING = (
    "--simulate p100-pcie-x2",
    "--simulate p100-pcie-x2 --fault persistence-off",
    "--simulate p100-pcie-x2 --fault pcie-width:gpu=1,width=8",
    "--simulate no-gpu",
)
OURS = "State=IDLE+DRAIN Reason=gpucheck:nvlink-down g2 17/18 reset-gpu [root@2026-11-20T10:00:00]"
THEIRS = "State=IDLE+DRAIN Reason=broken fan"
IDLE = "State=IDLE"
WARNED = "gpucheck:persistence-off g0-1 change-setting SIMULATED"


# Ours on a simulated machine. What it prints and exits with is kept for the next run of the same words.
GPUCHECK = f"""#!/bin/sh
kept="$KEPT/$(echo "$@" $MACHINE | cksum)"
[ -f "$kept.status" ] || {{
    {sys.executable} -m gpucheck "$@" $MACHINE >"$kept.out" 2>"$kept.err"
    echo $? >"$kept.status"
}}
cat "$kept.out"
cat "$kept.err" >&2
exit "$(cat "$kept.status")"
"""


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return tmp_path_factory.mktemp("answers")


@pytest.fixture
def place(tmp_path, monkeypatch, kept):
    """Commands: gpucheck answers about a simulated machine; scontrol answers $NODE and notes what it is told."""
    monkeypatch.setenv("KEPT", str(kept))
    tools = {
        "gpucheck": GPUCHECK,
        "scontrol": '#!/bin/sh\ncase $1 in show) echo "$NODE" ;; *) echo "$@" >>"$NOTES" ;; esac\n',
    }
    for name, text in tools.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return tmp_path


def run(place, script, machine, node=IDLE):
    environment = {
        **os.environ,
        "PATH": f"{place}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "MACHINE": machine,
        "NODE": f"NodeName=n1 {node}",
        "NOTES": str(place / "notes"),
        "SLURMD_NODENAME": "n1",
        "GPUCHECK_SLURM_POLICY": str(PAGES / "slurm" / "gpucheck-policy"),
    }
    done = subprocess.run([PAGES / script], env=environment, capture_output=True, text=True, check=False)
    notes = place / "notes"
    return done, notes.read_text() if notes.exists() else ""


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_the_scripts_are_clean_posix_shell(script):
    assert os.access(script, os.X_OK)
    assert subprocess.run(["sh", "-n", script], check=False).returncode == 0
    done = subprocess.run(
        [Path(sys.executable).parent / "shellcheck", script], capture_output=True, text=True, check=False
    )

    assert done.stdout == ""


def test_there_are_scripts():
    names = {"gpucheck-health", "gpucheck-prolog", "gpucheck-epilog", "gpucheck-slurm.sh", "gpucheck-job"}
    assert {path.name for path in SCRIPTS} == names


def test_a_broken_node_is_drained_with_the_finding_as_the_reason(place):
    done, notes = run(place, "slurm/gpucheck-health", BROKEN)

    assert done.returncode == 0
    told = "gpucheck:pcie-width-reduced g1 8/16 contact-support SIMULATED"
    assert notes == f"update NodeName=n1 State=DRAIN Reason={told}\n"


@pytest.mark.parametrize(
    ("machine", "node", "told"),
    [
        (WELL, OURS, "update NodeName=n1 State=RESUME\n"),
        (WELL, THEIRS, ""),
        (WELL, IDLE, ""),
        (WARNING, IDLE, f"update NodeName=n1 Comment={WARNED}\n"),
        (BROKEN, THEIRS, ""),
    ],
)
def test_only_our_own_drain_is_taken_back_and_no_other_is_touched(place, machine, node, told):
    """A warning becomes a comment and drains nothing, and an administrator's reason is never overwritten."""
    done, notes = run(place, "slurm/gpucheck-health", machine, node)

    assert (done.returncode, notes) == (0, told)


def test_what_could_not_be_looked_at_is_said_and_changes_nothing(place):
    done, notes = run(place, "slurm/gpucheck-health", NOTHING, OURS)

    assert (done.returncode, notes) == (0, "")
    assert "n1: left as it is: the verdict is UNKNOWN" in done.stderr


@pytest.mark.parametrize(("machine", "status"), [(WELL, 0), (BROKEN, 1), (NOTHING, 0)])
def test_the_prolog_refuses_a_broken_node_only(place, machine, status):
    done, _ = run(place, "slurm/gpucheck-prolog", machine)

    assert done.returncode == status
    assert done.stdout == ""
    assert ("no job is started: gpucheck:pcie-width-reduced g1" in done.stderr) == (status == 1)
