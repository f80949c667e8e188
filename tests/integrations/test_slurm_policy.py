"""docs/integrations/slurm: one policy file decides what is done to a node, and how many nodes at most."""

import os
import re
import subprocess
import time

import pytest
import yaml

from gpucheck.knowledge import causes
from gpucheck.knowledge.causes import actions
from tests.integrations.test_statuses import GPUCHECK, PAGES, RESUME
from tests.playbooks import stubs
from tests.playbooks.modules import ROLES

SLURM = PAGES / "slurm"
# As role drain of the playbooks has it.
PROVISIONING = yaml.safe_load((ROLES / "drain/vars/main.yml").read_text(encoding="utf-8"))["drain_reason"]
POLICY = (SLURM / "gpucheck-policy").read_text(encoding="utf-8")
# $NODES has the line of each node; an update changes the lines of this node, as slurmctld does.
SCONTROL = """#!/bin/sh
if [ "$1 $2" = "show node" ]; then grep "^NodeName=$3 " "$NODES"; exit; fi
if [ "$1 $2" = "show nodes" ]; then [ -z "${REFUSED:-}" ] || exit 1; cat "$NODES"; exit; fi
[ "$1" != show ] || exit 1
echo "$@" >>"$NOTES"
[ -z "${FAILS:-}" ] || exit 1
for word in "$@"; do
    case $word in
    State=RESUME) sed -i "s/^\\(NodeName=n5\\) State=[^ ]*.*/\\1 State=IDLE/" "$NODES" ;;
    State=*) state=${word#State=} ;;
    Reason=*) sed -i "s|^\\(NodeName=n5\\) State=[^ ]*.*|\\1 State=IDLE+$state $word|" "$NODES" ;;
    esac
done
[ -z "${MEANWHILE:-}" ] || echo "$MEANWHILE" >>"$NODES"
"""
TIMED = " [root@2026-11-20T10:00:00]"


@pytest.fixture
def slurm(tmp_path):
    """Run a script on node n5 with an answer of gpucheck; how it ended, and what scontrol was asked to change."""
    stubs.script(tmp_path / "gpucheck", GPUCHECK)
    stubs.script(tmp_path / "scontrol", SCONTROL)

    def run(script, *findings, verdict="fail", node="State=IDLE", others=(), policy=POLICY, tested=None, **more):
        notes, nodes = tmp_path / "notes", tmp_path / "nodes"
        notes.unlink(missing_ok=True)
        nodes.write_text("".join(f"NodeName={name} {state}\n" for name, state in (("n5", node), *others)))
        (tmp_path / "policy").write_text(policy)
        answer = "\\n".join((f"gpucheck.slurm/1 {verdict} {len(findings)}", *findings, "end", ""))
        status = ("pass", "warn", "fail", "unknown").index(verdict)
        if script == "gpucheck-prolog":
            (tmp_path / "results").mkdir(exist_ok=True)
            (tmp_path / "results/n5").write_text(answer.replace("\\n", "\n") + f"status {status}\n")
        if tested is not None:
            (tmp_path / "tests").mkdir(exist_ok=True)
            (tmp_path / "tests/n5").write_text(tested)
        environment = {
            "PATH": f"{tmp_path}:/usr/bin:/bin",
            "TEXT": answer,
            "STATUS": str(status),
            "GPUCHECK_SLURM_RESULTS": str(tmp_path / "results"),
            "GPUCHECK_SLURM_TESTS": str(tmp_path / "tests"),
            "NODES": str(nodes),
            "NOTES": str(notes),
            "SLURMD_NODENAME": "n5",
            "GPUCHECK_SLURM_POLICY": str(tmp_path / "policy"),
            **more,
        }
        done = subprocess.run([SLURM / script], env=environment, capture_output=True, text=True, check=False)
        return done, notes.read_text() if notes.exists() else ""

    return run


def finding(cause="nvlink-down", verdict="fail"):
    """As gpucheck prints it."""
    known = causes()[cause]
    return f"{verdict} {known.owner} {known.action} gpucheck:{cause} g2 {known.action}"


def reason(cause):
    return f"gpucheck:{cause} g2 {causes()[cause].action}"


def drain(cause="nvlink-down", state="DRAIN"):
    return f"update NodeName=n5 State={state} Reason={reason(cause)}\n"


def test_the_policy_is_the_table_of_actions():
    shipped = dict(re.findall(r"^action (\S+) (\S+)$", POLICY, re.M))
    assert shipped == {name: meaning.slurm for name, meaning in actions().items()}


