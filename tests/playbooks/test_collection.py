"""The roles and modules as a collection, built, installed and used as somebody else would."""

import sys

import pytest

from tests.playbooks.modules import PLAYBOOKS
from tests.playbooks.stubs import script
from tests.playbooks.test_runs import BIN, run

pytestmark = pytest.mark.slow

PLAY = """
- hosts: localhost
  connection: local
  gather_facts: false
  vars: {ansible_python_interpreter: "{{ ansible_playbook_python }}"}
  tasks:
    - gpucheck.provision.gpu_facts: {host: here}
      register: read
    - ansible.builtin.assert: {that: "read.facts.schema == 'gpucheck.facts/1' and read.facts.host == 'here'"}
    - ansible.builtin.include_role: {name: gpucheck.provision.preflight}
      vars:
        preflight_plan: {package_manager: apt}
        preflight_state:
          differences: {driver: [x]}
          components: {driver: {packages: [x]}, cuda: {packages: []}}
          host:
            {busy: [], secure_boot: false, rivals: [], foreign: [akmod-nvidia 1], free_bytes: {}, headers_missing: [],
             archive: null}
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder that the collection is installed in."""
    folder = tmp_path_factory.mktemp("collection")
    built = run(str(PLAYBOOKS / "collection/build"), str(folder))
    assert built.returncode == 0, built.stdout + built.stderr
    (archive,) = folder.glob("gpucheck-provision-*.tar.gz")
    install = ("collection", "install", str(archive), "-p", str(folder / "here"))
    done = run(str(BIN / "ansible-galaxy"), *install, ANSIBLE_CONFIG=str(folder / "none.cfg"))
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "here"


def play(installed, tmp_path, text, **environment):
    """What a playbook of somebody else says, who has the collection installed and no configuration of ours."""
    (tmp_path / "play.yml").write_text(text)
    environment.update(ANSIBLE_CONFIG=str(tmp_path / "none.cfg"), ANSIBLE_COLLECTIONS_PATH=str(installed))
    arguments = ("-i", "localhost,", str(tmp_path / "play.yml"))
    done = run(str(BIN / "ansible-playbook"), *arguments, cwd=tmp_path, **environment)
    assert done.returncode == 2, done.stdout + done.stderr
    return " ".join(done.stdout.split())


def test_the_collection_is_built_installed_and_used(installed, tmp_path):
    """The role finds the collection's modules, the modules their shared code; a refusal comes out in words."""
    words = play(installed, tmp_path, PLAY)

    assert "driver packages of another source than NVIDIA's repository are installed: akmod-nvidia 1" in words


HOSTILE = """
- hosts: localhost
  connection: local
  gather_facts: false
  vars: {{ansible_python_interpreter: {folder}/python}}
  tasks:
    - {task}
      ignore_errors: true
    - ansible.builtin.include_role: {{name: gpucheck.provision.drain}}
      vars: {{drain_action: drain}}
"""
EVIL = """#!{python}
import json
evil = {{"drain_with": "script", "drain_command": ["touch", "{folder}/CANARY"]}}
print(json.dumps({{"changed": False, "missing": [], "unknown": "", "ansible_facts": evil}}))
"""


@pytest.mark.parametrize(
    ("task", "refusal"),
    [
        (
            "gpucheck.provision.gpu_facts: {host: here}",
            "field ansible_facts is not one of",
        ),
        ("ansible.builtin.file: {path: /nowhere}", "facts of the host set drain_command, drain_with, which only"),
    ],
)
def test_facts_of_a_host_run_nothing_where_ansible_takes_them_for_variables(installed, tmp_path, task, refusal):
    """A module of ours lets none through; what another module let through is refused by the role that would act."""
    script(tmp_path / "python", EVIL.format(python=sys.executable, folder=tmp_path))
    hostile = HOSTILE.format(folder=tmp_path, task=task)
    end = "    - ansible.builtin.fail: {msg: the end}\n"

    words = play(installed, tmp_path, hostile + end, ANSIBLE_INJECT_FACT_VARS="True")

    assert refusal in words
    assert not (tmp_path / "CANARY").exists()
