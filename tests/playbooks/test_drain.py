"""Draining against stand-ins for the schedulers' programs: what is called, in which order, and what is left alone."""

import json
import os
import shutil
import sys

import pytest

from tests.playbooks.modules import COLLECTION
from tests.playbooks.stubs import script
from tests.playbooks.test_runs import play
from tests.shared import sampled

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
  "scontrol --oneliner")
    # Several answers in a row stand in the file, the last one stays.
    state=$(head -n 1 "$STATES"); [ "$(wc -l <"$STATES")" -gt 1 ] && sed -i 1d "$STATES"
    echo "NodeName=node01 Arch=x86_64 $state" ;;
  "kubectl get") cat "$STATES" ;;
esac
exit "${STAND_IN_STATUS:-0}"
"""


@pytest.fixture
def drain(tmp_path, monkeypatch):
    """Run the role down and up again; returns the calls that the scheduler's programs got, and the run."""
    for name in ("scontrol", "squeue", "kubectl", "site-hosts"):
        script(tmp_path / name, STAND_IN)
    (tmp_path / "calls").touch()

    def run(*states, status="0", plays=PLAY, **variables):
        monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
        monkeypatch.setenv("STATES", str(tmp_path / "states"))
        answers = [state if "{" in state else f"State={state}" for state in states or ("IDLE",)]
        (tmp_path / "states").write_text("".join(answer + "\n" for answer in answers))
        monkeypatch.setenv("STAND_IN_STATUS", status)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        done = play(tmp_path, plays, "-e", json.dumps(variables))
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
    calls, done = drain("IDLE+DRAIN Reason=bad fan", drain_with="slurm")

    assert done.returncode == 0, done.stdout
    assert not any("update" in call for call in calls)


def test_slurm_node_that_still_has_a_job_is_waited_for(drain):
    """squeue prints nothing to a login that may not see the jobs of others."""
    calls, done = drain("MIXED+DRAIN", drain_with="slurm", drain_timeout_s=1)

    assert done.returncode == 2
    assert "Wait until Slurm shows the node as drained" in done.stdout
    assert calls.count("scontrol --oneliner show node node01") > 1


def node(cordoned, **annotations):
    spec = {"unschedulable": True} if cordoned else {}
    return json.dumps({"metadata": {"name": "node01", "annotations": annotations}, "spec": spec})


OURS = {"gpucheck-drained": "yes"}


STATES = [node(False), node(True, **OURS), '{"metadata": {"name": "node01"}, "spec": {}}']


@pytest.mark.parametrize("state", sampled(STATES, (1,)))
def test_kubernetes_drains_and_uncordons(drain, state):
    """Also a node that an earlier run of ours cordoned and did not finish."""
    calls, done = drain(state, drain_with="kubernetes")

    assert done.returncode == 0, done.stdout
    assert calls[1:] == [
        "kubectl annotate node node01 gpucheck-drained=yes --overwrite",
        "kubectl drain node01 --ignore-daemonsets --delete-emptydir-data --timeout=20s",
        "kubectl uncordon node01",
        "kubectl annotate node node01 gpucheck-drained-",
    ]


def test_a_node_that_a_person_has_cordoned_stays_cordoned(drain):
    calls, done = drain(node(True, owner="ops"), drain_with="kubernetes", drain_arguments=["--force"])

    assert done.returncode == 0, done.stdout
    assert calls[1:] == ["kubectl drain node01 --force --timeout=20s"]


@pytest.mark.parametrize(
    "state",
    sampled(
        ["IDLE+DRAIN Reason=gpucheck: driver change [root@2026-11-23T05:00:00]", "DOWN Reason=gpucheck: driver change"],
        (0,),
    ),
)
def test_slurm_node_that_an_earlier_run_drained_comes_back(drain, state):
    """A host that was late, or failed, and then succeeds: nobody else has drained it."""
    calls, done = drain(state, drain_with="slurm")

    assert done.returncode == 0, done.stdout
    assert calls[-1] == "scontrol update nodename=node01 state=resume"
    # A node that is down comes back by itself once slurmd answers, unless it is drained.
    assert any("state=drain" in call for call in calls) is state.startswith("DOWN")


@pytest.mark.more
def test_slurm_node_that_is_down_for_another_reason_stays_down(drain):
    calls, done = drain("DOWN*+NOT_RESPONDING Reason=Not responding", drain_with="slurm")

    assert done.returncode == 0, done.stdout
    assert not any("update" in call for call in calls)