def test_the_policy_names_known_causes_only():
    named = re.findall(r"^cause (\S+) ", POLICY, re.M)
    named += re.findall(r"^undrain-never (.*)$", POLICY, re.M)[0].split()
    assert set(named) <= set(causes())


def test_every_cause_that_the_user_owns_leaves_the_node(slurm):
    found = [finding(cause) for cause, known in causes().items() if known.owner == "user"]
    assert len(found) > 3
    for script in ("gpucheck-health", "gpucheck-prolog", "gpucheck-epilog"):
        done, changes = slurm(script, *found)
        assert (done.returncode, changes) == (0, "")


@pytest.mark.parametrize(("script", "status"), [("gpucheck-health", 0), ("gpucheck-prolog", 1), ("gpucheck-epilog", 0)])
def test_all_three_drain_for_the_same_reason(slurm, script, status):
    done, changes = slurm(script, finding())

    assert (done.returncode, changes) == (status, drain())


def test_only_the_health_check_sets_a_node_down(slurm):
    assert slurm("gpucheck-health", finding("power-cable-missing"))[1] == drain("power-cable-missing", "DOWN")
    assert slurm("gpucheck-prolog", finding("power-cable-missing"))[1] == drain("power-cable-missing")
    assert slurm("gpucheck-epilog", finding("power-cable-missing"))[1] == drain("power-cable-missing")


def test_the_first_finding_of_the_hardest_kind_is_the_reason(slurm):
    found = [finding("persistence-off"), finding("shm-too-small"), finding("pcie-errors"), finding("gpu-lost")]

    assert slurm("gpucheck-health", *found)[1] == drain("pcie-errors")


@pytest.mark.parametrize("script", ["gpucheck-health", "gpucheck-prolog", "gpucheck-epilog"])
def test_the_first_line_that_fits_decides(slurm, script):
    policy = f"cause nvlink-down nothing\n{POLICY}"

    done, changes = slurm(script, finding(), policy=policy)

    assert (done.returncode, changes) == (0, "")


def test_a_warning_drains_only_where_the_policy_has_it(slurm):
    warning = finding(verdict="warn")
    noted = f"update NodeName=n5 Comment={reason('nvlink-down')}\n"
    assert slurm("gpucheck-health", warning, verdict="warn")[1] == noted
    assert slurm("gpucheck-prolog", warning, verdict="warn")[1] == ""
    harder = POLICY.replace("warnings comment", "warnings drain")
    assert slurm("gpucheck-health", warning, verdict="warn", policy=harder)[1] == drain()


def test_what_could_not_be_checked_drains_nothing(slurm):
    done, changes = slurm("gpucheck-health", finding(verdict="unknown"), verdict="unknown")
    assert (changes, "the verdict is UNKNOWN" in done.stderr) == ("", True)
    assert slurm("gpucheck-prolog", finding(verdict="unknown"), verdict="unknown")[0].returncode == 0


def test_a_comment_of_somebody_else_stays(slurm):
    warning = finding(verdict="warn")
    assert slurm("gpucheck-health", warning, verdict="warn", node="State=IDLE Comment=lent")[1] == ""
    assert slurm("gpucheck-health", verdict="pass", node="State=IDLE Comment=lent")[1] == ""
    assert slurm("gpucheck-health", verdict="pass", node="State=IDLE Comment=gpucheck:x")[1].endswith(" Comment=\n")


# scontrol show node --oneliner of Slurm 22.05.8: the comment stands behind the reason.
REAL = (
    "Arch=x86_64 CoresPerSocket=1  CPUAlloc=0 State=IDLE+DRAIN ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A "
    "MCS_label=N/A Partitions=p  BootTime=2026-11-22T13:17:03 ExtSensorsTemp=n/s Reason=gpucheck:nvlink-down g2 17/18 "
    "reset-gpu [root@2026-11-23T07:11:02] Comment=gpucheck:persistence-off g0-1 change-setting"
)


def test_the_line_of_a_real_slurm_is_read(slurm):
    resumed = "update NodeName=n5 State=RESUME\n"
    assert slurm("gpucheck-health", verdict="pass", node=REAL)[1] == f"{resumed}update NodeName=n5 Comment=\n"
    theirs = REAL.replace("Reason=gpucheck:nvlink-down", "Reason=fan")
    assert slurm("gpucheck-health", finding(), node=theirs)[1] == ""
    same = finding("persistence-off", "warn").replace(" g2 ", " g0-1 ")
    assert slurm("gpucheck-health", same, verdict="warn", node=REAL)[1] == resumed


