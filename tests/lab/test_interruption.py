"""Hosts whose controller dies after every single step, and one whose mirror dies while it downloads."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.lab.e2e import ROOT, Run, docker, until

pytestmark = pytest.mark.more_labs


class Bare(NamedTuple):
    """A lab with one bare host that the runs go to."""

    lab: str
    subnet: str
    host: str
    up: tuple[str, ...]

    @property
    def folder(self) -> Path:
        return ROOT / ".lab" / self.lab

    @property
    def container(self) -> str:
        return f"{self.lab}-{self.host.removeprefix('lab-')}"


# A light host is quicker where nothing but packages and files matters; there is none with dnf.
APT = Bare("gpucheck-cut", os.environ.get("GPUCHECK_TEST_CUT_SUBNET", "10.213.51.0/24"), "light-001", ("--light", "1"))
DNF = Bare("gpucheck-cut-dnf", os.environ.get("GPUCHECK_TEST_CUT_DNF_SUBNET", "10.213.52.0/24"), "lab-dnf", ())
MIRROR = f"{APT.lab}-mirror"
OLD, NEW = "580.95.05", "580.178.04"
# More steps than a host has: a run that is never done is a failure, not a loop without end.
MOST_STEPS = 60


def words(at: Bare, folder: Path, **variables: Any) -> tuple[list[str], dict[str, str]]:
    """make provision's own command on the host, without the verification, and its environment."""
    values = {"reports_dir": f"{folder}/reports", "build_dir": f"{folder}/build", "preflight_minimum_free_gib": 1}
    command = [".venv/bin/ansible-playbook", "-i", str(at.folder / "inventory.yml"), "--skip-tags", "verify"]
    command += ["--limit", f"{at.host},localhost", "-e", json.dumps({**values, **variables}), "playbooks/provision.yml"]
    return command, {**os.environ, "ANSIBLE_CONFIG": "playbooks/ansible.cfg"}


def provision(at: Bare, folder: Path, **environment: str) -> Run:
    """One run, to its end or to its death."""
    command, around = words(at, folder)
    return Run(
        subprocess.run(command, cwd=ROOT, env={**around, **environment}, capture_output=True, text=True, check=False)
    )


def on_host(at: Bare, *command: str) -> str:
    return docker("exec", at.container, *command)


def outcome(at: Bare, folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "reports/provision.json").read_text())["hosts"][at.host]
    return found


