"""The rollout over batches: failing hosts are passed over until they are too many, then no host is begun."""

import json
import re
import shutil

import pytest

from tests.playbooks.modules import PLAYBOOKS, action
from tests.playbooks.stubs import script
from tests.playbooks.test_runs import play

pytestmark = pytest.mark.slow

mark = action("rollout_mark")

PLAY = """
- hosts: gpu
  connection: local
  gather_facts: false
  strategy: free
  serial: {serial}
  vars_files: [{playbooks}/vars/outcome.yml]
  vars:
    ansible_become: false
    host_lock_folder: "{folder}/locks/{{{{ inventory_hostname }}}}"
    host_state: {{differences: {{nccl: [x]}}}}
  tasks:
    - import_tasks: {folder}/rollout.yml
- hosts: gpu
  gather_facts: false
  tasks:
    - ansible.builtin.debug:
        msg: >-
          END {{{{ inventory_hostname }}}} {{{{ host_outcome.state | default('changed') }}}}:
          {{{{ host_outcome.reason | default('') }}}}
"""
CHANGE = """
- name: Change it
  ansible.builtin.command:
    argv: [touch, "{folder}/{{{{ inventory_hostname }}}}"]
- name: Break down
  ansible.builtin.fail: {{msg: no more space}}
  when: inventory_hostname in broken.split()
"""
PREPARE = """
- name: Look at the transaction
  ansible.builtin.command:
    argv: [touch, "{folder}/prepared-{{{{ inventory_hostname }}}}"]
- name: Refuse it
  ansible.builtin.fail: {{msg: removes openmpi}}
  when: inventory_hostname in refused | default('') | split
"""


def roll_out(tmp_path, broken, serial=1, count=5, **variables):
    """What became of each host, and which of them were touched."""
    # The tasks that it includes are those next to it, and no variable names others.
    for name in ("rollout.yml", "waiting.yml"):
        shutil.copy(PLAYBOOKS / "tasks" / name, tmp_path)
    (tmp_path / "prepare.yml").write_text(PREPARE.format(folder=tmp_path))
    (tmp_path / "apply.yml").write_text(CHANGE.format(folder=tmp_path))
    plays = PLAY.format(playbooks=PLAYBOOKS, folder=tmp_path, serial=serial)
    known = json.dumps({"broken": broken, **variables})
    done = play(tmp_path, plays, "-e", known, hosts=[f"n{number}" for number in range(1, count + 1)])
    ends = dict(re.findall(r"^END (\w+) (\w+):", done.stdout, re.MULTILINE))
    return ends, {path.name for path in tmp_path.glob("n?")}, " ".join(done.stdout.split())


@pytest.mark.more
def test_one_failing_host_stops_nobody(tmp_path):
    ends, touched, words = roll_out(tmp_path, "n1")

    assert ends == {"n1": "failed", "n2": "changed", "n3": "changed", "n4": "changed", "n5": "changed"}
    assert touched == {"n1", "n2", "n3", "n4", "n5"}
    assert "n1: Break down: no more space" in words


def test_too_many_failing_hosts_stop_the_rest_before_it_begins(tmp_path):
    """Two of five are more than the fifth that may fail."""
    ends, touched, words = roll_out(tmp_path, "n1 n2")

    assert ends == {"n1": "failed", "n2": "failed", "n3": "stopped", "n4": "stopped", "n5": "stopped"}
    assert touched == {"n1", "n2"}
    assert "n3: not started, nothing was changed: 2 of 5 hosts failed before (n1, n2), more than" in words


@pytest.mark.more
def test_the_share_is_the_sites(tmp_path):
    ends, _, _ = roll_out(tmp_path, "n1 n2", max_failing_percent=40)

    assert ends["n5"] == "changed"


@pytest.mark.more
def test_hosts_of_one_batch_do_not_count_for_each_other(tmp_path):
    """They are at work at the same time: which of them failed first is chance."""
    ends, touched, _ = roll_out(tmp_path, "n1 n2 n3", serial=5)

    assert touched == {"n1", "n2", "n3", "n4", "n5"}
    assert ends == {"n1": "failed", "n2": "failed", "n3": "failed", "n4": "changed", "n5": "changed"}


def test_a_host_that_went_away_in_the_middle_counts_and_one_at_work_does_not(tmp_path):
    for state, hosts in (("begun", ("n1", "n2", "n3", "n4")), ("done", ("n1",))):
        (tmp_path / state).mkdir()
        for host in hosts:
            (tmp_path / state / host).touch()

    assert mark.failed_before(tmp_path, ["n4", "n5"]) == ["n2", "n3"]
    assert mark.failed_before(tmp_path / "nothing yet", ["n1"]) == []


def test_host_whose_transaction_is_refused_is_neither_drained_nor_changed(tmp_path):
    text = f"#!/bin/sh\necho $* >>{tmp_path}/drained\nls {tmp_path}/prepared-* >>{tmp_path}/order\n"
    site = {
        "refused": "n1",
        "drain_with": "script",
        "drain_command": [script(tmp_path / "drain", text)],
        "host_state": {"differences": {"driver": ["x"]}},
        "host_plan": {"repositories": []},
        "preflight_allow_busy_gpus": True,
    }
    ends, touched, words = roll_out(tmp_path, "", serial=3, count=3, **site)

    assert ends["n1"] == "failed"
    assert "n1: Refuse it: removes openmpi" in words
    assert touched == {"n2", "n3"}
    drained = (tmp_path / "drained").read_text().split()
    assert "n1" not in drained
    assert drained.count("n2") == 2  # down and up
    assert f"{tmp_path}/prepared-n2" in (tmp_path / "order").read_text()
