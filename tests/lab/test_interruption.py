"""Hosts whose controller dies after every single step, and one whose mirror dies while it downloads."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.lab.e2e import ROOT, Run, docker, until
from tests.lab.own_lab import ENVIRONMENT, OwnLab, outcomes
from tests.playbooks.stubs import script
from tests.playbooks.task_walk import changing_steps

pytestmark = pytest.mark.more_labs


APT = OwnLab("gpucheck-cut", os.environ.get("GPUCHECK_TEST_CUT_SUBNET", "10.213.51.0/24"))
DNF_SUBNET = os.environ.get("GPUCHECK_TEST_CUT_DNF_SUBNET", "10.213.52.0/24")
DNF = OwnLab("gpucheck-cut-dnf", DNF_SUBNET, "lab-dnf", options=())
MIRROR = f"{APT.name}-mirror"
OLD, NEW = "580.95.05", "580.178.04"
# More steps than a host has: a run that is never done is a failure, not a loop without end.
MOST_STEPS = 90
# What a host says whose record was removed by the run that was cut: nothing of ours is left.
NO_RECORD = "gpucheck has no record of what it installed"


def options(at: OwnLab) -> tuple[str, ...]:
    """Of ansible-playbook: this host alone, without the verification."""
    return ("--skip-tags", "verify", "--limit", f"{at.host},localhost")


def provision(at: OwnLab, folder: Path, playbook: str = "provision", **environment: str) -> Run:
    """Run a playbook on this host. confirm: what deprovision waits for."""
    more = {"preflight_minimum_free_gib": 1, "confirm": "yes"}
    return at.provision(folder, *options(at), environment=environment, playbook=playbook, **more)


def started(folder: Path, stdout: int, **more: Any) -> "subprocess.Popen[bytes]":
    """A run on the apt host, still running. more: variables, or start_new_session."""
    session = more.pop("start_new_session", False)
    command = APT.command(folder, *options(APT), preflight_minimum_free_gib=1, **more)
    return subprocess.Popen(
        command, cwd=ROOT, env=ENVIRONMENT, stdout=stdout, stderr=subprocess.STDOUT, start_new_session=session
    )


def outcome(at: OwnLab, folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = outcomes(folder)["hosts"][at.host]
    return found


@contextmanager
def lab(at: OwnLab) -> Iterator[None]:
    """The lab with bare hosts, and without torch, which would be most of every run's time."""
    with at.fresh():
        at.specify(torch="none")
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Iterator[Path]:
    with lab(APT):
        yield tmp_path_factory.mktemp("cut")


@pytest.fixture(scope="module")
def steps(folder: Path) -> list[str]:
    return killed_after_every_step(APT, folder)


def killed_after_every_step(at: OwnLab, folder: Path) -> list[str]:
    """Provision a bare host by runs that each die after one more step, until one gets to the end. Their steps."""
    return cut(at, folder, folder / "steps")


def cut(at: OwnLab, folder: Path, kept: Path, playbook: str = "provision", **more: str) -> list[str]:
    """Runs that each die at one more step, until one gets to the end. Their steps, which are kept in a file."""
    killing = {
        "ANSIBLE_CALLBACK_PLUGINS": "tests/lab/plugins",
        "ANSIBLE_CALLBACKS_ENABLED": "gpucheck.provision.host_summary,cut",
        "GPUCHECK_TEST_STEPS": str(kept),
        **more,
    }
    for _ in range(MOST_STEPS):
        run = provision(at, folder, playbook, **killing)
        if run.status != -9:
            assert run.status == 0 or NO_RECORD in run.plain, f"after {kept.read_text()}: {run.text}"
            return kept.read_text().splitlines()
    raise AssertionError(f"still not done after {MOST_STEPS} deaths: {kept.read_text()}")


def cut_in_the_middle(at: OwnLab, folder: Path, playbook: str) -> set[str]:
    """The same in the middle of every step of the playbooks that may change a host. The roles that were cut."""
    changing = folder / "changing"
    changing.write_text("".join(f"{step}\n" for step in changing_steps()))
    steps = cut(at, folder, folder / f"{playbook}-middle", playbook, GPUCHECK_TEST_CHANGING=str(changing))
    assert len(steps) == len(set(steps))
    return {step.partition(" : ")[0] for step in steps if " : " in step}


def converged(at: OwnLab, folder: Path, steps: list[str], holds: str) -> None:
    """Every role was cut off once, and the host is as planned all the same."""
    for role in ("repository", "packages", "driver", "reboot", "gpucheck"):
        assert any(step.startswith(f"{role} : ") for step in steps), steps
    # After its last step the host was as planned: the run that got to the end had nothing left to do.
    assert steps[-1] == "Record what is installed"
    assert outcome(at, folder)["state"] == "unchanged"
    assert at.on_host("modinfo", "-F", "version", "nvidia") == "580.178.04"
    for name in ("nccl", "cudnn", "nvidia-container-toolkit"):
        assert name in holds
    report = json.loads(at.on_host("/opt/gpucheck/bin/gpucheck", "verify", "--format", "json", "--only", "stack"))
    assert report["verdict"] == "pass"


@pytest.mark.fault("every step that changes something on an apt host", "the controller is killed right after it")
def test_a_controller_that_dies_after_every_step_leaves_an_apt_host_that_converges(steps, folder):
    converged(APT, folder, steps, APT.on_host("apt-mark", "showhold"))


