"""docs/integrations/slurm under a real slurmctld and three slurmd on localhost, which run the scripts themselves.

Nothing is started outside a temporary directory. gpucheck is a stub with an answer for each node.
"""

import os
import re
import shutil
import subprocess
import time

import pytest

from tests.integrations.test_statuses import PAGES
from tests.playbooks.stubs import script
from tests.shared import made_once
from tests.slurm import HOST, Slurm, free_ports, unpack

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("apt-get"), reason="needs root, and Slurm of Debian"),
]
NODES = ("n1", "n2", "n3")
PASS = "gpucheck.slurm/1 pass 0\nend\n"
LINK = "gpucheck:nvlink-down g2 17/18 reset-gpu"
FAIL = f"gpucheck.slurm/1 fail 1\nfail node reset-gpu {LINK}\nend\n"
STUB = """#!/bin/sh
answer="{folder}/answers/$SLURMD_NODENAME"
case "$*" in *"--level standard"*)
    echo "$SLURMD_NODENAME" >>"{folder}/started"
    answer=$answer.standard
    while [ -e "{folder}/slow" ]; do sleep 0.2; done
    echo "$SLURMD_NODENAME" >>"{folder}/tested" ;;
esac
cat "$answer" || exit 70
case $(cat "$answer") in *" fail "*) exit 2 ;; *" warn "*) exit 1 ;; esac
"""
# As a site would write it where gpucheck is not in a directory of the system.
WRAPPER = """#!/bin/sh
echo "${{SLURMD_NODENAME:-no name}}" >>"{folder}/{name}.runs"
export PATH="{folder}/bin:{search}" LD_LIBRARY_PATH="{libraries}" SLURM_CONF="{folder}/slurm.conf"
export GPUCHECK_SLURM_POLICY="{folder}/policy" GPUCHECK_SLURM_RESULTS="{folder}/results"
export GPUCHECK_SLURM_TESTS="{folder}/tests"
exec "{page}" 2>>"{folder}/{name}.log"
"""
LINES = """AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
Prolog={folder}/gpucheck-prolog
PrologFlags=Alloc
Epilog={folder}/gpucheck-epilog
HealthCheckProgram={folder}/gpucheck-health
HealthCheckInterval=2
HealthCheckNodeState=IDLE,CYCLE
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
{nodes}
PartitionName=gpucheck-idle Nodes=ALL PriorityTier=0 MaxTime=30 RootOnly=YES Hidden=YES
"""


class Cluster(Slurm):
    """A controller and three nodes in one directory, and what gpucheck answers on each."""

    def write(self):
        nodes = "\n".join(
            f"NodeName={name} NodeHostname={HOST} NodeAddr=127.0.0.1 Port={port} CPUs=1"
            for name, port in zip(NODES, free_ports(len(NODES)), strict=True)
        )
        self.configure("127.0.0.1", LINES.format(folder=self.folder, nodes=nodes))
        for name in ("answers", "bin", *NODES):
            (self.folder / name).mkdir()
        policy = (PAGES / "slurm/gpucheck-policy").read_text()
        self.policy = policy.replace("max-drained-percent 10", "max-drained-percent 40")
        (self.folder / "policy").write_text(self.policy.replace("idle-test-days 7", "idle-test-days 0"))
        programs = {"bin/gpucheck": STUB.format(folder=self.folder)}
        for name in ("gpucheck-prolog", "gpucheck-epilog", "gpucheck-health", "gpucheck-idle"):
            values = {"search": self.environment["PATH"], "libraries": self.environment["LD_LIBRARY_PATH"]}
            programs[name] = WRAPPER.format(**values, folder=self.folder, name=name, page=PAGES / "slurm" / name)
        for name, text in programs.items():
            script(self.folder / name, text)
        for node in NODES:
            self.answers(node, PASS)
            self.answers(f"{node}.standard", PASS)

    def answers(self, node, text):
        """What gpucheck prints on a node from now on; replaced at once."""
        new = self.folder / "answers" / f".{node}"
        new.write_text(text)
        new.replace(self.folder / "answers" / node)

    def line(self, node):
        return self.ask("scontrol", "show", "node", node, "--oneliner")

    def state(self, node):
        found = re.search(r" State=(\S+)", self.line(node))
        return found[1] if found else None

    def reason(self, node):
        found = re.search(r" Reason=(.*?)(?: \[|$)", self.line(node))
        return found[1] if found else None

    def runs(self, script):
        return self.lines(f"{script}.runs")

    def lines(self, name):
        path = self.folder / name
        return path.read_text().split() if path.exists() else []

    def log(self, script):
        path = self.folder / f"{script}.log"
        return path.read_text() if path.exists() else ""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    try:
        programs = made_once(tmp_path_factory, "slurm-programs", unpack)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"Slurm's packages cannot be had here: {error.stderr.decode().strip()[-200:]}")
    cluster = Cluster(tmp_path_factory.mktemp("slurm"), programs, NODES)
    cluster.write()
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def test_the_health_check_drains_with_the_cause_and_resumes(slurm):
    slurm.answers("n1", FAIL)
    slurm.until(lambda: slurm.state("n1") == "IDLE+DRAIN")
    assert slurm.reason("n1") == LINK
    shown = slurm.ask("sinfo", "-R", "--noheader")
    assert shown.startswith(LINK[:20])
    assert set(NODES) <= set(slurm.runs("gpucheck-health"))

    slurm.answers("n1", PASS)
    slurm.until(lambda: slurm.state("n1") == "IDLE")


@pytest.fixture
def without_health_check(slurm):
    """The prolog and the epilog alone: the health check would be first."""
    health = slurm.folder / "gpucheck-health"
    text = health.read_text()
    health.write_text("#!/bin/sh\n")
    time.sleep(3)
    yield slurm
    health.write_text(text)