@contextmanager
def lab(at: Bare) -> Iterator[None]:
    """The lab, as bare as it comes, and without torch, which would be most of every run's time."""
    down = [".venv/bin/gpucheck", "lab", "down", "--name", at.lab]
    subprocess.run(down, cwd=ROOT, check=True, capture_output=True)
    try:
        up = [".venv/bin/gpucheck", "lab", "up", "--name", at.lab, "--subnet", at.subnet, *at.up]
        done = subprocess.run(up, cwd=ROOT, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        wish = at.folder / "stack.yml"
        wish.write_text(yaml.safe_dump({**yaml.safe_load(wish.read_text()), "torch": "none"}))
        yield
    finally:
        subprocess.run(down, cwd=ROOT, check=True, capture_output=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Iterator[Path]:
    with lab(APT):
        yield tmp_path_factory.mktemp("cut")


@pytest.fixture(scope="module")
def steps(folder: Path) -> list[str]:
    return killed_after_every_step(APT, folder)


def killed_after_every_step(at: Bare, folder: Path) -> list[str]:
    """Provision a bare host by runs that each die after one more step, until one gets to the end. Their steps."""
    kept = folder / "steps"
    killing = {
        "ANSIBLE_CALLBACK_PLUGINS": "tests/lab/plugins",
        "ANSIBLE_CALLBACKS_ENABLED": "gpucheck.provision.host_summary,kill_after_change",
        "GPUCHECK_TEST_STEPS": str(kept),
    }
    for _ in range(MOST_STEPS):
        run = provision(at, folder, **killing)
        if run.status != -9:
            assert run.status == 0, f"after {kept.read_text()}: {run.text}"
            return kept.read_text().splitlines()
    raise AssertionError(f"still not done after {MOST_STEPS} deaths: {kept.read_text()}")


def converged(at: Bare, folder: Path, steps: list[str], holds: str) -> None:
    """Every role was cut off once, and the host is as planned all the same."""
    for role in ("repository", "packages", "driver", "reboot", "gpucheck"):
        assert any(step.startswith(f"{role} : ") for step in steps), steps
    # After its last step the host was as planned: the run that got to the end had nothing left to do.
    assert steps[-1] == "Record what is installed"
    assert outcome(at, folder)["state"] == "unchanged"
    assert on_host(at, "modinfo", "-F", "version", "nvidia") == "580.178.04"
    for name in ("nccl", "cudnn", "nvidia-container-toolkit"):
        assert name in holds
    report = json.loads(on_host(at, "/opt/gpucheck/bin/gpucheck", "verify", "--format", "json", "--only", "stack"))
    assert report["verdict"] == "pass"


@pytest.mark.fault("every step that changes something on an apt host", "the controller is killed right after it")
def test_a_controller_that_dies_after_every_step_leaves_an_apt_host_that_converges(steps, folder):
    converged(APT, folder, steps, on_host(APT, "apt-mark", "showhold"))


@pytest.mark.fault("every step that changes something on a dnf host", "the controller is killed right after it")
def test_a_controller_that_dies_after_every_step_leaves_a_dnf_host_that_converges(tmp_path):
    with lab(DNF):
        steps = killed_after_every_step(DNF, tmp_path)
        converged(DNF, tmp_path, steps, on_host(DNF, "cat", "/etc/dnf/plugins/versionlock.list"))
        # dnf's own plugin reads the list that is written for it.
        assert "nvidia-container-toolkit" in on_host(DNF, "dnf", "--quiet", "versionlock", "list")


@pytest.fixture
def hanging(steps) -> Iterator[None]:
    """One package of the older driver that the mirror begins to send and never does: the lists are there, it is not."""
    wish = APT.folder / "stack.yml"
    kept = wish.read_text()
    wish.write_text(yaml.safe_dump({**yaml.safe_load(kept), "driver": OLD}))
    package = docker("exec", MIRROR, "sh", "-c", f"ls /srv/www/compute/cuda/repos/*/*/libnvidia-compute-580_{OLD}*.deb")
    docker("exec", MIRROR, "sh", "-c", f"mv {package} {package}.kept && mkfifo {package}")
    yield
    docker("start", MIRROR)
    docker("exec", MIRROR, "sh", "-c", f"[ -p {package} ] && mv {package}.kept {package} || :")


@pytest.mark.fault("apt's downloads", "the mirror dies in the middle of them")
def test_a_mirror_that_dies_in_the_middle_of_the_downloads_leaves_the_driver_and_the_next_run_converges(
    hanging, folder
):
    before = set(on_host(APT, "sh", "-c", "dpkg-query -W").splitlines())
    command, environment = words(APT, folder)
    running = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        asked = re.compile(rf"GET \S*libnvidia-[a-z]+\d*-580_{OLD}")
        until(lambda: bool(asked.search(mirror_log())), "apt to ask for the first package")
    finally:
        docker("kill", MIRROR)
        output, _ = running.communicate()
    run = Run(subprocess.CompletedProcess(command, running.returncode, output.decode(), ""))

    assert run.status != 0
    assert outcome(APT, folder)["state"] == "failed"
    assert "Failed to fetch" in " ".join(outcome(APT, folder)["failure"].split())
    # Downloads come before everything that moves a package, the pin on the version before included.
    assert set(on_host(APT, "sh", "-c", "dpkg-query -W").splitlines()) == before
    assert on_host(APT, "modinfo", "-F", "version", "nvidia") == "580.178.04"
    docker("start", MIRROR)
    docker("exec", MIRROR, "sh", "-c", "for f in $(find /srv/www -type p); do mv $f.kept $f; done")

    assert provision(APT, folder).status == 0
    assert on_host(APT, "modinfo", "-F", "version", "nvidia") == OLD


@pytest.mark.fault("between the downloads and the drain", "the controller is killed")
def test_a_controller_that_dies_between_preparation_and_drain_leaves_the_host_and_the_next_run_converges(
    steps, folder, tmp_path
):
    """Simulated and downloaded is everything by then; nothing is installed, removed or let go of."""
    wish = APT.folder / "stack.yml"
    now = on_host(APT, "modinfo", "-F", "version", "nvidia")
    wish.write_text(yaml.safe_dump({**yaml.safe_load(wish.read_text()), "driver": {OLD: NEW, NEW: OLD}[now]}))
    before = on_host(APT, "sh", "-c", "dpkg-query -W; apt-mark showhold")
    program, reached = tmp_path / "drain", tmp_path / "reached"
    program.write_text(f"#!/bin/sh\ntouch {reached}\nexec sleep 600\n")
    program.chmod(0o755)
    command, environment = words(APT, folder, drain_with="script", drain_command=[str(program)])
    running = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        until(reached.exists, "the drain to begin", 600)
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()

    assert on_host(APT, "sh", "-c", "dpkg-query -W; apt-mark showhold") == before
    assert on_host(APT, "modinfo", "-F", "version", "nvidia") == now
    assert provision(APT, folder).status == 0
    assert on_host(APT, "modinfo", "-F", "version", "nvidia") == {OLD: NEW, NEW: OLD}[now]


def mirror_log() -> str:
    """What the mirror was asked for."""
    done = subprocess.run(["docker", "logs", MIRROR], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr
