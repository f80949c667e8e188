"""Each playbook with each ansible-core that a controller may have, on a light host of the lab.

The oldest allowed, those of constraints.txt, and the newest on the package index, each with a Python of this machine.
"""

import json
import os
import re
import subprocess
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.lab.e2e import ROOT, Run
from tests.lab.own_lab import OwnLab

pytestmark = pytest.mark.more_labs

# GPUCHECK_TEST_CONTROLLERS_LAB names a lab with one light host that is up; it is left standing.
KEPT = os.environ.get("GPUCHECK_TEST_CONTROLLERS_LAB")
SUBNET = os.environ.get("GPUCHECK_TEST_CONTROLLERS_SUBNET", "10.213.54.0/24")
LAB = OwnLab(KEPT or "gpucheck-controllers", SUBNET)
UV = (str(ROOT / ".venv/bin/python"), "-m", "uv")
OLDEST = re.findall(r'"ansible-core>=([\d.]+)"', (ROOT / "pyproject.toml").read_text())[0]
PINNED = ("--constraint", str(ROOT / "constraints.txt"), "ansible-core")


class Controller(NamedTuple):
    """python: as uv finds it. packages: what is installed for it."""

    python: str
    packages: tuple[str, ...]


CONTROLLERS = {
    "oldest": Controller("3.10", (f"ansible-core=={OLDEST}",)),
    "pinned-3.10": Controller("3.10", PINNED),
    "pinned-3.11": Controller("3.11", PINNED),
    "pinned-3.12": Controller("3.12", PINNED),
    "newest": Controller(">=3.12", ("ansible-core",)),
}


def uv(*words: str) -> "subprocess.CompletedProcess[str]":
    pythons = [str(path) for path in sorted(Path.home().glob(".pyenv/versions/*/bin"))]
    environment = {**os.environ, "PATH": os.pathsep.join([os.environ["PATH"], *pythons])}
    return subprocess.run([*UV, *words], env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def host():
    with nullcontext() if KEPT else LAB.fresh():
        yield


@pytest.fixture(params=CONTROLLERS)
def controller(request, tmp_path):
    """The programs of an environment with that ansible-core; gpucheck is the one of this project."""
    wanted = CONTROLLERS[request.param]
    made = uv("venv", "--quiet", "--python", wanted.python, str(tmp_path / "venv"))
    if made.returncode:
        pytest.skip(f"no Python {wanted.python}: {made.stderr.strip()}")
    python = str(tmp_path / "venv/bin/python")
    done = uv("pip", "install", "--quiet", "--python", python, *wanted.packages, "pip", "setuptools>=77.0.1")
    assert done.returncode == 0, done.stderr
    return tmp_path / "venv/bin"


def test_every_playbook_runs(host, controller, tmp_path):
    """From a bare host to a bare host."""
    variables = {
        "gpucheck_controller_executable": str(ROOT / ".venv/bin/gpucheck"),
        "reports_dir": str(tmp_path / "reports"),
        "build_dir": str(tmp_path / "build"),
        "stack_lock": str(tmp_path / "stack.lock.yml"),
    }

    def run(playbook: str, *options: str, **more: str) -> Run:
        words = [str(controller / "ansible-playbook"), "-i", str(LAB.directory / "inventory.yml"), *options]
        words += ["-e", json.dumps({**variables, **more}), f"playbooks/{playbook}.yml"]
        environment = {**os.environ, "ANSIBLE_CONFIG": "playbooks/ansible.cfg"}
        environment["PATH"] = f"{controller}:{environment['PATH']}"
        done = Run(subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False))
        assert done.status == 0, f"{playbook} {' '.join(options)}\n{done.text[-6000:]}"
        return done

    for options in (("--check", "--diff"), (), ("--check", "--diff")):
        last = run("provision", *options)
    assert last.recap("light-001")["changed"] == 0
    assert (tmp_path / "reports/light-001.json").is_file()
    run("check")
    LAB.specify(nccl="none")
    run("provision", "--diff")
    run("rollback")
    LAB.specify(nccl="auto")
    run("verify")
    run("bundle", bundle_output=str(tmp_path / "bundle"))
    run("deprovision", "--check", "--diff")
    run("deprovision", confirm="yes")
    assert LAB.on_host("sh", "-c", "ls /etc/gpucheck/stack.json 2>/dev/null || :") == ""
