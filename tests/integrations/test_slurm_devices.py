"""Steps of a real slurmd whose task/cgroup plugin constrains devices (cgroup.conf: ConstrainDevices=yes).

The device files are real nodes of the driver's major number, made here, and the kernel denies them; no driver is behind
them. NVML, the PCI bus and /proc are simulated: of the GPUs that the step was not given, NVML lists none.
"""

import json
import os
import re
import socket
import sys
from pathlib import Path

import pytest

from gpucheck import simulator
from tests import device_cgroup
from tests.integrations import test_slurm_cluster
from tests.integrations.test_slurm_cluster import LIBRARIES, Cluster, free_ports, program
from tests.integrations.test_statuses import PAGES

pytestmark = [
    *test_slurm_cluster.pytestmark,
    pytest.mark.skipif(not device_cgroup.available(1), reason="needs the device controller of cgroup v1"),
]
PROFILE, GPUS = "a100-sxm-x4", 4
CONF = """
ClusterName=gpucheck
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/none
AuthInfo=cred_expire=5
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
SlurmdDebug=debug
PluginDir={libraries}/slurm-wlm
ProctrackType=proctrack/pgid
TaskPlugin=task/cgroup
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
GresTypes=gpu
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} Gres=gpu:{gpus} CPUs=2 RealMemory=1000
PartitionName=p Nodes=ALL Default=YES MaxTime=10 State=UP
"""
# Makes the machine whose NVML lists the GPUs of this step, without those that are to be gone, and verifies it.
SESSION = """
import json, os, sys
from pathlib import Path
from gpucheck import simulator
folder, gone = Path(sys.argv[1]), {int(number) for number in sys.argv[2:]}
words = os.environ.get("SLURM_STEP_GPUS") or os.environ.get("SLURM_JOB_GPUS", "")
own = {int(number) for number in words.split(",") if number}
faults = [f"gpu-hidden:gpu={n}" for n in range(4) if n not in own] + [f"gpu-missing:gpu={n}" for n in gone & own]
profile = simulator.load("a100-sxm-x4")
machine = folder / f"machine-{os.getpid()}"
simulator.write_machine(profile, machine, driver=profile.driver.state(), faults=faults, software=True)
(machine / "lib").symlink_to(folder / "lib")
made = json.loads((machine / "surroundings.json").read_text())
# What is hidden, the kernel must say.
made["open_errors"] = {name: error for name, error in made.get("open_errors", {}).items() if error != "EPERM"}
made["environment"] = {name: os.environ[name] for name in os.environ if name.startswith("SLURM_")}
(machine / "surroundings.json").write_text(json.dumps(made))
for name in ("nvidiactl", *(f"nvidia{n}" for n in range(4))):
    (machine / "root/dev" / name).unlink()
    (machine / "root/dev" / name).symlink_to(folder / "dev" / name)
os.environ["GPUCHECK_SIMULATOR"] = str(machine)
print(sorted(own), file=sys.stderr, flush=True)
os.execv(sys.executable, [sys.executable, "-m", "gpucheck", "verify", "--level", "quick", "--format", "json"])
"""


