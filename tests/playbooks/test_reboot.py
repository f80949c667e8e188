"""The reboot role where Ansible runs on the host itself: it says so, and reboots nothing."""

import json

import pytest

from tests.playbooks.test_runs import playbook

pytestmark = pytest.mark.slow

PLAY = """
- hosts: node01
  gather_facts: false
  tasks: [{include_role: {name: gpucheck.provision.reboot}}]
"""


def reboot(tmp_path, **variables):
    (tmp_path / "play.yml").write_text(PLAY)
    # A command that would be seen: the real one must never run here.
    variables["reboot_command"] = f"touch {tmp_path}/rebooted"
    done = playbook(
        "node01,",
        "-c",
        "local",
        "-e",
        json.dumps({"ansible_connection": "local", **variables}),
        str(tmp_path / "play.yml"),
    )
    return done, (tmp_path / "rebooted").exists()


def test_what_ansible_runs_on_is_not_rebooted_but_a_person_is_told(tmp_path):
    done, rebooted = reboot(tmp_path, reboot_reasons=["nouveau is loaded"])

    assert done.returncode == 0, done.stdout
    assert not rebooted
    assert "node01: reboot this machine yourself (nouveau is loaded), then run again" in " ".join(done.stdout.split())


def test_without_a_reason_nothing_is_said(tmp_path):
    done, rebooted = reboot(tmp_path)

    assert done.returncode == 0, done.stdout
    assert not rebooted
    assert "yourself" not in done.stdout
