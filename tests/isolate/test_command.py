"""gpucheck isolate and gpucheck gate, as users type them, on stand-ins for nodes."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.train.conftest import heed_interrupts

NAMES = [f"n{at}" for at in range(8)]
NODES = ("--nodes", ",".join(NAMES))


def run(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "gpucheck", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, check=False)


def isolate(*arguments: str) -> tuple[int, dict[str, Any]]:
    done = run("isolate", *NODES, "--timeout", "2", "--format", "json", *arguments)
    return done.returncode, json.loads(done.stdout) if done.stdout else {"error": done.stderr}


def bad(found: dict[str, Any]) -> dict[str, tuple[str, str | None]]:
    return {one["name"]: (one["verdict"], one["cause"]) for one in found["nodes"] if one["verdict"] != "pass"}


def test_healthy_nodes_pass(stand_ins):
    stand_ins()
    status, found = isolate()
    assert (status, found["verdict"], bad(found), len(found["rounds"])) == (0, "pass", {}, 2)
    assert found["unproven"]  # all of them together
    status, found = isolate("--expected", "390")
    assert (status, len(found["rounds"]), found["unproven"]) == (0, 1, [])


def test_what_is_wrong_with_nodes_is_named(stand_ins):
    stand_ins(n3="slow", n6="wrong")
    status, found = isolate("--expected", "390")
    assert status == 2
    assert bad(found) == {"n3": ("fail", "node-slow"), "n6": ("fail", "silent-corruption")}


def test_nodes_that_do_not_answer_are_unknown(stand_ins):
    stand_ins(n3="silent")
    status, found = isolate()
    assert (status, bad(found)) == (3, {"n3": ("unknown", None)})


def test_a_person_who_waits_sees_what_is_known(stand_ins):
    """On a terminal: the round, the tests that ended, the nodes in doubt, and the time that is left."""
    stand_ins(n3="slow")
    reader, terminal = pty.openpty()
    command = [sys.executable, "-m", "gpucheck", "isolate", *NODES]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=terminal) as running:
        running.communicate()
    os.close(terminal)
    text = b""
    with suppress(OSError):  # Linux: the other end is closed
        while part := os.read(reader, 1 << 16):
            text += part
    os.close(reader)
    drawn = text.decode()
    assert re.search(r"round 1, 4 pairs: [1-4] of 4 ended.*about \d+ s left in this round", drawn)
    assert "; in doubt: n3" in drawn


def test_the_page_has_a_matrix_of_pairs(tmp_path):
    spec = ("--simulate-fleet", "nodes=200,hangs=1,seed=3")
    shown = run("isolate", *spec, "--format", "markdown").stdout
    (bad,) = json.loads(run("isolate", *spec, "--format", "json").stdout)["truth"]["bad"]
    head, _, row = shown.partition("### Pairs")[2].strip().splitlines()[:3]
    assert head.startswith(f"| node | {bad} | ")
    assert row.startswith(f"| {bad} |  | **hung** | **hung** |")
    page = run("isolate", *spec, "--format", "html").stdout
    assert "Pairs</h2>" in page
    assert "hung" in page.partition("Pairs</h2>")[2]
    many = run("isolate", "--simulate-fleet", "nodes=1024,bad=20,seed=7", "--format", "markdown").stdout
    assert many.count("**FAIL** isolate") == 2  # equal findings are one
    assert "; without 16 more nodes that are not good" in many.partition("### Pairs")[2]


def test_nodes_with_other_gpus_are_not_compared(stand_ins):
    nodes = stand_ins(n3="other")
    status, found = isolate()
    assert status == 64
    assert "8 x A100: n3; 8 x H100: n0, n1, n2, n4 and 3 more" in found["error"]
    assert "collectives" not in (nodes / "log").read_text()


def test_a_search_goes_on_where_it_was_ended(stand_ins, tmp_path):
    """A signal prints what is known; the next run makes the missing tests only."""
    nodes, state = stand_ins(n3="hangs"), tmp_path / "state"
    command = [sys.executable, "-m", "gpucheck", "isolate", *NODES, "--timeout", "600", "--format", "json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([*command, "--state", str(state)], preexec_fn=heed_interrupts, **pipes) as running:
        while not state.exists() or len(state.read_text().splitlines()) < 4:  # the head and three good pairs
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        output, errors = running.communicate()
    assert running.returncode == 130, errors
    assert json.loads(output)["verdict"] == "unknown"
    with state.open("a") as file:
        file.write('[0,{"nodes":["n')  # as a full disk or a power failure leaves it
    stand_ins(n3="slow")
    (nodes / "log").unlink()
    status, found = isolate("--state", str(state), "--expected", "390")
    assert status == 64
    assert "of other nodes or options" in found["error"]
    assert bad(isolate("--state", str(state))[1]) == {"n3": ("fail", "node-slow")}
    first = [line for line in (nodes / "log").read_text().splitlines() if line.startswith("collectives")][:2]
    assert {line.split()[1] for line in first} == {"n3", "n7"}


def test_an_allocation_that_ends_accuses_nobody(stand_ins, tmp_path):
    nodes, state = stand_ins(n3="hangs"), tmp_path / "state"
    job = os.environ | {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": ",".join(NAMES)}
    command = [sys.executable, "-m", "gpucheck", "isolate", "--timeout", "600", "--format", "json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([*command, "--state", str(state)], env=job, **pipes) as running:
        while not state.exists() or len(state.read_text().splitlines()) < 4:  # the head and three good pairs
            time.sleep(0.05)
        (nodes / "ended").touch()
        output, errors = running.communicate()
    found = json.loads(output)
    assert (running.returncode, found["verdict"]) == (3, "unknown"), errors
    assert [one["code"] for one in found["findings"]][-1] == "isolate.allocation-interrupted"
    assert "failed" not in state.read_text()
    done = run("isolate", **{name: job[name] for name in ("SLURM_JOB_ID", "SLURM_JOB_NODELIST")})
    assert (done.returncode, done.stderr.count("\n")) == (64, 1)
    assert "the Slurm allocation ended before the first test" in done.stderr
    done = run("gate", "--lists", str(tmp_path), "--", "true", SLURM_JOB_ID="7", SLURM_JOB_NODELIST=",".join(NAMES))
    assert (done.returncode, done.stdout) == (3, "")
    assert "the Slurm allocation ended: nothing was started" in done.stderr


def gate(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    script = (
        'echo "$SLURM_JOB_NODELIST $SLURM_NNODES $SLURM_TASKS_PER_NODE $MASTER_ADDR"; cat "$SLURM_HOSTFILE"; exit 7'
    )
    lists, job = ("--lists", str(folder)), {"SLURM_JOB_ID": "1", "SLURM_NNODES": "8", "SLURM_NTASKS": "16"}
    return run("gate", *NODES, *lists, *arguments, "--", "sh", "-c", script, **job)


def test_a_job_starts_on_the_nodes_that_pass(stand_ins, tmp_path):
    stand_ins(n0="sick", n5="slow")
    done = gate(tmp_path, "--spare", "2")
    good = [name for name in NAMES if name not in ("n0", "n5")]
    assert done.returncode == 7, done.stderr
    assert done.stdout == f"{','.join(good)} 6 2(x6) n1\n" + "".join(f"{name}\n{name}\n" for name in good)
    assert (tmp_path / "passing_nodes.txt").read_text().split() == good
    failing = (tmp_path / "failing_nodes.txt").read_text().splitlines()
    assert failing[0] == "n0 nvlink-status: 17 NVLinks active"
    assert failing[1].startswith("n5 slow or hanging")


def test_a_job_without_enough_nodes_does_not_start(stand_ins, tmp_path):
    stand_ins(n0="sick", n5="silent")
    done = gate(tmp_path, "--spare", "1")
    assert (done.returncode, done.stdout) == (2, "")
    assert "6 of 8 nodes pass, and the job needs 7: not started" in done.stderr


def test_a_healthy_job_has_all_its_nodes_but_the_spare_ones(stand_ins, tmp_path):
    stand_ins()
    assert gate(tmp_path).stdout.startswith(f"{','.join(NAMES)} 8 2(x8) n0\n")
    assert gate(tmp_path, "--spare", "3").stdout.startswith(f"{','.join(NAMES[:5])} 5 2(x5) n0\n")


def test_nodes_that_were_bad_before_are_spare_first(stand_ins, tmp_path):
    stand_ins()
    known = tmp_path / "nodes.csv"
    known.write_text("host,lemon\nn2,1\nn6,2\nn7,\n")
    spare = ("--history", str(known), "--spare")
    assert gate(tmp_path, *spare, "1").stdout.startswith("n0,n1,n3,n4,n5,n6,n7 ")
    assert gate(tmp_path, *spare, "3").stdout.startswith("n0,n1,n3,n4,n5 ")
    known.write_text("host,lemon\nn2,first\n")
    done = gate(tmp_path, *spare, "1")
    assert (done.returncode, done.stdout) == (64, "")
    assert "expected a number" in done.stderr


PAGE = (Path(__file__).parents[2] / "docs" / "isolate.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("line", re.findall(r"^\$ gpucheck (isolate --simulate-fleet .*)$", PAGE, re.MULTILINE))
def test_commands_of_the_page(line):
    done = run(*line.split())
    assert (done.returncode, done.stderr) == (2, "")
    assert "SIMULATED" in done.stdout or json.loads(done.stdout)["truth"]["bad"]


def test_options_of_the_page_exist():
    offered = run("isolate", "--help").stdout + run("gate", "--help").stdout
    words = set(re.findall(r"`(--[a-z-]+)", PAGE)) - {"--overlap"}
    assert not [word for word in words if word not in offered]
