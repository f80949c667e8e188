"""A cluster with a real slurmctld, slurmd and munge on lab hosts: docs/cluster.md as it is typed, drains, and MIG.

The GPUs, their driver and their faults are SIMULATED; the containers may not constrain devices. The tests run in the
order they stand in: each needs the state of the one before.
"""

import csv
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpucheck.lab.lifecycle import KERNEL
from tests.lab import real_packages
from tests.lab.changes import NEW, OLD
from tests.lab.e2e import ROOT, Run, docker, until
from tests.lab.own_lab import ENVIRONMENT, OwnLab, outcomes
from tests.playbooks.stubs import script

pytestmark = pytest.mark.more_labs

# GPUCHECK_TEST_SLURM_LAB names a lab that is up, with Slurm and the older driver; it is left standing.
KEPT = os.environ.get("GPUCHECK_TEST_SLURM_LAB")
LAB = OwnLab(KEPT or "gpucheck-slurm", os.environ.get("GPUCHECK_TEST_SLURM_SUBNET", "10.213.56.0/24"))
NODE, HEAD = "light-001", "light-002"
PAGE = (ROOT / "docs/cluster.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.M | re.S)
COMMANDS = [
    re.fullmatch(r"(\$|slurmctld#|node#) (.*)", line).groups()  # type: ignore[union-attr]
    for kind, block in BLOCKS
    for line in block.splitlines()
    if kind == "console"
]
(LINES,) = (block.splitlines() for kind, block in BLOCKS if not kind)
START = """#!/bin/sh
pgrep munged >/dev/null || {{ install -d -o munge /run/munge; munged --force; }}
pkill -x {0}
while pgrep -x {0} >/dev/null; do sleep 0.2; done
{0}
"""
DRAINED = "gpucheck-provision: driver change"
LOST = "gpucheck:gpu-lost g1 contact-support"
TABLE = ".venv/bin/gpucheck fleet report {}/reports --format csv"
CONF = """ClusterName=lab
SlurmctldHost={head}({head_ip})
AuthType=auth/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmctldLogFile=/var/log/slurmctld.log
SelectType=select/cons_tres
GresTypes=gpu
NodeName=gpu1 NodeHostname={node} NodeAddr={node_ip} CPUs=1{gres}
PartitionName=p Nodes=ALL Default=YES MaxTime=10 State=UP
"""
# Beside the lab's own sources, which stay as they are.
INSTALL = """set -eu
printf '#!/bin/sh\\nexit 101\\n' >/usr/sbin/policy-rc.d; chmod +x /usr/sbin/policy-rc.d
mkdir -p /root/debian /etc/slurm /var/spool/slurmctld /var/spool/slurmd
options='-qq -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts=/root/debian -o APT::Get::List-Cleanup=0'
export DEBIAN_FRONTEND=noninteractive
apt-get $options update
apt-get $options install --yes --no-install-recommends \\
    slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge >/dev/null
rm /usr/sbin/policy-rc.d
sed -i 's#^exec#/root/slurm || :; exec#' /usr/lib/gpucheck-lab/light/init
"""


def on(host: str, *command: str) -> str:
    return docker("exec", f"{LAB.name}-{host}", *command)


def put(host: str, path: str, text: str) -> None:
    words = ["docker", "exec", "-i", f"{LAB.name}-{host}", "tee", path]
    subprocess.run(words, input=text, capture_output=True, text=True, check=True)


def shown() -> str:
    return on(HEAD, "scontrol", "--oneliner", "show", "node", "gpu1")


def state() -> str:
    return str(re.findall(r" State=(\S+)", shown())[0])


def reason() -> str:
    return str(re.findall(r" Reason=(.*?)(?: \[|$)", shown())[0])


def restart(*more: str) -> None:
    """slurm.conf with these lines on both hosts, with them the node has GPUs, and both daemons started again."""
    head_ip, node_ip = (on(host, "hostname", "-i").split()[0] for host in (HEAD, NODE))
    conf = CONF.format(
        head=HEAD, head_ip=head_ip, node=NODE, node_ip=node_ip, gres=" Gres=gpu:2" if more else ""
    ) + "\n".join((*more, ""))
    for host, daemon in ((HEAD, "slurmctld"), (NODE, "slurmd")):
        put(host, "/etc/slurm/slurm.conf", conf)
        put(host, "/root/slurm", START.format(daemon))
        on(host, "sh", "-c", "chmod +x /root/slurm; /root/slurm")
    until(lambda: "is UP" in on(HEAD, "sh", "-c", "scontrol ping || :"), "slurmctld")
    until(lambda: "NOT_RESPONDING" not in state() and "UNKNOWN" not in state(), "slurmd")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of all runs. The node has the older driver, and Slurm without gres.conf."""
    made = tmp_path_factory.mktemp("slurm")
    if KEPT:
        restart()
        yield made
        return
    with LAB.fresh():
        LAB.specify(torch="none", driver=OLD)
        first = LAB.provision(made, preflight_minimum_free_gib=1)
        assert first.status == 0, first.text
        on(NODE, "mkdir", "-p", "/root/debian")
        put(NODE, "/root/debian/debian.sources", real_packages.sources().decode())
        on(NODE, "sh", "-c", INSTALL)
        LAB.up("--light", "2")
        restart()
        yield made


def site(folder: Path) -> Path:
    """An inventory as step 1 makes it: the node, the controller of Slurm, and how to drain."""
    made = yaml.safe_load((LAB.directory / "inventory.yml").read_text())["gpu"]
    ((group, light),) = made["children"].items()
    head = light["hosts"].pop(HEAD)
    drain = {"drain_with": "slurm", "drain_delegate": HEAD, "drain_become": True, "drain_timeout_s": 600}
    values = {**made["vars"], **drain, "preflight_minimum_free_gib": 1}
    content = {
        "gpu": {"vars": values, "children": {group: light}},
        "heads": {"vars": values, "hosts": {HEAD: head}},
    }
    path = folder / "site.yml"
    path.write_text(yaml.safe_dump(content))
    return path


def only(folder: Path) -> tuple[str, ...]:
    """Options of ansible-playbook: the node alone changes."""
    return ("-i", str(site(folder)), "--limit", f"{NODE},localhost")


def of_node(folder: Path, **variables: Any) -> Run:
    return LAB.provision(folder, *only(folder), **variables)


def typed(folder: Path, prompt: str, command: str, environment: dict[str, str]) -> Run:
    """Run a command of the page where its prompt says."""
    words = ["bash", "-c", command.replace("my-cluster", f"{folder}/my-cluster")]
    if prompt != "$":
        words = ["docker", "exec", f"{LAB.name}-{NODE if prompt == 'node#' else HEAD}", "sh", "-c", command]
    return Run(subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False))


def test_the_page_is_typed_from_the_first_command_to_the_last(folder):
    """The editor writes an inventory and a specification of the lab's. Before step 6 the node's driver is unloaded."""
    inventory, stack = site(folder), LAB.directory / "stack.yml"
    wanted = folder / "stack.yml"
    wanted.write_text(yaml.safe_dump({**yaml.safe_load(stack.read_text()), "driver": NEW}))
    edit = f'case $1 in */hosts.yml) cp {inventory} "$1" ;; *) cp {wanted} {stack} ;; esac'
    editor = script(folder / "editor", f"#!/bin/sh\n{edit}\n")
    environment = {**os.environ, "EDITOR": editor, "REPORTS": str(folder / "reports"), "NO_COLOR": "1"}
    said = {}
    for prompt, command in COMMANDS:
        if command == "scontrol reconfigure":
            restart(*LINES)
        if command == "sinfo -R":
            until(lambda: state() == "IDLE", "the node")
            on(NODE, "sh", "-c", "rmmod nvidia; SLURMD_NODENAME=gpu1 gpucheck-health")
        if command == "gpucheck-health":
            on(NODE, "modprobe", "nvidia")
        done = typed(folder, prompt, command, environment)
        said[command.partition(" INV")[0]] = done.plain
        expected = 2 if command.startswith(("make slurm", "/opt/gpucheck/bin/gpucheck verify")) else 0
        assert done.status == expected, done.text

    assert "drain slurm" in said["make plan"]
    log = on(HEAD, "cat", "/var/log/slurmctld.log")
    assert f"node gpu1 reason set to: {DRAINED}" in log
    assert outcomes(folder)["hosts"][NODE]["state"] == "changed"
    gres = "node gpu1 has Gres=(null), and the host has 2 GPUs"
    for wrong in ("ConstrainDevices is not yes", "TaskPlugin lacks task/cgroup", gres, LINES[0], LINES[-1]):
        assert wrong in said["make slurm"]
    assert "Gres Name=gpu Type=(null) Count=2 Index=0 ID=7696487 File=/dev/nvidia[0-1]" in said["slurmd -G"]
    assert "gpucheck:driver-not- " in said["sinfo -R"]
    until(lambda: state() == "IDLE", "the node that gpucheck-health resumed")
    table = subprocess.run(TABLE.format(folder).split(), capture_output=True, text=True, check=True).stdout
    row = next(csv.DictReader(table.splitlines()))
    assert (row["host"], row["driver"], row["kernel"]) == (NODE, NEW, KERNEL)


def test_a_second_wiring_changes_nothing_and_names_what_is_left(folder):
    put(NODE, "/etc/gpucheck/slurm-policy", "max-drained-percent 20\n")
    run = of_node(folder, playbook="slurm")

    assert run.recap(NODE)["changed"] == 0
    assert "HealthCheckProgram" not in run.plain
    assert "slurm.conf: TaskPlugin lacks task/cgroup" in run.plain
    assert on(NODE, "cat", "/etc/gpucheck/slurm-policy") == "max-drained-percent 20"


def test_a_gres_conf_of_others_stays_and_what_it_lacks_is_named(folder):
    put(NODE, "/etc/slurm/gres.conf", "AutoDetect=nvml\n")
    try:
        run = of_node(folder, playbook="slurm")

        assert "AutoDetect=nvml, and this slurmd was built without NVML" in run.plain
        assert "It would be: Name=gpu File=/dev/nvidia[0-1]" in run.plain
        assert on(NODE, "cat", "/etc/slurm/gres.conf") == "AutoDetect=nvml"
        of_node(folder, playbook="slurm", slurm_gres="replace")
        assert "File=/dev/nvidia[0-1]" in on(NODE, "cat", "/etc/slurm/gres.conf")
        assert on(NODE, "sh", "-c", "cat /etc/slurm/gres.conf.*~") == "AutoDetect=nvml"
    finally:
        on(NODE, "sh", "-c", "rm -f /etc/slurm/gres.conf.*~")


def test_where_the_controller_sends_gres_conf_its_lines_are_named_and_accepted(folder):
    """slurmd --conf-server, without /etc/slurm on the node."""
    configless = (*LINES, "SlurmctldParameters=enable_configless")
    restart(*configless)
    start = "pkill -x slurmd; while pgrep -x slurmd; do sleep 0.2; done; slurmd --conf-server $1"
    head_ip = on(HEAD, "hostname", "-i").split()[0]
    on(NODE, "mv", "/etc/slurm", "/etc/slurm.kept")
    try:
        on(NODE, "sh", "-c", start, "start", head_ip)
        run = of_node(folder, playbook="slurm")
        lines = (folder / "reports/gres.conf").read_text()
        assert lines == "NodeName=gpu1 Name=gpu File=/dev/nvidia[0-1]\n"
        assert "gres.conf is sent by slurmctld (configless) and was not written" in run.plain

        put(HEAD, "/etc/slurm/gres.conf", lines)
        on(HEAD, "scontrol", "reconfigure")
        until(lambda: "gres.conf" in on(NODE, "ls", "/run/slurm/conf"), "gres.conf on the node")
        assert "was not written" not in of_node(folder, playbook="slurm").plain
        on(NODE, "sh", "-c", start, "start", head_ip)
        on(HEAD, "sh", "-c", "scontrol update nodename=gpu1 state=resume || :")
        until(lambda: state() == "IDLE", "the node")
    finally:
        on(NODE, "mv", "/etc/slurm.kept", "/etc/slurm")
        on(HEAD, "rm", "-f", "/etc/slurm/gres.conf")
        restart(*LINES)


def test_a_node_drained_by_the_health_check_is_changed_after_its_job_and_stays_drained_with_its_mig_layout(folder):
    """The lock of the host is renewed while the run waits for the job. nvidia-smi's MIG commands are a stub."""
    smi = (ROOT / "tests/playbooks/mig_smi.py").read_text()
    put(NODE, "/usr/local/sbin/nvidia-smi", smi)
    whole = [["2", 0, 0]]
    layout = {"modes": ["Enabled", "Disabled"], "instances": [[0, "9", 2, 4, whole], [0, "19", 9, 0, whole]]}
    put(NODE, "/run/mig.json", json.dumps(layout))
    on(NODE, "chmod", "755", "/usr/local/sbin/nvidia-smi")
    job = on(HEAD, "sh", "-c", "cd /tmp && sbatch --parsable --wrap 'sleep 3600' -o /dev/null")
    until(lambda: "ALLOC" in state() or "MIXED" in state(), "the job")
    on(HEAD, "scontrol", "update", "nodename=gpu1", "state=drain", f"reason={LOST}")
    LAB.specify(driver=OLD)
    command = LAB.command(folder, *only(folder), host_lock_lease_s=300)
    with (folder / "out").open("w") as out:
        running = subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, stdout=out, stderr=out)
    try:
        until(lambda: lease() > 300, "the lock to be renewed by the wait")
        assert "DRAIN" in state()
    finally:
        on(HEAD, "scancel", job)
        running.wait()

    assert running.returncode == 0, (folder / "out").read_text()
    assert (state(), reason()) == ("IDLE+DRAIN", LOST)
    assert outcomes(folder)["hosts"][NODE]["drained_before"].endswith(f"+DRAIN, {LOST}")
    assert OLD in on(NODE, "cat", "/run/gpucheck-simulator/root/proc/driver/nvidia/version")
    now = json.loads(on(NODE, "cat", "/run/mig.json"))
    assert now["modes"] == layout["modes"]
    assert sorted((row[1], row[3], row[4]) for row in now["instances"]) == [("19", 0, whole), ("9", 4, whole)]
    assert "mig" not in on(NODE, "ls", "/var/lib/gpucheck").split()


def lease() -> float:
    """Seconds that the lock of the host is still valid."""
    words = on(NODE, "sh", "-c", "cat /proc/uptime /var/lib/gpucheck/run.lock 2>/dev/null || :")
    uptime, _, held = words.partition("\n")
    return float(json.loads(held or "{}").get("until", 0)) - float(uptime.split()[0])


def test_a_name_that_slurm_does_not_know_is_rejected_before_anything_changes(folder):
    LAB.specify(driver=NEW)
    run = of_node(folder, drain_node="gpu-9")

    assert run.status != 0
    assert outcomes(folder)["hosts"][NODE]["state"] == "refused"
    assert "Slurm has no node with the NodeName, NodeHostName or NodeAddr gpu-9. Nothing was changed." in run.plain
