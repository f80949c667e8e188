"""Tuning on a host: what differs is said and set, what this host does not let be set is left with its reason."""

import json

import pytest
import yaml

from tests.playbooks.modules import PLAYBOOKS, ROLES, shared
from tests.playbooks.stubs import put
from tests.playbooks.test_runs import play

tuning = shared("tuning")
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
GOVERNORS = "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"
NUMA = "/proc/sys/kernel/numa_balancing"


def plan(*live, files=()):
    rows = [{"path": path, "value": value, "name": name} for path, value, name in live]
    return {"tuning": {"files": list(files), "live": rows}}


@pytest.fixture
def root(tmp_path):
    """A machine with two CPUs that is not tuned."""
    for path, content in {
        NUMA: "1\n",
        THP: "[always] madvise never\n",
        GOVERNORS.replace("*", "0"): "powersave\n",
        GOVERNORS.replace("*", "1"): "performance\n",
    }.items():
        put(tmp_path, path, content)
    return tmp_path


def test_each_setting_that_differs_is_said_with_what_it_is_now(root):
    wanted = plan((NUMA, "0", "kernel.numa_balancing"), (THP, "madvise", "transparent huge pages"))

    assert tuning.differences(wanted, str(root)) == [
        "kernel.numa_balancing is 1, planned 0",
        "transparent huge pages is always, planned madvise",
    ]


def test_only_the_cpu_that_differs_is_set(root):
    ready, left = tuning.settings(plan((GOVERNORS, "performance", "the CPU governor")), str(root))

    assert [row["path"] for row in ready] == [str(root / GOVERNORS.replace("*", "0").lstrip("/"))]
    assert left == []


def test_a_kernel_without_the_setting_is_no_difference(root):
    wanted = plan(("/proc/sys/kernel/none", "1", "kernel.none"))

    assert tuning.differences(wanted, str(root)) == []
    assert tuning.state(wanted, str(root))["left"] == ["kernel.none: this kernel has no /proc/sys/kernel/none"]


def test_a_governor_that_the_processors_driver_lacks_is_left_and_said(root):
    """intel_pstate has no schedutil, and the kernel rejects it: the host failed after its driver had changed."""
    for cpu in "01":
        put(root, f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_available_governors", "performance powersave \n")

    state = tuning.state(plan((GOVERNORS, "schedutil", "the CPU governor")), str(root))

    assert state["live"] == []
    assert state["left"] == ["the CPU governor stays powersave: this host offers performance powersave"]
    assert len(tuning.state(plan((GOVERNORS, "performance", "the CPU governor")), str(root))["live"]) == 1


def test_what_a_container_may_not_set_is_left_and_said(root, monkeypatch):
    """/proc/sys is mounted read-only there."""
    monkeypatch.setattr(tuning.os, "access", lambda path, mode: False)
    wanted = plan((NUMA, "0", "kernel.numa_balancing"))
    assert "is not writable" in tuning.state(wanted, str(root))["left"][0]

    (root / ".dockerenv").touch()

    assert tuning.differences(wanted, str(root)) == []
    (left,) = tuning.state(wanted, str(root))["left"]
    assert left.startswith("kernel.numa_balancing stays 1: a container cannot change its host's kernel")


def test_a_file_that_was_changed_is_a_difference(root):
    path = root / "90-gpucheck.conf"
    wanted = plan(files=[{"path": str(path), "content": "a = 1\n", "mode": "0644"}])
    path.write_text("a = 1\n")
    path.chmod(0o644)
    assert tuning.differences(wanted, str(root)) == []

    path.write_text("a = 2\n")

    assert tuning.differences(wanted, str(root)) == [f"{path} is missing or different"]
    assert [row["path"] for row in tuning.wanted(wanted)["files"]] == [str(path)]


def test_a_plan_without_tuning_says_nothing(root):
    for empty in ({}, {"tuning": {}}):
        assert tuning.state(empty, str(root)) == {"wrong_files": [], "live": [], "left": []}
        assert tuning.wanted(empty)["files"] == []


@pytest.mark.parametrize(
    ("content", "value"),
    [("always [madvise] never\n", "madvise"), ("4096\t131072\t6291456\n", "4096 131072 6291456"), ("0\n", "0")],
)
def test_the_value_in_force_is_read_as_the_kernel_writes_it(content, value):
    assert tuning.current(content) == value


PLAY = """
- hosts: gpu
  connection: local
  gather_facts: false
  vars_files: [{playbooks}/vars/outcome.yml]
  tasks:
    - vars: {{ansible_become: false}}
      block: [{task}]
      rescue: [{{ansible.builtin.debug: {{msg: "{{{{ outcome_reason }}}}"}}}}]
"""


@pytest.mark.slow
def test_the_role_writes_each_setting_and_names_one_that_the_kernel_refuses(tmp_path):
    (task,) = (row for row in yaml.safe_load((ROLES / "tuning/tasks/main.yml").read_text()) if "loop" in row)
    live = {f"{tmp_path}/a 1": "4096 131072", f"{tmp_path}/b": "0", f"{tmp_path}/none/numa": "0", f"{tmp_path}/c": "0"}
    rows = [{"path": path, "value": value} for path, value in live.items()]
    known = json.dumps({"tuning_state": {"host": {"tuning": {"live": rows}}}})

    done = play(tmp_path, PLAY.format(playbooks=PLAYBOOKS, task=json.dumps(task)), "-e", known, hosts=["n1"])

    assert [(tmp_path / name).read_text().strip() for name in ("a 1", "b", "c")] == ["4096 131072", "0", "0"]
    assert f"tee: {tmp_path}/none/numa: No such file" in " ".join(done.stdout.split()), done.stdout
