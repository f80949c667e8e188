"""Which hosts the preflight refuses, and in which words. All cases are hosts of one run on this machine."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.playbooks.hostile import Site
from tests.playbooks.test_runs import playbook

pytestmark = pytest.mark.slow

GIB = 1 << 30
HOST: dict[str, Any] = {
    "busy": [], "secure_boot": False, "rivals": [], "foreign": [], "free_bytes": {}, "kernel": "6.1",
    "archive": None, "headers_missing": [], "refusals": [],
}  # fmt: skip
PLAY = """
- hosts: all
  gather_facts: false
  connection: local
  vars: {ansible_python_interpreter: "{{ ansible_playbook_python }}"}
  tasks: [{ansible.builtin.include_role: {name: gpucheck.provision.preflight}}]
"""


def case(
    manager: str = "apt", roles: tuple[str, ...] = ("driver",), packages: int = 1, stack: Any = None, **host: Any
) -> dict[str, Any]:
    """Variables of a host. packages: how many of driver and CUDA are still to be installed. stack: of the plan."""
    installing = {"packages": ["x"] * packages}
    return {
        "preflight_plan": {"package_manager": manager, "stack": stack or {}},
        "preflight_state": {
            "differences": {role: ["x"] for role in roles},
            "components": {"driver": installing, "cuda": {"packages": []}},
            "host": {**HOST, **host},
        },
    }


CASES: dict[str, dict[str, Any]] = {
    "good": case(),
    "el8": case("dnf", platform_python="3.6"),
    "el9": case("dnf", platform_python="3.9"),
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What preflight says of each case, "" where it lets the host through."""
    folder = tmp_path_factory.mktemp("preflight")
    (folder / "hosts.json").write_text(json.dumps({"gpu": {"hosts": CASES}}))
    (folder / "play.yml").write_text(PLAY)
    done = playbook(folder / "hosts.json", str(folder / "play.yml"))
    words = " ".join(done.stdout.split())
    assert "good" in words, done.stdout + done.stderr
    found = {
        name: re.search(rf"{name}: refused, nothing was changed: (.*?)(?= \S+: refused,| PLAY RECAP|$)", words)
        for name in CASES
    }
    return {name: match.group(1) if match else "" for name, match in found.items()}


@pytest.mark.parametrize("name", ["good", "el9"])
def test_hosts_that_nothing_stands_in_the_way_of_go_on(told, name):
    assert told[name] == ""


def test_an_el_8_host_is_refused_by_an_ansible_that_dropped_its_python(told):
    """Also with another interpreter: Ansible's own dnf module has to run in the Python that has dnf's bindings."""
    assert "has dnf's bindings in Python 3.6 only, which ansible-core" in told["el8"]
    assert "controller with Python 3.10" in told["el8"]


def test_a_host_whose_python_is_too_old_for_the_controller_is_told_so(tmp_path):
    """What ansible-core 2.19 answers on platform-python 3.6, seen in ansible/ansible#82068."""
    site = Site(tmp_path, {})
    site.host("old")
    site.host("good")
    python = Path(site.hosts["old"]["ansible_python_interpreter"])
    python.write_text(
        f"#!{sys.executable} -IS\nimport sys\nsys.stdin.read()\n"
        "sys.exit('SyntaxError: future feature annotations is not defined')\n"
    )

    done = site.run("provision.yml", "--check")

    words = " ".join(done.stdout.split())
    assert "old: its Python is too old for ansible-core" in words, done.stdout + done.stderr
    assert "a controller with Python 3.10" in words
    assert site.asked("good")[0] == "gpu_facts"