def submit(slurm, node, script="true"):
    job = slurm.folder / "job"
    job.write_text(f"#!/bin/sh\n{script}\n")
    return slurm.ask("sbatch", "--parsable", "--requeue", "-w", node, f"--output={job}.out", str(job)).strip()


def job_state(slurm, job):
    found = re.search(r"JobState=(\S+)", slurm.ask("scontrol", "show", "job", job))
    return found[1] if found else None


def test_the_prolog_drains_with_our_reason_and_the_job_is_queued_again(without_health_check):
    slurm = without_health_check
    kept = slurm.folder / "results"
    kept.mkdir(exist_ok=True)
    (kept / "n1").write_text(f"{FAIL}status 2\n")
    job = submit(slurm, "n1", "touch started")
    slurm.until(lambda: "DRAIN" in (slurm.state("n1") or ""))
    slurm.until(lambda: job_state(slurm, job) == "PENDING")

    assert "n1" in slurm.runs("gpucheck-prolog")
    assert slurm.reason("n1") == LINK  # not Slurm's "Prolog error"
    assert slurm.ask("sinfo", "-R", "--noheader").startswith(LINK[:20])
    assert "gpucheck-prolog: n1: no job is started: " in slurm.log("gpucheck-prolog")
    (kept / "n1").unlink()
    slurm.ask("scancel", job)
    slurm.answers("n1", PASS)
    slurm.ask("scontrol", "update", "NodeName=n1", "State=RESUME")
    slurm.until(lambda: slurm.state("n1") == "IDLE")


def test_the_epilog_drains_after_the_job_that_broke_a_gpu(without_health_check):
    slurm = without_health_check
    answer = slurm.folder / "answers" / "n2"
    text = FAIL.replace("\n", "\\n")
    job = submit(slurm, "n2", f"printf '{text}' >{answer}")
    slurm.until(lambda: slurm.state("n2") == "IDLE+DRAIN")

    assert slurm.reason("n2") == LINK
    assert job_state(slurm, job) == "COMPLETED"
    slurm.answers("n2", PASS)
    slurm.ask("scontrol", "update", "NodeName=n2", "State=RESUME")
    slurm.until(lambda: slurm.state("n2") == "IDLE")


@pytest.fixture(params=[False])
def with_idle_tests(slurm, request):
    """Every node was tested at the end: the fixture leaves no test behind. param: tests last until slow is removed."""
    if request.param:
        (slurm.folder / "slow").touch()
    (slurm.folder / "policy").write_text(slurm.policy)
    yield slurm
    (slurm.folder / "slow").unlink(missing_ok=True)
    slurm.until(lambda: len(list((slurm.folder / "tests").glob("n?"))) == len(NODES) and not slurm.ask("squeue", "-h"))
    (slurm.folder / "policy").write_text(slurm.policy.replace("idle-test-days 7", "idle-test-days 0"))
    for path in ("tested", "started"):
        (slurm.folder / path).unlink()
    for node in NODES:
        slurm.answers(f"{node}.standard", PASS)
        (slurm.folder / "tests" / node).unlink()


def test_each_idle_node_is_tested_once(with_idle_tests):
    slurm = with_idle_tests
    slurm.until(lambda: sorted(slurm.lines("tested")) == list(NODES))
    before = len(slurm.runs("gpucheck-health"))
    slurm.until(lambda: all(slurm.runs("gpucheck-health")[before:].count(node) >= 3 for node in NODES))
    assert sorted(slurm.lines("started")) == list(NODES)
    old = time.time() - 8 * 86400
    os.utime(slurm.folder / "tests/n2", (old, old))
    slurm.until(lambda: slurm.lines("tested").count("n2") == 2)


def test_a_test_drains_and_only_a_test_resumes(with_idle_tests):
    slurm = with_idle_tests
    slurm.answers("n1.standard", FAIL)
    slurm.until(lambda: slurm.state("n1") == "IDLE+DRAIN")
    assert slurm.reason("n1") == LINK
    assert slurm.ask("sinfo", "-R", "--noheader").startswith(LINK[:20])
    before = len(slurm.runs("gpucheck-health"))
    slurm.until(lambda: slurm.runs("gpucheck-health")[before:].count("n1") >= 3)
    assert slurm.state("n1") == "IDLE+DRAIN"  # its quick checks pass

    slurm.answers("n1.standard", PASS)
    slurm.ask("scontrol", "update", "NodeName=n3", "State=DRAIN", "Reason=broken fan")
    for node in ("n1", "n3"):  # As root types it on the node.
        environment = slurm.environment | {"SLURMD_NODENAME": node}
        subprocess.run([slurm.folder / "gpucheck-idle"], env=environment, check=True)
    slurm.until(lambda: "DRAIN" not in slurm.state("n1"))
    assert slurm.reason("n3") == "broken fan"
    slurm.ask("scontrol", "update", "NodeName=n3", "State=RESUME")


@pytest.mark.parametrize("with_idle_tests", [True], indirect=True)
def test_a_job_preempts_a_test(with_idle_tests):
    """The test leaves no process and no result, and runs again later."""
    slurm = with_idle_tests
    slurm.until(lambda: "n2" in slurm.lines("started"))
    job = submit(slurm, "n2")
    slurm.until(lambda: job_state(slurm, job) == "COMPLETED")
    assert "n2" not in slurm.lines("tested")
    assert not (slurm.folder / "tests/n2").exists()
    (slurm.folder / "slow").unlink()
    slurm.until(lambda: "n2" in slurm.lines("tested"))