OURS = f"State=IDLE+DRAIN Reason=gpucheck:nvlink-down g2 17/18 reset-gpu{TIMED}"


@pytest.mark.parametrize(
    ("node", "policy", "changes"),
    [
        (OURS, POLICY, RESUME.replace("n1", "n5")),
        (OURS.replace("DRAIN", "DOWN"), POLICY, RESUME.replace("n1", "n5")),
        (OURS, POLICY.replace("undrain yes", "undrain no"), ""),
        (OURS.replace("nvlink-down", "data-corruption"), POLICY, ""),
        ("State=IDLE+DRAIN Reason=broken fan", POLICY, ""),
        ("State=IDLE+DRAIN Reason=see gpucheck:nvlink-down", POLICY, ""),
        ("State=IDLE+DRAIN Reason=gpucheck: driver change", POLICY, ""),
        ("State=DOWN Reason=Not responding", POLICY, ""),
        (f"State=IDLE+DRAIN Reason=broken fan{TIMED} Comment=was Reason=gpucheck:nvlink-down", POLICY, ""),
    ],
)
def test_a_healthy_node_is_resumed_as_the_policy_has_it(slurm, node, policy, changes):
    assert slurm("gpucheck-health", verdict="pass", node=node, policy=policy)[1] == changes


@pytest.mark.parametrize(
    ("state", "end", "found", "verdict"),
    [
        ("IDLE+DRAIN", TIMED, (), "pass"),
        ("DOWN", "", (finding("gpu-lost"),), "fail"),
        ("IDLE+DRAIN+REBOOT_ISSUED", f" : reboot issued{TIMED}", (), "pass"),
    ],
)
def test_a_node_that_provisioning_drained_is_left_to_it(slurm, state, end, found, verdict):
    """It is between two drivers: neither healthy nor ill."""
    node = f"State={state} Reason={PROVISIONING}{end}"

    for script in ("gpucheck-health", "gpucheck-epilog", "gpucheck-prolog"):
        assert slurm(script, *found, verdict=verdict, node=node)[1] == ""


def test_the_health_check_runs_nothing_while_provisioning_changes_the_node(slurm, tmp_path):
    slurm("gpucheck-health", finding(), node=f"State=IDLE+DRAIN Reason={PROVISIONING}{TIMED}")
    assert not (tmp_path / "results").exists()

    lock = tmp_path / "run.lock"
    lock.touch()
    assert slurm("gpucheck-health", verdict="pass", node=OURS, GPUCHECK_SLURM_LOCK=str(lock))[1] == ""
    assert not (tmp_path / "results").exists()
    os.utime(lock, (time.time() - 3700,) * 2)
    assert slurm("gpucheck-health", verdict="pass", node=OURS, GPUCHECK_SLURM_LOCK=str(lock))[1] == RESUME.replace(
        "n1", "n5"
    )


def test_a_cause_after_which_a_person_resumes_is_not_replaced(slurm):
    """The driver that is missing for an hour would make the node resumable."""
    node = f"State=IDLE+DRAIN Reason={reason('gpu-lost')}{TIMED}"
    assert slurm("gpucheck-health", finding("nvlink-down"), node=node)[1] == ""


@pytest.mark.parametrize("script", ["gpucheck-health", "gpucheck-epilog"])
def test_the_prolog_reads_what_the_others_left_and_runs_nothing(slurm, tmp_path, script):
    slurm(script, finding())
    kept = tmp_path / "results/n5"
    assert kept.stat().st_mode & 0o777 == 0o600
    text = kept.read_text()
    (tmp_path / "gpucheck").unlink()

    done, changes = slurm("gpucheck-prolog", finding())

    assert (done.returncode, changes) == (1, drain())
    assert done.stderr == f"gpucheck-prolog: n5: no job is started: {reason('nvlink-down')}\n"
    assert kept.read_text() == text