WAITING = """
- hosts: node01
  connection: local
  gather_facts: false
  tasks:
    - include_role: {name: gpucheck.provision.drain}
      vars: {drain_action: look}
    - debug: {msg: "LOOK {{ drain_waiting | default('', true) }}{{ drain_ours }}"}
    - include_role: {name: gpucheck.provision.drain}
      vars: {drain_action: drain}
      when: drain_waiting == ''
    - debug: {msg: "END {{ drain_waiting }}"}
"""
ASK = "scontrol --oneliner show node node01"
DRAIN = "scontrol update nodename=node01 state=drain reason=gpucheck: driver change"
RESUME = "scontrol update nodename=node01 state=resume"
REBOOT = "scontrol reboot ASAP nextstate=DOWN reason=gpucheck: driver change node01"


@pytest.mark.parametrize(
    ("state", "busy"),
    sampled(
        [("IDLE+CLOUD+PLANNED", "leave"), ("DOWN Reason=gpucheck: driver change", "reboot")],
        (0,),
    ),
)
def test_a_free_node_is_drained_without_waiting(drain, state, busy):
    calls, done = drain(state, drain_with="slurm", plays=WAITING, drain_busy=busy, drain_reboot_due=True)

    assert done.returncode == 0, done.stdout
    assert calls == [ASK, ASK, DRAIN, ASK]
    assert "waiting" not in done.stdout


@pytest.mark.parametrize(
    ("state", "busy", "due", "reboots"),
    sampled(
        [
            ("MIXED", "leave", True, False),
            ("IDLE+COMPLETING", "leave", True, False),
            ("MIXED", "reboot", True, True),
            ("MIXED", "reboot", False, False),
            ("ALLOCATED+DRAIN Reason=bad fan", "reboot", True, False),
            ("ALLOCATED+DRAIN Reason=gpucheck: driver change", "reboot", True, True),
            ("MIXED+DRAIN+REBOOT_REQUESTED Reason=gpucheck: driver change", "reboot", True, False),
            ("IDLE+DRAIN+REBOOT_ISSUED Reason=gpucheck: driver change", "leave", True, False),
            ("", "reboot", True, False),
        ],
        (0, 2),
    ),
)
def test_a_node_with_jobs_waits_for_the_next_run(drain, state, busy, due, reboots):
    """A node whose state nobody knows is not taken for a free one."""
    calls, done = drain(state, drain_with="slurm", plays=WAITING, drain_busy=busy, drain_reboot_due=due)

    assert done.returncode == 0, done.stdout
    assert calls == [ASK, REBOOT] if reboots else [ASK]
    words = " ".join(done.stdout.split())
    shown = state.split()[0] if state else "unknown"
    assert f"LOOK node01: waiting, nothing was changed. Slurm shows node01 as {shown}, and" in words
    assert ("Slurm reboots it when its jobs have ended" in words) is (reboots or "REBOOT" in state)


@pytest.mark.parametrize(("busy", "then"), sampled([("leave", RESUME), ("reboot", REBOOT)], (0,)))
def test_a_job_that_began_between_look_and_drain_keeps_its_node(drain, busy, then):
    taken = "MIXED+DRAIN Reason=gpucheck: driver change"
    calls, done = drain(
        "IDLE", "IDLE", taken, drain_with="slurm", plays=WAITING, drain_busy=busy, drain_reboot_due=True
    )

    assert done.returncode == 0, done.stdout
    assert calls == [ASK, ASK, DRAIN, ASK, then]
    assert "END node01: waiting" in " ".join(done.stdout.split())


def test_only_slurm_tells_which_nodes_are_free(drain):
    calls, done = drain(drain_with="script", drain_command=["site-hosts"], drain_busy="leave")

    assert done.returncode == 2
    assert calls == []
    assert "drain_busy=leave requires drain_with=slurm, and drain_with is script" in " ".join(done.stdout.split())


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
    sampled(
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
        (1, 3),
    ),
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
    allow = json.dumps({"preflight_allow_busy_gpus": allowed, "ansible_python_interpreter": sys.executable})
    done = play(tmp_path, IDLE.format(plan={"schema": "gpucheck.plan/1"}), "-e", allow)

    assert (done.returncode == 0) is (reason == ""), done.stdout
    assert reason in " ".join(done.stdout.split())