@pytest.mark.fault("every step that changes something on a dnf host", "the controller is killed right after it")
def test_a_controller_that_dies_after_every_step_leaves_a_dnf_host_that_converges(tmp_path):
    with lab(DNF):
        steps = killed_after_every_step(DNF, tmp_path)
        converged(DNF, tmp_path, steps, DNF.on_host("cat", "/etc/dnf/plugins/versionlock.list"))
        # dnf's own plugin reads the list that is written for it.
        assert "nvidia-container-toolkit" in DNF.on_host("dnf", "--quiet", "versionlock", "list")
        changed_and_removed(DNF, tmp_path, "rpm -qa --qf '%{NAME}\\n'")


def changed_and_removed(at: OwnLab, folder: Path, listed: str) -> None:
    """Another set and then nothing, each by runs that are cut in the middle of every step."""
    now = at.on_host("modinfo", "-F", "version", "nvidia")
    other = {OLD: NEW, NEW: OLD}[now]
    at.specify(driver=other, cudnn="none")
    roles = cut_in_the_middle(at, folder, "provision")

    assert {"packages", "driver", "cleanup"} <= roles
    assert provision(at, folder).status == 0
    assert outcome(at, folder)["state"] == "unchanged"
    assert at.on_host("modinfo", "-F", "version", "nvidia") == other
    assert "cudnn" not in at.on_host("sh", "-c", listed)

    assert {"deprovision", "cleanup"} <= cut_in_the_middle(at, folder, "deprovision")
    assert not [name for name in at.on_host("sh", "-c", listed).split() if "nvidia" in name or "nccl" in name]
    assert at.on_host("sh", "-c", "ls -d /opt/gpucheck /etc/gpucheck || :") == ""


@pytest.fixture
def hanging(steps) -> Iterator[None]:
    """One package of the older driver that the mirror begins to send and never does: the lists are there, it is not."""
    APT.specify(driver=OLD)
    package = docker("exec", MIRROR, "sh", "-c", f"ls /srv/www/compute/cuda/repos/*/*/libnvidia-compute-580_{OLD}*.deb")
    docker("exec", MIRROR, "sh", "-c", f"mv {package} {package}.kept && mkfifo {package}")
    yield
    docker("start", MIRROR)
    docker("exec", MIRROR, "sh", "-c", f"[ -p {package} ] && mv {package}.kept {package} || :")


@pytest.mark.fault("apt's downloads", "the mirror dies in the middle of them")
def test_a_mirror_that_dies_in_the_middle_of_the_downloads_leaves_the_driver_and_the_next_run_converges(
    hanging, folder
):
    before = set(APT.on_host("sh", "-c", "dpkg-query -W").splitlines())
    running = started(folder, subprocess.PIPE)
    try:
        asked = re.compile(rf"GET \S*libnvidia-[a-z]+\d*-580_{OLD}")
        until(lambda: bool(asked.search(mirror_log())), "apt to ask for the first package")
    finally:
        docker("kill", MIRROR)
        output, _ = running.communicate()
    run = Run(subprocess.CompletedProcess(running.args, running.returncode, output.decode(), ""))

    assert run.status != 0
    assert outcome(APT, folder)["state"] == "failed"
    assert "Failed to fetch" in " ".join(outcome(APT, folder)["failure"].split())
    # Downloads come before everything that moves a package, the pin on the version before included.
    assert set(APT.on_host("sh", "-c", "dpkg-query -W").splitlines()) == before
    assert APT.on_host("modinfo", "-F", "version", "nvidia") == "580.178.04"
    docker("start", MIRROR)
    docker("exec", MIRROR, "sh", "-c", "for f in $(find /srv/www -type p); do mv $f.kept $f; done")

    assert provision(APT, folder).status == 0
    assert APT.on_host("modinfo", "-F", "version", "nvidia") == OLD


@pytest.mark.fault("between the downloads and the drain", "the controller is killed")
def test_a_controller_that_dies_between_preparation_and_drain_leaves_the_host_and_the_next_run_converges(
    steps, folder, tmp_path
):
    """Simulated and downloaded is everything by then; nothing is installed, removed or let go of."""
    now = APT.on_host("modinfo", "-F", "version", "nvidia")
    APT.specify(driver={OLD: NEW, NEW: OLD}[now])
    before = APT.on_host("sh", "-c", "dpkg-query -W; apt-mark showhold")
    reached = tmp_path / "reached"
    program = script(tmp_path / "drain", f"#!/bin/sh\ntouch {reached}\nexec sleep 600\n")
    drain = {"drain_with": "script", "drain_command": [program]}
    running = started(folder, subprocess.DEVNULL, start_new_session=True, **drain)
    try:
        until(reached.exists, "the drain to begin")
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()

    assert APT.on_host("sh", "-c", "dpkg-query -W; apt-mark showhold") == before
    assert APT.on_host("modinfo", "-F", "version", "nvidia") == now
    assert provision(APT, folder).status == 0
    assert APT.on_host("modinfo", "-F", "version", "nvidia") == {OLD: NEW, NEW: OLD}[now]


def mirror_log() -> str:
    """What the mirror was asked for."""
    done = subprocess.run(["docker", "logs", MIRROR], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


# Last: it leaves the host without a driver.
@pytest.mark.fault("every step of a change and of the removal, both families", "the controller is killed in the middle")
def test_a_controller_that_dies_in_every_step_of_a_change_and_of_the_removal_converges(steps, folder):
    changed_and_removed(APT, folder, "dpkg-query -W -f '${Package}\\n'")
