"""Real nodes: torch's gloo ranks and the kernel's traffic shaper, in network namespaces of this machine.

Over ssh, with an sshd in each, and as steps of a real Slurm with munge and ConstrainDevices.
"""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.isolate.nodes import nodes, run, shape
from tests.isolate.slurm import CGROUP_V1, DEVICES, GPUS, slurm
from tests.isolate.test_evidence import HAS, members
from tests.shared import END_S

NEEDED = ("ip", "tc", "ssh", "ssh-keygen", "/usr/sbin/sshd")
pytestmark = [
    pytest.mark.more_labs,
    pytest.mark.skipif(os.geteuid() != 0 or not all(map(shutil.which, NEEDED)), reason="needs root, iproute2, OpenSSH"),
]
NAMES = [f"gpc{at}" for at in range(4)]
GPUCHECK = str(Path(sys.executable).with_name("gpucheck"))
SMALL = ("--sizes", "8K,4M")
# Nodes without a GPU: the quick checks and recordings are those of a simulated machine.
ON_NODE = f"""#!/bin/sh
case $1 in verify|record) exec {GPUCHECK} "$@" --simulate p100-pcie-x2 ;; esac
exec {GPUCHECK} "$@"
"""
# Nodes without ranks, for tests of Slurm alone. gpc2 fails its quick checks.
WITHOUT_RANKS = """#!/bin/sh
case $1-$SLURMD_NODENAME in
verify-gpc2) echo '{"verdict": "fail", "findings": [{"verdict": "fail", "check": "nvlink", "seen": "17 NVLinks"}]}' ;;
verify-*) echo '{"verdict": "pass", "findings": []}' ;;
*) [ "$GROUP_RANK" != 0 ] || echo '{"schema": "gpucheck.collectives/1", "nodes": 2, "results": [
{"operation": "all_reduce", "size_bytes": 8192, "time_us": 30.0, "busbw_gb_s": 1.0},
{"operation": "all_reduce", "size_bytes": 4194304, "time_us": 9.0, "busbw_gb_s": 390.0}]}' ;;
esac
"""


class Cluster(NamedTuple):
    """How a user reaches the nodes. before: the words before gpucheck; options: which nodes."""

    environment: dict[str, str]
    before: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    folder: Path = Path()

    def gpucheck(self, command: str, *arguments: str, remote: str = GPUCHECK) -> tuple[str, ...]:
        return (*self.before, GPUCHECK, command, *self.options, "--remote", remote, *SMALL, *arguments)

    def isolate(self, *arguments: str) -> dict[str, Any]:
        command = self.gpucheck("isolate", "--format", "json", *arguments)
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=self.environment)
        assert done.stdout, done.stderr
        return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Cluster]]:
    folder = tmp_path_factory.mktemp("slurm")
    with nodes(tmp_path_factory.mktemp("nodes"), len(NAMES)) as inventory, slurm(folder, NAMES) as running:
        yield {
            "ssh": Cluster(dict(os.environ), options=("--inventory", str(inventory)), folder=folder),
            "slurm": Cluster(running.environment, ("salloc", "--quiet", "-N4", "--exclusive"), folder=folder),
        }


@pytest.fixture(params=["ssh", "slurm"])
def cluster(both: dict[str, Cluster], request: pytest.FixtureRequest) -> Cluster:
    return both[request.param]


@pytest.fixture
def allocation(both: dict[str, Cluster]) -> Cluster:
    return both["slurm"]


def bad(found: dict[str, Any]) -> dict[str, tuple[str, str | None]]:
    return {one["name"]: (one["verdict"], one["cause"]) for one in found["nodes"] if one["verdict"] != "pass"}


def accused(found: dict[str, Any]) -> dict[str, str | None]:
    return {name: cause for name, (verdict, cause) in bad(found).items() if verdict == "fail"}


def ranks(name: str) -> list[int]:
    """Processes of a test on one node."""
    found = []
    for pid in run("ip", "netns", "pids", name).split():
        with suppress(OSError):  # it ended meanwhile
            if "collectives" in Path(f"/proc/{pid}/cmdline").read_text(errors="replace"):
                found.append(int(pid))
    return found


def left(seconds: float = 30.0) -> list[int]:
    """Processes of tests on any node; sshd and slurmstepd take a moment to see that their client has ended."""
    until = time.monotonic() + seconds
    while (found := [pid for name in NAMES for pid in ranks(name)]) and time.monotonic() < until:
        time.sleep(0.2)
    return found