@pytest.mark.parametrize(
    ("minutes", "rights", "told"),
    [
        (121, 0o600, "the last result is older than max-age-minutes 120"),
        (0, 0o602, "have left no result since the boot"),
        (None, 0, "have left no result since the boot"),
    ],
)
def test_without_a_recent_result_of_root_the_job_starts(slurm, tmp_path, minutes, rights, told):
    slurm("gpucheck-prolog", finding())
    kept = tmp_path / "results/n5"
    if minutes is None:
        kept.unlink()
    else:
        kept.chmod(rights)
        os.utime(kept, (time.time() - 60 * minutes,) * 2)

    words = [SLURM / "gpucheck-prolog"]
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURMD_NODENAME": "n5", "NODES": str(tmp_path / "nodes")}
    environment |= {"GPUCHECK_SLURM_RESULTS": str(kept.parent), "GPUCHECK_SLURM_POLICY": str(SLURM / "gpucheck-policy")}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (0, "")
    assert (
        f"the job is started: {'gpucheck-health and gpucheck-epilog ' if 'left' in told else ''}{told}" in done.stderr
    )


def test_a_node_is_not_resumed_while_something_could_not_be_checked(slurm):
    found = finding("persistence-off", "warn"), finding("gpu-lost", "unknown")
    done, changes = slurm("gpucheck-health", *found, verdict="warn", node=OURS)

    assert "State=RESUME" not in changes
    assert "stays drained: 1 checks are UNKNOWN" in done.stderr


def test_the_reason_of_a_drained_node_follows_the_cause(slurm):
    assert slurm("gpucheck-health", finding("gpu-lost"), node=OURS)[1] == drain("gpu-lost")
    same = f"State=IDLE+DRAIN Reason={reason('nvlink-down')}{TIMED}"
    assert slurm("gpucheck-health", finding(), node=same)[1] == ""


def nodes(drained, healthy, by="gpucheck:gpu-lost"):
    """Nodes a0, a1, ... that are drained, and z0, z1, ... that are not."""
    return [
        *((f"a{i}", f"State=IDLE+DRAIN Reason={by}{TIMED}") for i in range(drained)),
        *((f"z{i}", "State=ALLOCATED") for i in range(healthy)),
    ]


@pytest.mark.parametrize(
    ("others", "is_drained"),
    [
        (nodes(0, 0), True),  # at least one node
        (nodes(1, 1), False),
        (nodes(1, 17), False),  # 10 % of 19
        (nodes(1, 18), True),  # 10 % of 20
        (nodes(2, 17), False),
        (nodes(9, 10, by="broken fan"), True),  # what others drained does not count
    ],
)
def test_the_share_of_drained_nodes_is_limited(slurm, others, is_drained):
    for script, status in (("gpucheck-health", 0), ("gpucheck-prolog", int(is_drained)), ("gpucheck-epilog", 0)):
        done, changes = slurm(script, finding(), others=others)

        assert (done.returncode, changes) == (status, drain() if is_drained else "")
        assert ("max-drained-percent 10 is reached" in done.stderr) == (not is_drained)


def test_of_nodes_that_drain_at_the_same_time_the_first_by_name_stays(slurm):
    others = nodes(0, 10)
    first, last = (f"NodeName={name} State=IDLE+DRAIN Reason=gpucheck:x none" for name in ("n1", "n9"))

    assert slurm("gpucheck-health", finding(), others=others, MEANWHILE=last)[1] == drain()
    done, changes = slurm("gpucheck-prolog", finding(), others=others, MEANWHILE=first)
    assert (done.returncode, changes) == (0, drain() + RESUME.replace("n1", "n5"))


@pytest.mark.parametrize("more", [{"REFUSED": "yes"}, {"FAILS": "yes"}])
def test_without_scontrol_the_node_stays_and_the_log_has_the_reason(slurm, more):
    done, _ = slurm("gpucheck-prolog", finding(), **more)

    assert done.returncode == 0
    assert "n5: not drained: " in done.stderr


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        (f"{POLICY}\nactoin reboot drain\n", "policy, line "),
        (f"{POLICY}\ncause x kill\n", "not understood: cause x kill"),
        (
            POLICY.replace("max-drained-percent 10", "max-drained-percent 110"),
            "not understood: max-drained-percent 110",
        ),
        (POLICY.replace("max-drained-percent 10", ""), "max-drained-percent is missing"),
        ("", "max-drained-percent is missing"),
    ],
)
def test_a_policy_that_is_not_understood_changes_no_node(slurm, policy, told):
    for script in ("gpucheck-health", "gpucheck-prolog", "gpucheck-epilog"):
        done, changes = slurm(script, finding(), policy=policy)

        assert (done.returncode, changes) == (0, "")
        assert told in done.stderr


