"""The summary of a run: what became of each host, told from what Ansible tells a callback."""

import json
from types import SimpleNamespace as Thing

import pytest

from tests.playbooks.modules import plugin

summary = plugin("callback", "host_summary")


class Ended:
    """One task's end on one host, as Ansible hands it on."""

    def __init__(self, host, result, task="a task", action="ansible.builtin.set_fact"):
        self._host = Thing(get_name=lambda: host)
        self._result = result
        self._task = Thing(name=task, _uuid=f"{host}{task}", action=action)


@pytest.fixture
def callback(tmp_path):
    made = summary.CallbackModule()
    made.v2_playbook_on_start(Thing(_file_name="/x/playbooks/provision.yml"))
    manager = Thing(extra_vars={"reports_dir": str(tmp_path)})
    made.v2_playbook_on_play_start(Thing(get_variable_manager=lambda: manager, check_mode=False))
    return made


def planned(callback, host, differences):
    facts = {
        "host_plan": {"group": "rocky-9", "stack": {"cuda": "13.0.2", "reasons": []}},
        "host_state": {"differences": differences},
    }
    callback.v2_runner_on_ok(Ended(host, {"ansible_facts": facts}))


def document(callback, tmp_path):
    callback.write()
    return json.loads((tmp_path / "provision.json").read_text())


def test_every_kind_of_end_is_told_apart(callback, tmp_path):
    planned(callback, "same", {})
    planned(callback, "moved", {"driver": ["a", "b"], "nccl": ["c"]})
    callback.v2_runner_on_ok(Ended("moved", {"changed": True}, task="Install"))
    callback.v2_runner_on_ok(Ended("moved", {"changed": True, "rebooted": True}, task="Reboot"))
    callback.v2_runner_on_ok(Ended("moved", {"rollout": "done"}, action="gpucheck.provision.rollout_mark"))
    planned(callback, "halfway", {"driver": ["a"]})
    callback.v2_runner_on_unreachable(Ended("dead", {"msg": "no route"}))
    callback.v2_runner_on_failed(Ended("unsafe", {"msg": "raw words"}))
    outcome = {"state": "refused", "reason": "unsafe: Secure Boot is on"}
    callback.v2_runner_on_ok(Ended("unsafe", {"ansible_facts": {"host_outcome": outcome}}))

    found = document(callback, tmp_path)

    assert found["schema"] == "gpucheck.provision/1"
    assert {name: host["state"] for name, host in found["hosts"].items()} == {
        "same": "unchanged",
        "moved": "changed",
        "halfway": "in progress",
        "dead": "unreachable",
        "unsafe": "refused",
    }
    moved = found["hosts"]["moved"]
    assert (moved["reboots"], moved["changes"]) == (1, ["driver: a", "driver: b", "nccl: c"])
    assert moved["plan"] == {"cuda": "13.0.2"}
    assert found["hosts"]["unsafe"]["failure"] == "unsafe: Secure Boot is on"
    assert found["counts"]["changed"] == 1


def test_a_host_that_waits_is_no_failure_and_says_what_it_waits_for(callback, tmp_path):
    planned(callback, "busy", {"driver": ["a"]})
    outcome = {"state": "waiting", "reason": "busy: waiting, Slurm shows it as MIXED"}
    callback.v2_runner_on_ok(Ended("busy", {"ansible_facts": {"host_outcome": outcome}}))

    found = document(callback, tmp_path)["hosts"]["busy"]

    assert (found["state"], found["failure"], found["waiting"]) == ("waiting", None, outcome["reason"])
    assert f"  {outcome['reason']}" in callback.table().splitlines()


def test_check_mode_writes_nothing_and_says_what_would_change(callback, tmp_path):
    callback.check_mode = True
    planned(callback, "node", {"driver": ["a"]})

    callback.write()

    assert "would change" in callback.table()
    assert not (tmp_path / "provision.json").exists()


def test_the_table_of_a_fleet_leaves_out_what_nothing_happened_to(callback):
    """500 lines of `unchanged` hide the one that matters."""
    for number in range(25):
        planned(callback, f"same{number}", {})
    planned(callback, "moved", {"driver": ["a"]})
    callback.v2_runner_on_ok(Ended("moved", {"rollout": "done"}, action="gpucheck.provision.rollout_mark"))
    callback.v2_runner_on_unreachable(Ended("dead", {"msg": "no route"}))

    lines = callback.table().splitlines()

    assert [line.split()[0] for line in lines] == ["host", "moved", "dead", "dead:", "27"]
    assert "1 changed, 25 unchanged, 1 unreachable" in lines[-1]


def test_a_host_that_is_as_planned_is_known_from_its_reading_alone(callback, tmp_path):
    chosen = {"group": "rocky-9", "stack": {"cuda": "13.0.2"}}
    callback.v2_runner_on_ok(Ended("same", {"facts": {}, "recorded_set": chosen}))

    found = document(callback, tmp_path)["hosts"]["same"]

    assert (found["state"], found["group"], found["plan"]) == ("unchanged", "rocky-9", {"cuda": "13.0.2"})


def test_a_node_that_was_drained_before_is_named_with_the_reason(callback, tmp_path):
    planned(callback, "ill", {"driver": ["a"]})
    for before in ("", "IDLE+DRAIN, gpucheck:gpu-lost g2 contact-support", ""):
        callback.v2_runner_on_ok(Ended("ill", {"ansible_facts": {"drain_before": before}}))

    assert document(callback, tmp_path)["hosts"]["ill"]["drained_before"] == (
        "IDLE+DRAIN, gpucheck:gpu-lost g2 contact-support"
    )
    assert "ill: stays drained, was drained before: IDLE+DRAIN, gpucheck:gpu-lost" in callback.table()


def test_equal_reasons_are_one_line_and_a_jump_host_that_ended_the_connection_is_named(callback):
    said = "ssh: Connection closed by remote host\r\nConnection closed by UNKNOWN port 65535"
    for number in range(25):
        callback.v2_runner_on_unreachable(Ended(f"n{number:02}", {"msg": said}))

    (line,) = [line for line in callback.table().splitlines() if "ssh" in line]

    assert line.startswith("  n00, n01, n02, ")
    assert " and 5 more: unreachable: ssh: Connection closed by remote host Connection closed by UNKNOWN" in line
    assert " The connection ended at the jump host (ansible_ssh_common_args): log in there" in line
