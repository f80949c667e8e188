"""The rollout over batches: failing hosts are passed over until they are too many, then no host is begun."""

import json
import re
import shutil

import pytest
import yaml

from tests.playbooks.hostile import Site, state
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


QUICK = """
- name: Verify it
  ansible.builtin.fail: {msg: "{{ inventory_hostname }}: does not pass the quick verification: FAIL driver"}
  when: inventory_hostname in unproven | default('') | split
"""
RETURN = """
- name: Return it
  ansible.builtin.set_fact:
    return_words: " Back on the set before."
    return_proven: "{{ inventory_hostname in returns | default('') | split }}"
"""


def roll_out(tmp_path, broken, serial=1, count=5, **variables):
    """What became of each host, and which of them were touched."""
    # The tasks that it includes are those next to it, and no variable names others.
    shutil.copy(PLAYBOOKS / "tasks/waiting.yml", tmp_path)
    # Where Ansible runs on the host itself, nothing returns; here all hosts are this machine.
    text = (
        (PLAYBOOKS / "tasks/rollout.yml").read_text().replace("default('ssh') != 'local'", "default('ssh') != 'none'")
    )
    (tmp_path / "rollout.yml").write_text(text)
    (tmp_path / "quick.yml").write_text(QUICK)
    (tmp_path / "return.yml").write_text(RETURN)
    (tmp_path / "prepare.yml").write_text(PREPARE.format(folder=tmp_path))
    (tmp_path / "deprovision.yml").write_text(CHANGE.format(folder=tmp_path))
    (tmp_path / "apply.yml").write_text(CHANGE.format(folder=tmp_path))
    plays = PLAY.format(playbooks=PLAYBOOKS, folder=tmp_path, serial=serial)
    note = f"{tmp_path}/drained-{{{{ inventory_hostname }}}}"
    known = json.dumps({"broken": broken, "drained_note": note, **variables})
    done = play(tmp_path, plays, "-e", known, hosts=[f"n{number}" for number in range(1, count + 1)])
    ends = dict(re.findall(r"^END (\w+) (\w+):", done.stdout, re.MULTILINE))
    return ends, {path.name for path in tmp_path.glob("n?")}, " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("marks", "active", "first", "limits", "why"),
    [
        # begun, done, waiting; "" begins.
        ("abcde abcd -", "fg", "", (20, 10), ""),
        (
            "abcde abc -",
            "fg",
            "",
            (20, 10),
            "2 of 5 hosts failed before (d, e), more than max_failing_percent=20 allows",
        ),
        ("abcde abc -", "fg", "", (40, 10), ""),
        ("abcde abc -", "fg", "", (40, 1), "2 of 5 hosts failed before (d, e), more than max_failing_hosts=1 allows"),
        # The fleet is larger than those that began: only these count. A host of this batch is at work.
        ("a - -", "b", "", (20, 10), "1 of 1 hosts failed before (a), more than max_failing_percent=20 allows"),
        ("abc ab -", "cd", "", (0, 0), ""),
        ("abc a bc", "d", "", (0, 0), ""),
        ("- - -", "a", "", (0, 0), ""),
        # A canary: the batch itself, one that passed, one that failed, was never begun, or waits for its jobs.
        ("- - -", "ab", "ab", (100, 10), ""),
        ("ab ab -", "cd", "ab", (100, 10), ""),
        ("ab a -", "cd", "ab", (100, 10), "the first batch did not pass (b)"),
        ("a a -", "cd", "ab", (100, 10), "the first batch did not pass (b)"),
        ("ab a b", "cd", "ab", (100, 10), ""),
        ("ab - ab", "cd", "ab", (100, 10), "the first batch proved nothing, it waits for jobs (a, b)"),
    ],
)
def test_when_no_further_host_begins(marks, active, first, limits, why):
    hosts = [set(word) - {"-"} for word in marks.split()]

    said = mark.stop(dict(zip(mark.MARKS, hosts, strict=True)), list(active), list(first), *limits)

    assert said.startswith(why)
    assert bool(said) is bool(why)


def test_failing_hosts_stop_the_rest_before_it_begins(tmp_path):
    """One of five is a fifth of those that began, which may fail; the second one stops the rest."""
    ends, touched, words = roll_out(tmp_path, "n5 n6", count=8)

    assert {host for host, state in ends.items() if state == "failed"} == {"n5", "n6"}
    assert {host for host, state in ends.items() if state == "stopped"} == {"n7", "n8"}
    assert touched == {"n1", "n2", "n3", "n4", "n5", "n6"}
    assert "n5: Break down: no more space" in words
    assert "n7: not started, nothing was changed: 2 of 6 hosts failed before (n5, n6), more than" in words


