"""What ansible-playbook and ansible-lint themselves say. No host is contacted."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.playbooks.modules import PLAYBOOKS

BIN = Path(sys.executable).parent
# As over SSH, a module is given to the host's Python without a file.
HOST = {
    "ANSIBLE_PIPELINING": "1",
    "ANSIBLE_PYTHON_INTERPRETER": str(Path(__file__).with_name("host_python")),
    "TESTS_PYTHON": sys.executable,
}

# One that the inventory does not name would have the Python of Ansible itself.
LOCALHOST = {"localhost": {"ansible_connection": "local"}}


def environment(**more: str) -> dict[str, str]:
    """What Ansible runs in."""
    env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "NO_COLOR": "1", "ANSIBLE_NOCOLOR": "1"}
    return {**env, "ANSIBLE_CONFIG": str(PLAYBOOKS / "ansible.cfg"), **HOST, **more}


def run(*arguments: str, cwd: Path = PLAYBOOKS.parent, **more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        arguments, cwd=cwd, env=environment(**more), capture_output=True, text=True, timeout=1800, check=False
    )


def playbook(inventory: Path | str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return run(str(BIN / "ansible-playbook"), "-i", str(inventory), *arguments)


def play(folder: Path, plays: Any, *arguments: str, hosts: Any = ("node01",)) -> "subprocess.CompletedProcess[str]":
    """Run plays, as YAML text or as data, on these hosts of group gpu: names, or variables by name."""
    known = hosts if isinstance(hosts, dict) else dict.fromkeys(hosts)
    (folder / "play.yml").write_text(plays if isinstance(plays, str) else yaml.safe_dump(plays))
    (folder / "hosts.yml").write_text(yaml.safe_dump({"gpu": {"hosts": known}, "ungrouped": {"hosts": LOCALHOST}}))
    return playbook(folder / "hosts.yml", *arguments, str(folder / "play.yml"))


@pytest.mark.slow
def test_ansible_lint_is_content_at_its_strictest_profile():
    lint = shutil.which("ansible-lint", path=str(BIN))
    assert lint, "ansible-lint is not installed: make check installs the dev extra"
    done = run(lint, "--offline", "--strict", "--profile", "production", "--nocolor", "playbooks")

    assert done.returncode == 0, done.stdout + done.stderr


HOST01 = "gpu:\n  hosts:\n    node01: {}\n"
NO_HOST = ["no host in group gpu", "FOLDER/hosts.yml", "as in playbooks/inventory/example/hosts.yml"]
NO_PROGRAM = ("-e", "gpucheck_controller_executable=/nowhere/gpucheck")
BY_HOSTS = {"ANSIBLE_INJECT_FACT_VARS": "True"}


@pytest.mark.parametrize(
    ("inventory", "arguments", "more", "words"),
    [
        # Ansible itself would skip every play and end with success.
        ("all:\n  hosts:\n    node01: {}\n", (), {}, NO_HOST),
        ("gpu:\n  hosts: {}\n", (), {}, NO_HOST),
        (HOST01, NO_PROGRAM, {}, ["/nowhere/gpucheck: no such program"]),
        # A host could set what is run on the controller.
        (HOST01, (), BY_HOSTS, ["inject_facts_as_vars is on", "Nothing was changed"]),
        (HOST01.replace("node", "../node"), (), {}, ["host name '../node01' cannot be the name of a file"]),
    ],
)
def test_inventory_and_controller_that_are_unsuitable_are_refused_in_words(tmp_path, inventory, arguments, more, words):
    """Once, and not for every host."""
    (tmp_path / "hosts.yml").write_text(inventory)
    command = (str(BIN / "ansible-playbook"), "-i", str(tmp_path / "hosts.yml"), *arguments, "playbooks/verify.yml")

    done = run(*command, **more)

    said = " ".join(done.stdout.split())
    assert done.returncode == 2
    assert [one for one in words if one.replace("FOLDER", str(tmp_path)) not in said] == []
    assert "node01]" not in said.split("Fail if inventory or controller are unsuitable]")[1].split("PLAY RECAP")[0]


@pytest.mark.parametrize("path", sorted(PLAYBOOKS.glob("*.yml")), ids=lambda path: path.name)
def test_every_file_of_variables_that_a_play_names_is_there(path):
    """Ansible skips a missing one in a list without a word, and its variables are undefined much later."""
    plays = yaml.safe_load(path.read_text(encoding="utf-8")) or []

    missing = [name for play in plays for name in play.get("vars_files", []) if not (PLAYBOOKS / name).is_file()]

    assert missing == []
