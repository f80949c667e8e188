"""An apt host changes from the open to the proprietary kernel modules and back, with GPUs that take both."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.lab.e2e import ROOT, Run, docker

pytestmark = pytest.mark.more_labs

LAB = "gpucheck-flavour"
SUBNET = os.environ.get("GPUCHECK_TEST_FLAVOUR_SUBNET", "10.213.53.0/24")
HOST = f"{LAB}-light-001"
LOADED = "/run/gpucheck-simulator/root/proc/driver/nvidia/version"
# The H100s of a DGX: Hopper takes both.
PROFILE = "hgx-h100-x8"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Iterator[Path]:
    lab = (".venv/bin/gpucheck", "lab")
    subprocess.run([*lab, "down", "--name", LAB], cwd=ROOT, check=True, capture_output=True)
    try:
        up = [*lab, "up", "--name", LAB, "--subnet", SUBNET, "--light", "1", "--profile", PROFILE]
        subprocess.run(up, cwd=ROOT, check=True, capture_output=True)
        yield tmp_path_factory.mktemp("flavour")
    finally:
        subprocess.run([*lab, "down", "--name", LAB], cwd=ROOT, check=True, capture_output=True)


def provision(folder: Path, **wish: str) -> Run:
    """make provision's own command with this wish on top of the lab's, without the verification."""
    path = ROOT / f".lab/{LAB}/stack.yml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **wish}))
    values = {"reports_dir": f"{folder}/reports", "build_dir": f"{folder}/build", "preflight_minimum_free_gib": 1}
    words = [".venv/bin/ansible-playbook", "-i", str(path.with_name("inventory.yml")), "--skip-tags", "verify"]
    words += ["-e", json.dumps(values), "playbooks/provision.yml"]
    environment = {**os.environ, "ANSIBLE_CONFIG": "playbooks/ansible.cfg"}
    return Run(subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False))


def loaded() -> str:
    return "open" if "Open Kernel Module" in docker("exec", HOST, "cat", LOADED) else "proprietary"


def module_packages() -> list[str]:
    shown = docker("exec", HOST, "dpkg-query", "-W", "-f", "${db:Status-Abbrev}${Package}\n", "nvidia-dkms-*")
    return [line.split()[1] for line in shown.splitlines() if line.startswith(("hi", "ii"))]


def test_the_open_modules_are_what_these_gpus_get(folder):
    run = provision(folder, kernel_module="auto")

    assert run.status == 0, run.text
    assert (loaded(), module_packages()) == ("open", ["nvidia-dkms-580-open"])


@pytest.mark.fault("apt's transaction", "a dependency brings a kernel along")
def test_a_kernel_that_comes_along_stops_the_host_before_its_reboot(folder):
    """Afterwards it is there with headers or it goes: a host does not boot into a kernel without a module."""
    hook, kernel = "/etc/apt/apt.conf.d/99-site", "/lib/modules/6.9.0-1-generic"
    boots = docker("exec", HOST, "cat", "/var/lib/gpucheck-lab/boots")
    brings = f'DPkg::Post-Invoke {{"mkdir -p {kernel}; touch {kernel}/modules.dep";}};'
    docker("exec", HOST, "sh", "-c", f"echo '{brings}' >{hook}")
    try:
        run = provision(folder, cudnn="none", driver="580.95.05")
        assert "installed the unplanned kernel 6.9.0-1-generic" in run.plain
        assert docker("exec", HOST, "cat", "/var/lib/gpucheck-lab/boots") == boots
    finally:
        docker("exec", HOST, "rm", "-r", hook)

    again = provision(folder, driver="580.95.05")
    assert "no package source offers linux-headers-6.9.0-1-generic" in again.plain

    docker("exec", HOST, "rm", "-r", kernel)
    assert provision(folder, driver="auto", cudnn="auto").status == 0


@pytest.mark.parametrize(("flavour", "package"), [("proprietary", "nvidia-dkms-580"), ("open", "nvidia-dkms-580-open")])
def test_a_change_of_mind_brings_the_other_modules_in_and_leaves_nothing_of_the_first(folder, flavour, package):
    run = provision(folder, kernel_module=flavour)

    assert run.status == 0, run.text
    assert (loaded(), module_packages()) == (flavour, [package])
    assert package in docker("exec", HOST, "apt-mark", "showhold").split()
    assert provision(folder, kernel_module=flavour).recap("light-001")["changed"] == 0