@contextmanager
def behaving(does: Callable[[int], None], name: str = "gpc1") -> Iterator[None]:
    """Do something to the ranks on one node and the gpucheck that started them, again and again; not to its shell."""
    stop = threading.Event()

    def act() -> None:
        while not stop.wait(0.2):
            for pid in ranks(name):
                with suppress(OSError):
                    if "python" in Path(f"/proc/{pid}/cmdline").read_text().partition("\0")[0]:
                        does(pid)

    actor = threading.Thread(target=act)
    actor.start()
    try:
        yield
    finally:
        stop.set()
        actor.join()


@contextmanager
def slow_link(name: str, rate: str = "120mbit") -> Iterator[None]:
    shape(name, rate)
    try:
        yield
    finally:
        shape(name, "200mbit")


def test_equal_nodes_pass(cluster):
    found = cluster.isolate()
    # On a busy machine a pair can be slow once, which is said and accuses nobody.
    assert bad(found) == {}, found["results"]
    assert found["verdict"] in ("pass", "warn")
    # What a shaped link of 200 Mbit/s carries.
    assert 0.02 < found["reference_gb_s"] < 0.026
    assert not left()


def test_a_node_behind_a_slow_link_is_named(cluster):
    with slow_link("gpc2"):
        found = cluster.isolate()
    assert bad(found) == {"gpc2": ("fail", "node-slow")}, found["results"]


def stands_still(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)


def dies(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def is_late(pid: int) -> None:
    """A rank that runs for a fifth of the time."""
    os.kill(pid, signal.SIGSTOP)
    time.sleep(0.15)
    os.kill(pid, signal.SIGCONT)
    time.sleep(0.03)


@pytest.mark.parametrize(
    ("does", "cause"), [(stands_still, "node-hangs"), (dies, "node-hangs"), (is_late, "node-slow")]
)
def test_a_node_with_a_bad_rank_is_named_and_left_clean(cluster, does, cause):
    with behaving(does):
        found = cluster.isolate("--timeout", "15")
    # A busy machine slows other pairs down, too: then there may be doubt, but nobody else is accused.
    assert "gpc1" in bad(found), found["results"]
    assert accused(found) in ({"gpc1": cause}, {}), found["results"]
    assert not left()


def test_a_search_that_was_killed_goes_on(cluster, tmp_path):
    """Nothing is left of it on the nodes, and the next run makes the missing tests only."""
    state, pid = tmp_path / "state", tmp_path / "pid"
    arguments = ("--state", str(state), "--format", "json")
    command = cluster._replace(before=()).gpucheck("isolate", *arguments)
    killed = (*cluster.before, "sh", "-c", f'echo $$ >{pid}; exec "$@"', "sh", *command)
    with subprocess.Popen(killed, stdout=subprocess.DEVNULL, env=cluster.environment) as searching:
        while not state.exists() or state.read_text().count("\n") < 3:  # the head and the tests of one round
            time.sleep(0.1)
        os.kill(int(pid.read_text()), signal.SIGKILL)
        searching.wait()
    assert not left()
    known = state.read_text()
    found = cluster.isolate(*arguments)
    assert state.read_text().startswith(known.rpartition("\n")[0])
    assert state.read_text().count("\n") == 1 + found["tests"]
    assert accused(found) == {}, found["results"]


def test_an_allocation_that_ends_midway_accuses_nobody(allocation, tmp_path):
    command = allocation.gpucheck("isolate", "--state", str(tmp_path / "state"))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=allocation.environment) as searching:
        while not left(0):
            time.sleep(0.2)
        subprocess.run(["scancel", "--me"], env=allocation.environment, check=True)
        text, _ = searching.communicate()
    assert searching.returncode == 3
    assert "Slurm ended the allocation before the last round." in text
    assert "FAIL" not in text
    # The state has what was complete, and no test that the end of the allocation cut off.
    assert '"failed"' not in (tmp_path / "state").read_text()
    assert not left()


@pytest.fixture
def on_node(tmp_path: Path) -> str:
    program = tmp_path / "on-node"
    program.write_text(ON_NODE)
    program.chmod(0o755)
    return str(program)