def test_without_a_policy_nothing_is_done(slurm):
    done, changes = slurm("gpucheck-prolog", finding(), GPUCHECK_SLURM_POLICY="/nowhere")

    assert (done.returncode, changes) == (0, "")
    assert "left as it is: no policy /nowhere" in done.stderr


@pytest.mark.parametrize("kind", ["another user's", "everybody's", "FIFO", "link to another user's"])
@pytest.mark.parametrize("script", ["gpucheck-health", "gpucheck-prolog", "gpucheck-epilog"])
def test_a_policy_that_others_may_write_changes_no_node(slurm, tmp_path, script, kind):
    policy = tmp_path / "theirs"
    if kind == "FIFO":
        os.mkfifo(policy)
    else:
        policy.write_text(POLICY)
        policy.chmod(0o646 if kind == "everybody's" else 0o644)
    if "another" in kind:
        if os.geteuid() != 0:
            pytest.skip("only root can make it")
        os.chown(policy, 65534, 65534)
    if "link" in kind:
        policy = tmp_path / "link"
        policy.symlink_to("theirs")

    done, changes = slurm(script, finding(), GPUCHECK_SLURM_POLICY=str(policy))

    assert (done.returncode, changes) == (0, "")
    assert f"left as it is: {policy} is not a file of root" in done.stderr


def kept_test(*findings, verdict="fail", status=2):
    """A result of gpucheck-idle."""
    return "\n".join((f"gpucheck.slurm/1 {verdict} {len(findings)}", *findings, "end", f"status {status}", ""))


HERE = f"State=IDLE+DRAIN Reason={reason('nvlink-down')}{TIMED}"
SLOW = kept_test(finding())


@pytest.mark.parametrize(
    ("script", "found", "verdict", "test", "changes"),
    [
        ("gpucheck-health", (), "pass", SLOW, drain()),
        ("gpucheck-prolog", (), "pass", SLOW, drain()),
        ("gpucheck-epilog", (), "pass", SLOW, drain()),
        ("gpucheck-health", (finding("pcie-errors"),), "fail", SLOW, drain("pcie-errors")),
        ("gpucheck-health", (finding("shm-too-small"),), "warn", SLOW, drain()),
        ("gpucheck-health", (finding("pcie-errors", "unknown"),), "unknown", SLOW, drain()),
        ("gpucheck-health", (), "pass", kept_test(verdict="pass", status=0), ""),
        # One that is cut off does not count, and does not hide what is known.
        ("gpucheck-health", (), "pass", SLOW[:-9], ""),
        ("gpucheck-health", (finding("pcie-errors"),), "fail", SLOW[:-9], drain("pcie-errors")),
    ],
)
def test_the_last_test_of_an_idle_node_counts(slurm, script, found, verdict, test, changes):
    if verdict == "warn":
        found = tuple(one.replace("fail ", "warn ", 1) for one in found)
    assert slurm(script, *found, verdict=verdict, tested=test)[1] == changes


def test_quick_checks_do_not_resume_what_a_test_drained(slurm):
    assert slurm("gpucheck-health", verdict="pass", node=HERE, tested=SLOW)[1] == ""
    unsure = kept_test(finding(verdict="unknown"), verdict="unknown", status=3)
    assert slurm("gpucheck-health", verdict="pass", node=HERE, tested=unsure)[1] == ""


@pytest.mark.parametrize(
    ("node", "verdict", "changes"),
    [
        (HERE, "pass", "update NodeName=n5 State=RESUME\n"),
        (HERE, "unknown", ""),
        (f"State=IDLE+DRAIN Reason=broken fan{TIMED}", "pass", ""),
        ("State=IDLE", "fail", drain()),
    ],
)
def test_a_test_by_hand_replaces_the_last_one(slurm, tmp_path, node, verdict, changes):
    found = () if verdict == "pass" else (finding(verdict=verdict),)
    assert slurm("gpucheck-idle", *found, verdict=verdict, node=node, tested=SLOW)[1] == changes
    assert (tmp_path / "tests/n5").read_text().startswith(f"gpucheck.slurm/1 {verdict} ")


def test_a_test_without_a_result_leaves_the_last_one(slurm, tmp_path):
    done, changes = slurm("gpucheck-idle", tested=SLOW, STATUS="70")
    assert (done.returncode, changes, (tmp_path / "tests/n5").read_text()) == (1, "", SLOW)
