"""The reboot of a host that is late. Where Ansible runs on the host itself: lab/test_pull."""

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