class DeviceCluster(Cluster):
    """A controller and one node with four GPUs."""

    nodes: tuple[str, ...] = ("n1",)

    def write(self):
        host = socket.gethostname().partition(".")[0]
        for name in ("state", "n1", "dev"):
            (self.folder / name).mkdir()
        device_cgroup.nodes(self.folder / "dev", GPUS)
        values = {"folder": self.folder, "host": host, "ports": free_ports(2), "libraries": LIBRARIES, "gpus": GPUS}
        (self.folder / "slurm.conf").write_text(CONF.format(**values))
        (self.folder / "gres.conf").write_text(f"Name=gpu File={self.folder}/dev/nvidia[0-{GPUS - 1}]\n")
        (self.folder / "cgroup.conf").write_text(
            "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nConstrainDevices=yes\n"
        )
        (self.folder / "session.py").write_text(SESSION)
        (self.folder / "lib").symlink_to(simulator.activate(PROFILE) / "lib")

    def stop(self):
        super().stop()
        for controller in device_cgroup.V1.parent.iterdir():
            for folder, _, _ in os.walk(controller / "slurm_n1", topdown=False):
                Path(folder).rmdir()

    def job(self, answer, *options):
        """A job that checks its node first; its end, its output, and how often the work was started."""
        gpucheck, job, out = (self.folder / name for name in ("gpucheck", "job", "job.out"))
        verdict = answer.split()[1]
        gpucheck.write_text(
            f"#!/bin/sh\nprintf '{answer}'\nexit {('pass', 'warn', 'fail', 'unknown').index(verdict)}\n"
        )
        gpucheck.chmod(0o755)
        job.write_text(f"#!/bin/sh\n{PAGES}/slurm/gpucheck-job || exit\necho work\n")
        out.unlink(missing_ok=True)
        environment = f"--export=ALL,GPUCHECK={gpucheck},GPUCHECK_REQUEUES=1"
        more = (environment, "--requeue", "--parsable", "--open-mode=append", f"--output={out}", *options)
        number = self.ask(program("sbatch"), *more, str(job)).strip()
        shown = ""

        def ended():
            nonlocal shown
            shown = self.ask(program("scontrol"), "show", "job", number)
            return re.search(r"JobState=(COMPLETED|FAILED|CANCELLED)", shown)

        self.until(ended, 120)
        state, restarts = re.search(r"JobState=(\w+)", shown)[1], int(re.search(r"Restarts=(\d+)", shown)[1])
        return state, restarts, out.read_text()

    def verify(self, *options, gone=()):
        """Run gpucheck in a step; its exit status, its report, and the numbers that Slurm allotted."""
        command = [sys.executable, str(self.folder / "session.py"), str(self.folder), *map(str, gone)]
        done = self.run(program("srun"), *options, *command)
        assert done.stdout, done.stderr
        numbers = re.search(r"^\[(.*)\]$", done.stderr, re.M)[1]
        return done.returncode, json.loads(done.stdout), [int(n) for n in numbers.split(",") if n]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUCHECK_SIMULATOR", "")
        cluster = DeviceCluster(tmp_path_factory.mktemp("slurm"))
        cluster.environment |= {"XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", ""), "PYTHONPATH": str(Path.cwd())}
        cluster.write()
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def of_inventory(report):
    return [(f["verdict"], f["subject"], f["cause"]) for f in report["findings"] if f["check"] == "inventory"]


def test_a_step_with_two_of_four_gpus_passes_and_is_partial(slurm):
    status, report, numbers = slurm.verify("--gres=gpu:2")

    assert (status, report["verdict"], len(numbers)) == (0, "pass", 2)
    assert of_inventory(report) == [("pass", "host", None), ("skip", "host", None)]
    (skipped,) = [f for f in report["findings"] if f["check"] == "inventory" and f["verdict"] == "skip"]
    assert skipped["values"]["usable"] == [f"/dev/nvidia{number}" for number in numbers]
    assert report["partial"]["by"] == "device-cgroup"
    assert (len(report["partial"]["usable"]), len(report["partial"]["hidden"])) == (2, 2)


def test_a_gpu_of_the_step_that_is_gone_fails(slurm):
    status, report, numbers = slurm.verify("--gres=gpu:2", gone=range(1))
    assert 0 in numbers
    assert status == 2
    lost = report["partial"]["usable"][0]
    assert ("fail", f"gpu:{lost}", "gpu-lost") in of_inventory(report)


def test_a_step_with_all_gpus_is_not_partial(slurm):
    status, report, numbers = slurm.verify("--gres=gpu:4")

    assert (status, numbers, report["partial"]) == (0, [0, 1, 2, 3], None)


def test_a_step_without_gpus_is_told_so(slurm):
    status, report, numbers = slurm.verify()

    assert (status, numbers, report["partial"]["usable"]) == (3, [], [])
    assert of_inventory(report) == [("unknown", "host", None)]
    assert not [f for f in report["findings"] if f["verdict"] == "fail"]


def answer(verdict, owner, action, cause):
    return rf"gpucheck.slurm/1 {verdict} 1\n{verdict} {owner} {action} gpucheck:{cause} g2 {action}\nend\n"


def test_a_fault_of_the_node_requeues_a_job_once_and_then_ends_it(slurm):
    state, restarts, output = slurm.job(answer("fail", "node", "reset-gpu", "nvlink-down"))

    assert (state, restarts) == ("FAILED", 1)
    assert output.count("n1: fail node reset-gpu gpucheck:nvlink-down g2 reset-gpu") == 2
    assert "gpucheck-job: not requeued again after 1 restarts" in output
    assert "work" not in output.splitlines()


@pytest.mark.parametrize(
    "text",
    [
        answer("fail", "user", "change-setting", "leftover-environment"),
        answer("fail", "node", "wait", "gpu-busy"),
        answer("unknown", "node", "reboot", "gpu-lost"),
        answer("fail", "node", "reset-gpu", "nvlink-down").removesuffix(r"end\n"),
        answer("warn", "node", "reset-gpu", "nvlink-down"),
    ],
    ids=["user", "wait", "unknown", "cut", "warning"],
)
def test_what_is_no_fault_of_the_node_starts_the_work(slurm, text):
    state, restarts, output = slurm.job(text)

    assert (state, restarts) == ("COMPLETED", 0)
    assert output.splitlines()[-1] == "work"
