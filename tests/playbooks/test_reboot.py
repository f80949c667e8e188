"""The reboot role where Ansible runs on the host itself: it says so, and reboots nothing."""

import json

import pytest

from tests.playbooks.stubs import script
from tests.playbooks.test_runs import play

pytestmark = pytest.mark.slow

PLAY = """
- hosts: gpu
  gather_facts: false
  tasks: [{include_role: {name: gpucheck.provision.reboot}}]
"""


def test_what_ansible_runs_on_is_not_rebooted_but_a_person_is_told(tmp_path):
    """And without a reason nothing is said."""
    hosts = {"node01": {"reboot_reasons": ["nouveau is loaded"]}, "node02": {}}
    # A command that would be seen: the real one must never run here.
    known = {"ansible_connection": "local", "reboot_command": f"touch {tmp_path}/rebooted"}

    done = play(tmp_path, PLAY, "-c", "local", "-e", json.dumps(known), hosts=hosts)

    assert done.returncode == 0, done.stdout
    assert not (tmp_path / "rebooted").exists()
    words = " ".join(done.stdout.split())
    assert "node01: reboot this host yourself (nouveau is loaded), then run again" in words
    assert words.count("yourself") == 1


def test_a_host_that_comes_back_late_is_told_from_a_broken_one_and_goes_on_in_the_next_run(tmp_path):
    """SSH is replaced by a shell on this machine, which never gets another boot id."""
    ssh = script(tmp_path / "ssh", '#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n')
    variables = {
        "ansible_connection": "ssh", "ansible_ssh_executable": ssh, "ansible_become": False,
        "ansible_ssh_args": "", "reboot_command": "true", "reboot_boot_time_command": "echo one",
        "reboot_timeout_s": 2, "reboot_reasons": ["nouveau is loaded"], "ansible_remote_tmp": str(tmp_path / "tmp"),
    }  # fmt: skip

    done = play(tmp_path, PLAY, "-e", json.dumps(variables))

    words = " ".join(done.stdout.split())
    assert done.returncode == 2, done.stdout + done.stderr
    assert "node01: rebooted (nouveau is loaded), but not reachable within 2 s" in words
    assert "run again: the next run continues where this one stopped" in words
