"""The roles and modules as a collection, built, installed and used as somebody else would."""

import subprocess

import pytest

from tests.playbooks.modules import PLAYBOOKS
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


def test_the_collection_is_built_installed_and_used(tmp_path):
    """The role finds the collection's modules, the modules their shared code; a refusal comes out in words."""
    built = run(str(PLAYBOOKS / "collection/build"), str(tmp_path))
    assert built.returncode == 0, built.stdout + built.stderr
    (archive,) = tmp_path.glob("gpucheck-provision-*.tar.gz")
    installed = run(str(BIN / "ansible-galaxy"), "collection", "install", str(archive), "-p", str(tmp_path / "here"))
    assert installed.returncode == 0, installed.stdout + installed.stderr
    (tmp_path / "play.yml").write_text(PLAY)

    done: subprocess.CompletedProcess[str] = run(
        str(BIN / "ansible-playbook"),
        "-i",
        "localhost,",
        str(tmp_path / "play.yml"),
        cwd=tmp_path,
        ANSIBLE_CONFIG=str(tmp_path / "none.cfg"),
        ANSIBLE_COLLECTIONS_PATH=str(tmp_path / "here"),
    )

    words = " ".join(done.stdout.split())
    assert done.returncode == 2, done.stdout + done.stderr
    assert "driver packages of another source than NVIDIA's repository are installed: akmod-nvidia 1" in words