@pytest.mark.more
def test_hosts_of_one_batch_do_not_count_for_each_other(tmp_path):
    """They are at work at the same time: which of them failed first is chance."""
    ends, touched, _ = roll_out(tmp_path, "n1 n2 n3", serial=5)

    assert touched == {"n1", "n2", "n3", "n4", "n5"}
    assert ends == {"n1": "failed", "n2": "failed", "n3": "failed", "n4": "changed", "n5": "changed"}


def on_scheduler(tmp_path, **more):
    """Variables of hosts that are drained by a program, which notes its calls, and whose driver changes."""
    text = f"#!/bin/sh\necho $* >>{tmp_path}/drained\nls {tmp_path}/prepared-* >>{tmp_path}/order\n"
    return {
        "drain_with": "script",
        "drain_command": [script(tmp_path / "drain", text)],
        "host_state": {"differences": {"driver": ["x"]}},
        "host_plan": {"repositories": []},
        "gpu_facts_read": {"facts": {"gpus": [1, 2]}},
        "preflight_allow_busy_gpus": True,
        **more,
    }


def test_a_host_returns_to_service_only_after_it_was_verified(tmp_path):
    """n1 does not pass, and so does not n2, which returns to its set before; n3 fails where none may be returned."""
    site = on_scheduler(tmp_path, unproven="n1 n2", returns="n2", max_failing_percent=100)
    ends, _, words = roll_out(tmp_path, "n3", serial=3, count=4, **site)
    drained = (tmp_path / "drained").read_text().splitlines()

    assert ends == {"n1": "failed", "n2": "failed", "n3": "failed", "n4": "changed"}
    assert [line for line in drained if "undrain" in line] == ["undrain n4"]
    reason = "does not pass the quick verification: FAIL driver. Back on the set before."
    assert f"n1: {reason} The host stays drained" in words
    assert f"n2: {reason}" in words
    assert f"n2: {reason} The host stays drained" not in words


def test_a_host_that_passed_keeps_its_set_if_the_scheduler_fails(tmp_path):
    """It would lose a driver that works, and perhaps while a person who has resumed it has jobs there."""
    site = on_scheduler(tmp_path, returns="n1")
    program = tmp_path / "drain"
    program.write_text(program.read_text() + 'case "$*" in "undrain n1") exit 1;; esac\n')
    ends, _, words = roll_out(tmp_path, "", serial=2, count=2, **site)

    assert ends == {"n1": "failed", "n2": "changed"}
    assert "n1: Resume the host with the configured program: " in words
    assert "Back on the set before." not in words
    assert "The host stays drained" in words


def test_the_kernels_run_on_every_host_that_is_drained_and_idle(tmp_path):
    """Also after a run that was interrupted: a GPU may be lost since."""
    (task,) = yaml.safe_load((PLAYBOOKS / "tasks/quick.yml").read_text())
    given = task["gpucheck.provision.gpu_verify"]
    text = "RUNS {{ inventory_hostname }} {{ seen }} {{ steps | join(' ') }} ."
    seen = {**task["vars"], "steps": given["only"], "seen": given["gpus"]}
    show = {"ansible.builtin.debug": {"msg": text}, "vars": seen}
    plays = [{"hosts": "gpu", "connection": "local", "gather_facts": False, "tasks": [show]}]
    idle = {"host_state": {"host": {"busy": []}}, "rollout_noted": 8}
    done = play(
        tmp_path,
        plays,
        hosts={
            "changed": {**idle, "rollout_changing": True, "rollout_gpus": 4},
            "again": {**idle, "drain_ours": True},
            "busy": {**idle, "drain_ours": True, "host_state": {"host": {"busy": ["python (7)"]}}},
            "serves": {**idle, "rollout_noted": 0},
        },
    )

    found = re.findall(r"RUNS (\w+) (\d+) (.*?) \.", " ".join(done.stdout.split()))
    assert {host: (int(gpus), "smoke-ddp" in steps) for host, gpus, steps in found} == {
        "changed": (4, True),
        "again": (8, True),
        "busy": (8, False),
        "serves": (0, False),
    }, done.stdout


GO_BACK = """
- hosts: gpu
  gather_facts: false
  vars_files: [{playbooks}/vars/outcome.yml, {playbooks}/vars/controller.yml, {playbooks}/vars/planned.yml]
  vars:
    host_plan: {{components: {{driver: {{packages: [new]}}}}}}
    drained_note: "{folder}/note"
  tasks:
    - block: [{{ansible.builtin.fail: {{msg: does not pass}}}}]
      rescue: [{{ansible.builtin.include_tasks: {playbooks}/tasks/return.yml}}]
    - ansible.builtin.debug: {{msg: "SAID{{{{ return_words }}}}"}}
"""


