"""Hosts whose schedulers are stand-ins, and one run of the role drain over all of them."""

import json
import os
from itertools import count
from pathlib import Path

import pytest

from tests.playbooks.stubs import script
from tests.playbooks.test_runs import play

PLAY = """
- hosts: gpu
  connection: local
  gather_facts: false
  vars: {drain_timeout_s: 20}
  environment:
    PATH: "{{ programs }}"
    CALLS: "{{ folder }}/{{ inventory_hostname }}.calls"
    STATES: "{{ folder }}/{{ inventory_hostname }}.states"
    STAND_IN_STATUS: "{{ status }}"
    GPUCHECK_RUN: "me {{ folder }}/{{ inventory_hostname }}.lease"
  tasks:
    - block:
        - include_role: {name: gpucheck.provision.drain}
          vars: {drain_action: look}
          when: looks
        - debug: {msg: "LOOK {{ drain_waiting | default('', true) }}{{ drain_ours }}"}
          when: looks
        - include_role: {name: gpucheck.provision.drain}
          vars: {drain_action: drain}
          when: not looks or drain_waiting == ''
        - include_role: {name: gpucheck.provision.drain}
          vars: {drain_action: undrain}
          when: not looks
        - debug: {msg: "END {{ drain_waiting }}"}
        - debug: {msg: "BEFORE {{ inventory_hostname }}: {{ drain_before }}"}
      rescue:
        - debug:
            msg: "FAILED {{ inventory_hostname }} {{ ansible_failed_task.name }}: {{ ansible_failed_result.msg }}"
"""
STAND_IN = """#!/bin/sh
echo "$BECAME$(basename "$0") $*" >>"$CALLS"
case "$(basename "$0") $1" in
  "scontrol --oneliner")
    # Several answers in a row stand in the file, the last one stays.
    state=$(head -n 1 "$STATES"); [ "$(wc -l <"$STATES")" -gt 1 ] && sed -i 1d "$STATES"
    echo "NodeName=node01 Arch=x86_64 $state" ;;
  "kubectl get") cat "$STATES" ;;
esac
exit "$STAND_IN_STATUS"
"""
SUDO = """#!/bin/sh
# What stands after the user is what runs as that user.
while [ "$1" != -u ]; do shift; done
user=$2; shift 2
BECAME="$user " exec "$@"
"""
PROGRAMS = ("scontrol", "squeue", "kubectl", "site-hosts")
NUMBERS = count(1)


class Case:
    """A host: what its scheduler answers, and its variables. Once it ran: the calls that programs got, and the output.

    looks: the rollout looks at the node before it drains, and brings it back in another step. lease: seconds that the
    run's lock of the host is still valid.
    """

    def __init__(self, *states, status=0, looks=False, lease=0, **variables):
        self.lease = lease
        self.host = f"node{next(NUMBERS):02}"
        self.states = [state if "{" in state else f"State={state}" for state in states or ("IDLE",)]
        self.variables = {"status": status, "looks": looks, **variables}
        self.calls, self.words = [], ""

    @property
    def failed(self):
        """Whether a step failed."""
        return f"FAILED {self.host} " in self.words


def read(path):
    """The text of a file of the kernel."""
    return Path(path).read_text().strip()


def ran(folder, cases):
    """Run the role over these hosts."""
    for name in PROGRAMS:
        script(folder / name, STAND_IN)
    for case in cases.values():
        (folder / f"{case.host}.states").write_text("".join(state + "\n" for state in case.states))
        (folder / f"{case.host}.calls").touch()
        if case.lease:
            (folder / f"{case.host}.lease").mkdir()
            held = {"run": {"id": "me"}, "boot": read("/proc/sys/kernel/random/boot_id"), "lease_s": 600}
            held["until"] = float(read("/proc/uptime").split()[0]) + case.lease
            (folder / f"{case.host}.until").write_text(str(held["until"]))
            (folder / f"{case.host}.lease/run.lock").write_text(json.dumps(held))
    site = {"folder": str(folder), "programs": f"{folder}:{os.environ['PATH']}"}
    site["ansible_become_exe"] = script(folder / "sudo", SUDO)
    with pytest.MonkeyPatch.context() as patch:
        # The tests may be root themselves, and Ansible spares the way from root to root.
        patch.setenv("ANSIBLE_BECOME_ALLOW_SAME_USER", "1")
        hosts = {name: case.variables for name, case in cases.items()}
        done = play(folder, PLAY, "-e", json.dumps(site), hosts=hosts)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder / "output").write_text(done.stdout)
