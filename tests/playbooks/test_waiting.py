"""Hosts that Slurm does not show as free: left for the next run, which is no failure, and taken up again by it."""

import json
import os

import pytest

from tests.playbooks.hostile import Site, report
from tests.playbooks.stubs import script
from tests.playbooks.test_rollout import roll_out

pytestmark = pytest.mark.slow

SCONTROL = """#!/bin/sh
for name; do :; done
case "$*" in *update*) name=${2#nodename=} ;; esac
echo "$*" >>CALLS
case "$1 $name" in
  "--oneliner n1"|"--oneliner busy") echo "NodeName=$name State=MIXED" ;;
  "--oneliner n2") echo "NodeName=n2 State=IDLE+DRAIN Reason=gpucheck-provision: driver change" ;;
  "--oneliner n3") echo "NodeName=n3 State=IDLE+DRAIN Reason=bad fan" ;;
  --oneliner*) echo "NodeName=$name State=IDLE" ;;
esac
"""


def stub(folder):
    """The directory of a scontrol that knows these nodes."""
    (folder / "bin").mkdir()
    script(folder / "bin/scontrol", SCONTROL.replace("CALLS", str(folder / "calls")))
    return folder / "bin"


def go(tmp_path, monkeypatch, **site):
    monkeypatch.setenv("PATH", f"{stub(tmp_path)}:{os.environ['PATH']}")
    known = {"drain_with": "slurm", "host_plan": {"repositories": []}, "preflight_allow_busy_gpus": True}
    known |= {"gpu_facts_read": {"facts": {"gpus": []}}, **site}
    ends, touched, words = roll_out(tmp_path, "", serial=5, **known)
    return ends, touched, words, (tmp_path / "calls").read_text().splitlines()


@pytest.mark.more
def test_a_host_that_we_drained_comes_back_though_it_needs_no_driver_any_more(tmp_path, monkeypatch):
    """The reboot took too long for the run before; everything but the record is as planned now."""
    late = {"differences": {"cleanup": ["cut off"]}, "host": {"cut_off": True}}
    ends, _, _, calls = go(tmp_path, monkeypatch, host_state=late)

    assert set(ends.values()) == {"changed"}
    assert [call for call in calls if call.startswith("update")] == ["update nodename=n2 state=resume"]


def test_a_host_that_passed_after_an_earlier_run_comes_back_though_nothing_differs_any_more(tmp_path, monkeypatch):
    """The scheduler was away when it was to return, or it was repaired by hand. n3 is drained for another reason."""
    for name in ("n1", "n2", "n3"):
        (tmp_path / f"drained-{name}").write_text("8\n")
    left = {"differences": {"drain": ["an earlier run drained the host"]}, "host": {"drained_gpus": "8"}}
    ends, _, _, calls = go(tmp_path, monkeypatch, host_state=left)

    assert set(ends.values()) == {"changed"}
    assert [call for call in calls if call.startswith("update")] == ["update nodename=n2 state=resume"]
    assert not list(tmp_path.glob("drained-n*"))


def test_the_drain_is_noted_on_the_host_until_it_is_back_in_service(tmp_path, monkeypatch):
    """n3 was drained by a person. n4 does not pass: its note is what the next run returns it to service by."""
    change = {"differences": {"driver": ["x"]}, "host": {"drained_gpus": ""}}
    more = {"drain_busy": "leave", "unproven": "n4", "max_failing_percent": 100}
    read = {"facts": {"gpus": [1, 2]}}
    ends, touched, words, calls = go(tmp_path, monkeypatch, host_state=change, gpu_facts_read=read, **more)

    assert ends == {"n1": "waiting", "n2": "changed", "n3": "changed", "n4": "failed", "n5": "changed"}
    assert (touched, (tmp_path / "prepared-n1").exists()) == ({"n2", "n3", "n4", "n5"}, False)
    assert "n1: waiting, nothing was changed. Slurm shows n1 as MIXED" in words
    updates = [call for call in calls if call.startswith("update")]
    assert not any("n1" in call or "n3" in call for call in updates)
    assert [call for call in updates if "n2" in call] == ["update nodename=n2 state=resume"]
    assert {path.name: path.read_text() for path in tmp_path.glob("drained-n*")} == {"drained-n4": "2\n"}


def test_a_node_without_a_driver_takes_no_jobs(tmp_path, monkeypatch):
    driver = {"differences": {"driver": ["everything is removed"]}}
    ends, touched, _, calls = go(tmp_path, monkeypatch, drain_busy="leave", host_state=driver, rollout_deprovision=True)

    assert ends.pop("n1") == "waiting"
    assert set(ends.values()) == {"changed"}
    assert touched == {"n2", "n3", "n4", "n5"}
    assert not [call for call in calls if "state=resume" in call]


@pytest.mark.more
def test_a_run_with_a_host_that_waits_ends_well(tmp_path):
    site = Site(tmp_path, report("x"))
    for name in ("busy", "free"):
        site.host(name)
    choice = json.dumps({"drain_with": "slurm", "drain_busy": "leave"})
    path = f"{stub(tmp_path)}:/usr/sbin:/usr/bin:/sbin:/bin"

    done = site.run("provision.yml", "-e", choice, PATH=path)

    found = site.document("reports/provision.json")
    assert {name: host["state"] for name, host in found["hosts"].items()} == {"busy": "waiting", "free": "changed"}
    assert found["hosts"]["busy"]["failure"] is None
    assert "Slurm shows busy as MIXED" in found["hosts"]["busy"]["waiting"]
    assert found["hosts"]["free"]["waiting"] is None
    assert "gpu_verify" not in site.asked("busy")
    assert not (tmp_path / "out/reports/busy.json").exists()
    assert "failed=1" not in done.stdout, done.stdout + done.stderr
    assert "1 changed, 1 waiting" in done.stdout


@pytest.mark.more
def test_a_run_in_which_every_host_waits_merges_nothing(tmp_path):
    site = Site(tmp_path, {})
    site.host("busy")
    choice = json.dumps({"drain_with": "slurm", "drain_busy": "leave"})

    done = site.run("provision.yml", "-e", choice, PATH=f"{stub(tmp_path)}:/usr/sbin:/usr/bin:/sbin:/bin")

    assert done.returncode == 0, done.stdout + done.stderr
    assert site.document("reports/provision.json")["counts"] == {"waiting": 1}
