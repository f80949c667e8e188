"""The merge of a run expects every host of the run, by the inventory's names."""

import json

from tests.playbooks.modules import PLAYBOOKS
from tests.playbooks.stubs import script
from tests.playbooks.test_runs import play

PLAY = """
- hosts: gpu
  gather_facts: false
  tasks:
    - ansible.builtin.set_fact:
        verify_run: {{dest: "{{{{ controller_reports }}}}/{{{{ inventory_hostname }}}}.json"}}
      when: inventory_hostname != 'n2'
    - ansible.builtin.set_fact:
        gpu_facts_read: true
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.import_tasks: {tasks}
"""


def test_every_host_of_the_run_is_expected(tmp_path):
    """A host whose report bears another's name, or none came of, is a row all the same."""
    hosts = {name: {"ansible_connection": "local"} for name in ("n1", "n2")}
    reports = tmp_path / "reports"
    reports.mkdir()
    (reports / "n1.json").write_text("{}")
    stub = script(tmp_path / "gpucheck", f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/arguments\necho PASS\n')
    more = {"controller_reports": str(reports), "controller_build": str(tmp_path), "controller_gpucheck": stub}
    plays = PLAY.format(tasks=PLAYBOOKS / "tasks" / "merge.yml")
    done = play(tmp_path, plays, "-e", json.dumps(more), hosts=hosts)

    assert done.returncode == 0, done.stdout + done.stderr
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert arguments == [
        *("fleet", "report", f"{reports}/n1.json", f"{reports}/n2.json", "--expect-host=n1", "--expect-host=n2"),
        *("--write", f"{tmp_path}/fleet.json"),
    ]
    assert json.loads((reports / "n2.json").read_text())["host"] == "n2"
