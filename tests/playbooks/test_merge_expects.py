"""The merge of a run expects every host of the run, by the inventory's names."""

import json
import subprocess
import sys
from pathlib import Path

PLAYBOOKS = Path(__file__).parent.parent.parent / "playbooks"
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
    reports, stub = tmp_path / "reports", tmp_path / "gpucheck"
    reports.mkdir()
    (reports / "n1.json").write_text("{}")
    stub.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/arguments\necho PASS\n')
    stub.chmod(0o755)
    play, inventory = tmp_path / "play.yml", tmp_path / "inventory.json"
    play.write_text(PLAY.format(tasks=PLAYBOOKS / "tasks" / "merge.yml"))
    inventory.write_text(json.dumps({"gpu": {"hosts": hosts}}))
    more = {"controller_reports": str(reports), "controller_build": str(tmp_path), "controller_gpucheck": str(stub)}
    ansible = Path(sys.executable).parent / "ansible-playbook"
    done = subprocess.run(
        [ansible, "-i", inventory, play, "-e", json.dumps(more)],
        cwd=PLAYBOOKS, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert arguments == [
        *("fleet", "report", f"{reports}/n1.json", f"{reports}/n2.json", "--expect-host=n1", "--expect-host=n2"),
        *("--write", f"{tmp_path}/fleet.json"),
    ]
    assert json.loads((reports / "n2.json").read_text())["host"] == "n2"