def gate(cluster: Cluster, on_node: str, folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    # Ranks of four nodes on two processors start slowly.
    command = cluster.gpucheck("gate", "--within", "400", "--lists", str(folder), *words, remote=on_node)
    return subprocess.run(command, capture_output=True, text=True, check=False, env=cluster.environment)


def test_the_archive_about_a_slow_node_is_made_on_it(both, on_node, tmp_path):
    cluster = both["ssh"]
    with slow_link("gpc2"):
        (tmp_path / "search.json").write_text(json.dumps(cluster.isolate()))
    command = (GPUCHECK, "fleet", "evidence", *cluster.options, "--remote", on_node, "-o", str(tmp_path))
    subprocess.run((*command, str(tmp_path / "search.json")), check=True, capture_output=True)
    found = members(tmp_path / "gpc2.tar.gz")
    assert found.keys() == HAS
    assert b"Tesla P100" in found["gpus.csv"]


def test_a_job_starts_without_its_slow_node(allocation, on_node, tmp_path):
    job = "srun hostname -I; exit 7"
    with slow_link("gpc2"):
        done = gate(allocation, on_node, tmp_path, "--spare", "1", "--", "sh", "-c", job)
    assert done.returncode == 7, done.stderr
    assert sorted(done.stdout.split()) == ["10.231.77.1", "10.231.77.2", "10.231.77.4"]
    assert (tmp_path / "failing_nodes.txt").read_text().startswith("gpc2 slow or hanging")


def test_a_bad_node_is_left_out_if_there_is_a_spare_one(allocation, on_node, tmp_path):
    Path(on_node).write_text(WITHOUT_RANKS)
    refused = gate(allocation, on_node, tmp_path, "--", "srun", "hostname", "-I")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "3 of 4 nodes pass, and the job needs 4: not started" in refused.stderr
    done = gate(allocation, on_node, tmp_path, "--spare", "1", "--", "sh", "-c", "srun hostname -I; exit 7")
    assert done.returncode == 7, done.stderr
    assert sorted(done.stdout.split()) == ["10.231.77.1", "10.231.77.2", "10.231.77.4"]
    assert (tmp_path / "passing_nodes.txt").read_text().split() == ["gpc0", "gpc1", "gpc3"]
    assert (tmp_path / "failing_nodes.txt").read_text() == "gpc2 nvlink: 17 NVLinks\n"
    assert not left()


def test_a_signal_reaches_the_job(allocation, on_node, tmp_path):
    """The job is gpucheck's process, so that the signal and the status of the batch script are its own."""
    Path(on_node).write_text(WITHOUT_RANKS)
    script, out = tmp_path / "job", tmp_path / "out"
    start = allocation._replace(before=("exec",)).gpucheck(
        "gate", "--spare", "1", "--lists", str(tmp_path), remote=on_node
    )
    job = "trap 'echo warned; exit 9' USR1; echo up; while :; do sleep 0.2; done"
    script.write_text(f"#!/bin/sh\n{' '.join(start)} -- sh -c {shlex.quote(job)}\n")

    def ask(*words: str) -> str:
        return subprocess.run(words, env=allocation.environment, capture_output=True, text=True, check=True).stdout

    def until(text: str, seen: Callable[[], str]) -> None:
        end = time.monotonic() + END_S
        while text not in seen():
            assert time.monotonic() < end, (seen(), out.read_text() if out.exists() else "")
            time.sleep(0.5)

    number = ask("sbatch", "--parsable", "-N4", "--exclusive", f"--output={out}", str(script)).strip()
    until("up\n", lambda: out.read_text() if out.exists() else "")
    ask("scancel", "--batch", "--signal=USR1", number)
    until("ExitCode=9:0", lambda: ask("scontrol", "show", "job", number))
    assert "warned" in out.read_text()


@pytest.mark.skipif(not CGROUP_V1, reason="needs the hierarchies of cgroup v1")
def test_a_check_sees_the_gpus_of_the_job_only(allocation, tmp_path):
    """Slurm hides the device files of the others from the steps of gate."""
    program = tmp_path / "on-node"
    program.write_text(
        f"""#!/bin/sh
for at in $(seq 0 {GPUS - 1}); do
    case $(cat {DEVICES}/gpu$at 2>&1) in *"not permitted"*) ;; *) echo "$at" >>"{tmp_path}/opened" ;; esac
done
echo '{{"verdict": "fail", "findings": []}}'
"""
    )
    program.chmod(0o755)
    one = allocation._replace(before=("salloc", "--quiet", "-N4", "--gres=gpu:1"))
    assert gate(one, str(program), tmp_path, "--", "true").returncode == 2
    assert (tmp_path / "opened").read_text().split() == ["0"] * len(NAMES)