@pytest.mark.parametrize(("recorded", "returns"), [({"torch": None}, True), ({"torch": None, "cuda": "13.0"}, False)])
def test_a_host_returns_only_to_the_set_that_it_had_before_this_run(tmp_path, recorded, returns):
    """A repair, or another module option, leaves the set as it is: the one recorded before it may be of last year."""
    site = Site(tmp_path, {})
    site.host("n1")
    answers = json.loads((site.place("n1") / "answers.json").read_text())
    answers["gpu_facts"]["way_back"]["components"] = {"driver": {"packages": ["old"]}}
    answers["gpu_facts"]["way_back"]["stack"]["reasons"] = [{"because": "a text of several  lines"}]
    (site.place("n1") / "answers.json").write_text(json.dumps(answers))
    (tmp_path / "play.yml").write_text(GO_BACK.format(playbooks=PLAYBOOKS, folder=tmp_path))

    known = {"rollout_recorded": recorded, "plan_wheel": {"path": "/x/y.whl"}}
    done = site.run(str(tmp_path / "play.yml"), "-e", json.dumps(known))

    words = " ".join(done.stdout.split())
    assert ("no other set is recorded on it, from before this run" in words) is not returns, done.stdout + done.stderr
    assert ("plan_state" in site.asked("n1")) is returns


BUILD = """
- hosts: gpu
  gather_facts: false
  vars:
    driver_plan: {}
    packages_done:
      host:
        {module_planned: true, kernel: "6.8", kernels_without_module: ["6.9"], headers_present: true,
         driver: {installed_version: "580"}}
  tasks:
    - ansible.builtin.include_role: {name: gpucheck.provision.driver, tasks_from: build.yml, rolespec_validate: false}
"""


@pytest.mark.parametrize("left", [[], ["6.9"]])
def test_a_module_of_another_maker_that_does_not_build_is_no_fault_of_the_driver(tmp_path, left):
    """dkms autoinstall builds those of all makers, and exits with 11 if one of them fails."""
    site = Site(tmp_path, {})
    failed = {"rc": 11, "failed": True, "changed": True, "msg": "non-zero return code", "stderr": "zfs(10)"}
    seen = {**state({}), "host": {"kernels_without_module": left}}
    site.host("n1", command=failed, plan_state=seen)
    (tmp_path / "play.yml").write_text(BUILD)

    done = site.run(str(tmp_path / "play.yml"))

    assert site.asked("n1") == ["command", "plan_state"], done.stdout + done.stderr
    assert (done.returncode == 0) is (not left)
    assert ("did not build the planned module for 6.9" in " ".join(done.stdout.split())) is bool(left)


def test_the_driver_is_not_removed_below_a_program_that_the_scheduler_does_not_know(tmp_path):
    """The processes of a drained host are read again, also before a removal: its reboot would end them."""
    (tmp_path / "prepared-n0").touch()  # the program lists them
    site = on_scheduler(tmp_path, rollout_deprovision=True, preflight_allow_busy_gpus=False, preflight_idle_delay_s=0)
    ends, touched, words = roll_out(tmp_path, "", serial=1, count=1, **site)

    # This machine is no host of such a plan, so that the step that reads its processes fails.
    assert ends == {"n1": "failed"}
    assert touched == set()
    assert "END n1 failed: n1: its plan is not a gpucheck.plan/1 document" in words


def test_a_canary_that_does_not_pass_stops_the_rollout(tmp_path):
    site = {"rollout": {"first": ["n1"]}, "unproven": "n1", "max_failing_percent": 100}
    ends, touched, words = roll_out(tmp_path, "", serial=[1, 10], count=4, **site)

    assert ends == {"n1": "failed", "n2": "stopped", "n3": "stopped", "n4": "stopped"}
    assert touched == {"n1"}
    assert "n2: not started, nothing was changed: the first batch did not pass (n1). Repair" in words


def test_host_whose_transaction_is_refused_is_neither_drained_nor_changed(tmp_path):
    site = on_scheduler(tmp_path, refused="n1")
    ends, touched, words = roll_out(tmp_path, "", serial=3, count=3, **site)

    assert ends["n1"] == "failed"
    assert "n1: Refuse it: removes openmpi" in words
    assert touched == {"n2", "n3"}
    drained = (tmp_path / "drained").read_text().split()
    assert "n1" not in drained
    assert drained.count("n2") == 2  # down and up
    assert f"{tmp_path}/prepared-n2" in (tmp_path / "order").read_text()
