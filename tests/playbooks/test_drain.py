"""Draining against stand-ins for the schedulers' programs: what is called, in which order, and what is left alone.

All cases are hosts of one run.
"""

import json
import os
from itertools import count
from pathlib import Path

import pytest

from tests.playbooks.stubs import script
from tests.playbooks.test_runs import play
from tests.shared import made_once, sampled

PLAY = """
- hosts: gpu
  connection: local
  gather_facts: false
  vars: {drain_timeout_s: "{{ wait_s | default(120) }}"}
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
    [ "$state" = State=FAILS ] && exit 1
    echo "NodeName=node01 Arch=x86_64 $state" ;;
  "squeue --noheader") grep -q FAILS "$STATES" && [ "$(grep -c squeue "$CALLS")" = 1 ] && exit 1 ;;
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
            held = {"run": {"id": "me"}, "boot": read("/proc/sys/kernel/random/boot_id"), "lease_s": 9000}
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


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def run(request, tmp_path_factory):
    """Run the role over the hosts of the tests of this file that run."""
    given = [item.callspec.params for item in request.session.items if item.path == request.path]
    cases = {case.host: case for params in given for case in params.values() if isinstance(case, Case)}
    folder = made_once(tmp_path_factory, "drain", lambda folder: ran(folder, cases))
    words = " ".join((folder / "output").read_text().split())
    for case in cases.values():
        case.calls, case.words = (folder / f"{case.host}.calls").read_text().splitlines(), words
    return folder


def on(*cases):
    """A test of each of these cases."""
    return pytest.mark.parametrize("case", cases)


@on(Case())
def test_without_a_scheduler_nothing_is_called(case):
    assert not case.failed
    assert case.calls == []


DRAINED = "IDLE+DRAIN Reason=gpucheck-provision: driver change"


@on(Case("IDLE", DRAINED, drain_with="slurm", drain_node="gpu-7"))
def test_slurm_is_asked_drained_waited_for_and_resumed(case):
    assert not case.failed
    assert case.calls == [
        "scontrol --oneliner show node gpu-7",
        "scontrol update nodename=gpu-7 state=drain reason=gpucheck-provision: driver change",
        "squeue --noheader --nodelist gpu-7",
        "scontrol --oneliner show node gpu-7",
        "scontrol --oneliner show node gpu-7",
        "scontrol update nodename=gpu-7 state=resume",
    ]


NOT_OURS = [
    "IDLE+DRAIN Reason=bad fan",
    "DOWN*+NOT_RESPONDING Reason=Not responding",
    # scontrol update state=fail: taken out of service by a person, because it is expected to fail.
    "IDLE+FAIL Reason=fan is slow [ops@2026-11-23T05:00:00]",
    "IDLE+DRAIN Reason=gpucheck:gpu-lost g2 contact-support [root@2026-11-23T05:00:00]",
    "IDLE+DRAIN Reason=gpucheck: driver change",
    "IDLE+DRAIN Reason=gpucheck-provision: driver change failed [ops@2026-11-23T05:00:00]",
    "IDLE+DRAIN Reason=bad fan [ops@2026-11-23T05:00:00] Comment=was Reason=gpucheck-provision: driver change",
]


@on(*sampled([Case(state, drain_with="slurm") for state in NOT_OURS], (0, 2, 3)))
def test_a_node_that_is_drained_or_down_for_another_reason_stays_so(case):
    assert not case.failed
    assert case.calls
    assert not any("update" in call for call in case.calls)
    reason = case.states[0].partition("Reason=")[2].partition(" [")[0]
    assert f"BEFORE {case.host}: {case.states[0].split()[0].removeprefix('State=')}, {reason}" in case.words


@on(Case("IDLE", "IDLE", "IDLE+DRAIN Reason=bad fan", drain_with="slurm"))
def test_a_node_that_somebody_else_drained_meanwhile_stays_drained(case):
    assert not case.failed
    assert not any("resume" in call for call in case.calls)
    assert f"BEFORE {case.host}: IDLE+DRAIN, bad fan" in case.words


@on(Case("MIXED+DRAIN Reason=gpucheck-provision: driver change", drain_with="slurm", wait_s=20))
def test_slurm_node_that_still_has_a_job_is_waited_for(case):
    """squeue prints nothing to a login that may not see the jobs of others."""
    assert f"{case.host}: jobs still run on {case.host} after drain_timeout_s=20 seconds" in case.words
    assert case.calls.count(f"scontrol --oneliner show node {case.host}") > 1


BUSY = "MIXED+DRAIN Reason=gpucheck-provision: driver change"


@on(Case("IDLE", BUSY, BUSY.replace("MIXED", "IDLE"), drain_with="slurm", lease=3000))
def test_each_round_of_the_wait_renews_the_lock_of_the_host(case, run):
    """It was valid for 3,000 s more, with a lease of 9,000 s; no step on the host came between."""
    assert not case.failed
    lease = json.loads((run / f"{case.host}.lease/run.lock").read_text())
    assert lease["run"]["id"] == "me"
    assert lease["until"] > float((run / f"{case.host}.until").read_text()) + 3000


@on(Case("IDLE", "FAILS", DRAINED, drain_with="slurm"))
def test_a_controller_of_slurm_that_is_away_for_a_moment_does_not_end_the_wait(case):
    """A restart or a failover in the hours that jobs take: the host was drained, and counted as failed."""
    assert not case.failed
    assert sum("squeue" in call for call in case.calls) > 1
    assert case.calls[-1] == resume(case)


@on(Case("IDLE", DRAINED, "IDLE", drain_with="slurm"))
def test_a_node_that_somebody_resumed_meanwhile_is_not_resumed_again(case):
    """Slurm rejects it: Invalid node state transition requested for node, from=IDLE to=RESUME."""
    assert not case.failed
    assert resume(case) not in case.calls
    assert f"BEFORE {case.host}: " in case.words


def node(cordoned, **annotations):
    spec = {"unschedulable": True} if cordoned else {}
    return json.dumps({"metadata": {"name": "node01", "annotations": annotations}, "spec": spec})


OURS = {"gpucheck-drained": "yes"}
REMOVED = "kubectl annotate node {} gpucheck-drained-"


STATES = [node(False), node(True, **OURS), '{"metadata": {"name": "node01"}, "spec": {}}']


@on(*sampled([Case(state, drain_with="kubernetes") for state in STATES], (1,)))
def test_kubernetes_drains_and_uncordons(case):
    """Also a node that an earlier run of ours cordoned and did not finish."""
    assert not case.failed
    assert case.calls[1:] == [
        f"kubectl annotate node {case.host} gpucheck-drained=yes --overwrite",
        f"kubectl drain {case.host} --ignore-daemonsets --delete-emptydir-data --timeout=120s",
        f"kubectl uncordon {case.host}",
        f"kubectl annotate node {case.host} gpucheck-drained-",
    ]


@on(Case(node(False, **OURS), drain_with="kubernetes", looks=True))
def test_a_node_that_is_in_service_again_is_not_taken_for_drained(case):
    """A run ended between uncordon and annotation. Its kernels must not run beside pods, nor may it undo a cordon."""
    assert not case.failed
    assert case.calls[:2] == [f"kubectl get node {case.host} --output json", REMOVED.format(case.host)]
    assert "LOOK False" in case.words


@on(Case(node(True, owner="ops"), drain_with="kubernetes", drain_arguments=["--force"]))
def test_a_node_that_a_person_has_cordoned_stays_cordoned(case):
    assert not case.failed
    assert case.calls[1:] == [f"kubectl drain {case.host} --force --timeout=120s"]


EARLIER = [
    "DOWN Reason=gpucheck-provision: driver change : reboot issued : reboot complete [root@2026-11-23T05:00:00]",
    "IDLE+DRAIN Reason=gpucheck-provision: driver change [root@2026-11-23T05:00:00]",
    "DOWN Reason=gpucheck-provision: driver change",
]


@on(*sampled([Case(state, drain_with="slurm") for state in EARLIER], (0,)))
def test_slurm_node_that_an_earlier_run_drained_comes_back(case):
    """A host that was late, or failed, and then succeeds: nobody else has drained it."""
    assert not case.failed
    assert case.calls[-1] == f"scontrol update nodename={case.host} state=resume"
    # A node that is down comes back by itself once slurmd answers, unless it is drained.
    assert any("state=drain" in call for call in case.calls) is ("DOWN" in case.states[0])


def looks(*states, busy, due=True):
    """A node that the rollout looks at first."""
    return Case(*states, looks=True, drain_with="slurm", drain_busy=busy, drain_reboot_due=due)


def ask(case):
    return f"scontrol --oneliner show node {case.host}"


def drained(case):
    return f"scontrol update nodename={case.host} state=drain reason=gpucheck-provision: driver change"


def resume(case):
    return f"scontrol update nodename={case.host} state=resume"


def reboot(case):
    return f"scontrol reboot ASAP nextstate=DOWN reason=gpucheck-provision: driver change {case.host}"


@on(
    *sampled(
        [
            looks("IDLE+CLOUD+PLANNED", busy="leave"),
            looks("DOWN Reason=gpucheck-provision: driver change", busy="reboot"),
        ],
        (0,),
    )
)
def test_a_free_node_is_drained_without_waiting(case):
    assert not case.failed
    assert case.calls == [ask(case), ask(case), drained(case), ask(case)]
    assert f"{case.host}: waiting" not in case.words


@pytest.mark.parametrize(
    ("case", "reboots"),
    sampled(
        [
            (looks("MIXED", busy="leave"), False),
            (looks("IDLE+COMPLETING", busy="leave"), False),
            (looks("MIXED", busy="reboot"), True),
            (looks("MIXED", busy="reboot", due=False), False),
            (looks("ALLOCATED+DRAIN Reason=bad fan", busy="reboot"), False),
            (looks("ALLOCATED+DRAIN Reason=gpucheck-provision: driver change", busy="reboot"), True),
            (looks("MIXED+DRAIN+REBOOT_REQUESTED Reason=gpucheck-provision: driver change", busy="reboot"), False),
            (looks("IDLE+DRAIN+REBOOT_ISSUED Reason=gpucheck-provision: driver change", busy="leave"), False),
            (looks("", busy="reboot"), False),
        ],
        (0, 2),
    ),
)
def test_a_node_with_jobs_waits_for_the_next_run(case, reboots):
    """A node whose state nobody knows is not taken for a free one."""
    assert not case.failed
    assert case.calls == [ask(case), reboot(case)] if reboots else [ask(case)]
    shown = case.states[0].removeprefix("State=").split(" ")[0] or "unknown"
    start = f"LOOK {case.host}: waiting, nothing was changed. Slurm shows {case.host} as {shown}, and"
    assert start in case.words
    said = case.words[case.words.index(start) :].split("Run again")[0]
    assert ("Slurm reboots it when its jobs have ended" in said) is (reboots or "REBOOT" in shown)


@pytest.mark.parametrize(
    ("case", "then"),
    sampled(
        [
            (looks("IDLE", "IDLE", "MIXED+DRAIN Reason=gpucheck-provision: driver change", busy=busy), then)
            for busy, then in (("leave", resume), ("reboot", reboot))
        ],
        (0,),
    ),
)
def test_a_job_that_began_between_look_and_drain_keeps_its_node(case, then):
    assert not case.failed
    assert case.calls == [ask(case), ask(case), drained(case), ask(case), then(case)]
    assert f"END {case.host}: waiting" in case.words


@on(Case(drain_with="script", drain_command=["site-hosts"], drain_busy="leave"))
def test_only_slurm_tells_which_nodes_are_free(case):
    assert case.failed
    assert case.calls == []
    assert f"{case.host}: drain_busy=leave requires drain_with=slurm, and drain_with is script" in case.words


@on(Case(drain_with="script", drain_command=["site-hosts", "--quiet"]))
def test_the_sites_program_gets_the_action_and_the_node(case):
    assert not case.failed
    assert case.calls == [f"site-hosts --quiet drain {case.host}", f"site-hosts --quiet undrain {case.host}"]


@on(Case(status=1, drain_with="script", drain_command=["site-hosts"]))
def test_a_host_that_cannot_be_drained_is_not_touched(case):
    assert case.failed
    assert case.calls == [f"site-hosts drain {case.host}"]


@pytest.mark.parametrize(
    ("case", "programs"),
    sampled(
        [
            (Case(state, **given, **become, drain_command=["site-hosts"]), programs)
            for state, given, programs in (
                ("IDLE", {"drain_with": "slurm"}, {"scontrol", "squeue"}),
                (node(False), {"drain_with": "kubernetes"}, {"kubectl"}),
                ("", {"drain_with": "script"}, {"site-hosts"}),
            )
            for become in ({"drain_become": True}, {})
        ],
        (0,),
    ),
)
def test_every_program_runs_as_root_where_the_site_says_so_and_else_none(case, programs):
    """On a Slurm controller only root and operators may drain; the become of the hosts says nothing about it."""
    become = "drain_become" in case.variables
    who = {tuple(call.split()[: 1 + become]) for call in case.calls}

    assert not case.failed
    assert who == {("root", name) if become else (name,) for name in programs}, case.calls
