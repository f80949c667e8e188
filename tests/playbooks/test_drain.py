"""Draining against stand-ins for the schedulers' programs: what is called, in which order, and what is left alone."""

import json
import os
import shutil
import sys

import pytest

from tests.playbooks.modules import COLLECTION
from tests.playbooks.test_runs import playbook

pytestmark = pytest.mark.slow

PLAY = """
- hosts: node01
  connection: local
  gather_facts: false
  vars: {drain_timeout_s: 20}
  tasks:
    - include_role: {name: gpucheck.provision.drain}
      vars: {drain_action: drain}
    - include_role: {name: gpucheck.provision.drain}
      vars: {drain_action: undrain}
"""
STAND_IN = """#!/bin/sh
echo "$(basename "$0") $*" >>"$CALLS"
case "$(basename "$0") $1" in
  "scontrol --oneliner") echo "NodeName=node01 State=$NODE_STATE Reason=x" ;;
  "kubectl get") printf %s "$NODE_STATE" ;;
esac
exit "${STAND_IN_STATUS:-0}"
"""


@pytest.fixture
def drain(tmp_path, monkeypatch):
    """Run the role down and up again; returns the calls that the scheduler's programs got, and the run."""
    for name in ("scontrol", "squeue", "kubectl", "site-hosts"):
        (tmp_path / name).write_text(STAND_IN)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "calls").touch()
    (tmp_path / "play.yml").write_text(PLAY)

    def run(state="IDLE", status="0", **variables):
        monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
        monkeypatch.setenv("NODE_STATE", state)
        monkeypatch.setenv("STAND_IN_STATUS", status)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        done = playbook("node01,", "-e", json.dumps(variables), str(tmp_path / "play.yml"))
        return (tmp_path / "calls").read_text().splitlines(), done

    return run


def test_without_a_scheduler_nothing_is_called(drain):
    calls, done = drain()

    assert done.returncode == 0, done.stdout
    assert calls == []


def test_slurm_is_asked_drained_waited_for_and_resumed(drain):
    calls, done = drain(drain_with="slurm", drain_node="gpu-7")

    assert done.returncode == 0, done.stdout
    assert calls == [
        "scontrol --oneliner show node gpu-7",
        "scontrol update nodename=gpu-7 state=drain reason=gpucheck: driver change",
        "squeue --noheader --nodelist gpu-7",
        "scontrol --oneliner show node gpu-7",
        "scontrol update nodename=gpu-7 state=resume",
    ]


def test_a_node_that_a_person_has_drained_stays_drained(drain):
    calls, done = drain(state="IDLE+DRAIN", drain_with="slurm")

    assert done.returncode == 0, done.stdout
    assert not any("update" in call for call in calls)


def test_slurm_node_that_still_has_a_job_is_waited_for(drain):
    """squeue prints nothing to a login that may not see the jobs of others."""
    calls, done = drain(state="MIXED+DRAIN", drain_with="slurm", drain_timeout_s=1)

    assert done.returncode == 2
    assert "Wait until Slurm shows the node as drained" in done.stdout
    assert calls.count("scontrol --oneliner show node node01") > 1


def test_kubernetes_drains_and_uncordons(drain):
    calls, done = drain(state="", drain_with="kubernetes")

    assert done.returncode == 0, done.stdout
    assert calls[1:] == [
        "kubectl drain node01 --ignore-daemonsets --delete-emptydir-data --timeout=20s",
        "kubectl uncordon node01",
    ]


def test_a_node_that_a_person_has_cordoned_stays_cordoned(drain):
    calls, done = drain(state="true", drain_with="kubernetes")

    assert done.returncode == 0, done.stdout
    assert "kubectl uncordon node01" not in calls


def test_the_sites_program_gets_the_action_and_the_node(drain):
    calls, done = drain(drain_with="script", drain_command=["site-hosts", "--quiet"])

    assert done.returncode == 0, done.stdout
    assert calls == ["site-hosts --quiet drain node01", "site-hosts --quiet undrain node01"]


def test_a_host_that_cannot_be_drained_is_not_touched(drain):
    calls, done = drain(status="1", drain_with="script", drain_command=["site-hosts"])

    assert done.returncode == 2
    assert calls == ["site-hosts drain node01"]


IDLE = """
- hosts: node01
  connection: local
  gather_facts: false
  vars: {{ansible_become: false, preflight_idle_delay_s: 0, preflight_plan: {plan}}}
  tasks:
    - include_role: {{name: gpucheck.provision.preflight, tasks_from: idle.yml}}
"""


@pytest.mark.parametrize(
    ("busy", "allowed", "reason"),
    [
        ([], False, ""),
        (["dcgm-exporter (7)", "nvidia-device-p (8)"], False, ""),
        (["python (9)"], True, ""),
        (
            ["dcgm-exporter (7)", "python (9)"],
            False,
            "node01: these programs still use the GPUs: python (9). No package",
        ),
    ],
)
def test_programs_on_gpus_after_the_drain_stop_the_change(tmp_path, monkeypatch, busy, allowed, reason):
    stub = tmp_path / "library/collections/ansible_collections/gpucheck/provision"
    shutil.copytree(COLLECTION, stub)
    state = {"differences": {}, "components": {}, "reboot": [], "host": {"busy": busy}}
    source = stub / "plugins/modules/plan_state.py"
    text = source.read_text()
    options = {"host": {"type": "str"}, "plan": {"type": "dict"}}
    main = f"    AnsibleModule(argument_spec={options!r}).exit_json(changed=False, **{state!r})\n"
    head, _, _ = text.partition("def main():")
    source.write_text(head + 'def main():\n    """Stub."""\n' + main + '\n\nif __name__ == "__main__":\n    main()\n')
    monkeypatch.setenv("ANSIBLE_COLLECTIONS_PATH", str(tmp_path / "library/collections"))
    (tmp_path / "idle.yml").write_text(IDLE.format(plan={"schema": "gpucheck.plan/1"}))
    allow = json.dumps({"preflight_allow_busy_gpus": allowed, "ansible_python_interpreter": sys.executable})
    done = playbook("node01,", "-e", allow, str(tmp_path / "idle.yml"))

    assert (done.returncode == 0) is (reason == ""), done.stdout
    assert reason in " ".join(done.stdout.split())
