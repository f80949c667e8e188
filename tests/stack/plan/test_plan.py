"""The plan: what the golden files cannot say by themselves."""

import re
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest
import yaml

from gpucheck.knowledge.packages import packages
from gpucheck.repositories import check_plans
from gpucheck.repositories.fetching import Saved
from gpucheck.stack import StackSpec, resolve_target, target_of
from gpucheck.stack.lock import lock
from gpucheck.stack.plan import NoSuchHost, Plan, plan, planned_set
from gpucheck.stack.rules.driver import r15_newer_kernel
from gpucheck.stack.stack_set import StackSet
from gpucheck.stack.text import plan_text, stack_text
from tests.stack import asked, recordings
from tests.stack.hosts import host


def planned(system, gpus, spec=None, **changes) -> Plan:
    """The plan; fails the test if it was refused."""
    return asked.planned(spec or StackSpec(), system, gpus, **changes)


@pytest.mark.parametrize(
    ("branch", "kernel", "newest"),
    [
        ("615", "7.2.0-1-generic", None),
        ("580", "7.2.0-1-generic", "7.1"),
        ("615", "7.4.0-1-generic", "7.2"),
        ("535", "7.4.0-1-generic", None),
    ],
)
def test_a_kernel_newer_than_any_that_a_branch_or_an_older_one_builds_on_is_stated(branch, kernel, newest):
    """No report of branch 615 was read; before 535 of no branch at all."""
    found = [reason.because for reason in r15_newer_kernel(branch, [kernel])]

    assert [f"newer than {newest};" in because for because in found] == [True] * (newest is not None)


def test_headers_belong_to_the_running_kernel_of_each_host():
    first = host("ubuntu-22.04", "t4-x1", "a", kernel="5.15.0-1-generic")
    second = host("ubuntu-22.04", "t4-x1", "b", kernel="5.15.0-2-generic")
    made = lock(StackSpec(), [first, second])

    one, all_of_them = plan(made, host="b"), plan(made, group="ubuntu-22.04-x86_64-1eb8x1")

    assert one.headers == ("linux-headers-5.15.0-2-generic",)
    assert all_of_them.headers == ("linux-headers-5.15.0-1-generic", "linux-headers-5.15.0-2-generic")


def test_nothing_of_the_toolkit_moves_by_an_unattended_upgrade():
    """Only cuda-toolkit-13-0 is held, and what it depends on has no fixed version."""
    files = {file["path"]: file["content"] for file in planned("ubuntu-24.04", "t4-x1").files}
    patterns = re.findall(r'"(.+)";', files["/etc/apt/apt.conf.d/51gpucheck-nvidia"])

    for name in ("libcublas-13-0", "libcufft-13-0", "libnvjitlink-13-0", "nsight-compute-2025.3.1", "gds-tools-13-0"):
        assert any(re.match(pattern, name) for pattern in patterns), name


def test_a_host_that_is_not_in_the_lock_is_named_with_those_that_are():
    made = lock(StackSpec(), [host("rocky-9", "t4-x1")])

    with pytest.raises(NoSuchHost, match=r"'other'.*node01"):
        plan(made, host="other")
    with pytest.raises(NoSuchHost, match="rocky-9-x86_64-1eb8x1"):
        plan(made, group="other")


def test_the_order_is_the_one_in_which_the_playbooks_apply_it():
    def roles_of(file: str) -> Iterator[str]:
        for task in yaml.safe_load((Path("playbooks/tasks") / file).read_text(encoding="utf-8")):
            if "ansible.builtin.include_role" in task:
                role = task["ansible.builtin.include_role"]["name"].removeprefix("gpucheck.provision.")
                # One transaction of several components, which the plan names one by one.
                yield from re.findall(r"'(\w+)'", task["vars"]["packages_components"]) if role == "packages" else [role]
            elif isinstance(task.get("ansible.builtin.include_tasks"), str):
                yield from roles_of(task["ansible.builtin.include_tasks"])

    roles = [*roles_of("prepare.yml"), *roles_of("apply.yml")]
    order = planned("rocky-9", "h100-sxm5-x8").order

    assert {"cuda", "nccl", "container_toolkit"} <= set(roles)
    assert tuple(role for role in roles if role in order) == order


@pytest.mark.parametrize("system", ["rocky-8", "rocky-9", "almalinux-10"])
def test_the_key_of_epel_is_the_one_that_documents_show(system):
    found = planned(system, "t4-x1")
    pinned = [
        row["fingerprint"] for row in recordings.document("keys") if row["folder"] == f"epel-{found.os['version']}"
    ]

    assert set(pinned) == {found.dkms_source["repository"]["key_fingerprint"]}


def test_the_python_that_is_needed_is_the_one_of_the_package():
    stated = re.search(r'requires-python = ">=([\d.]+)"', Path("pyproject.toml").read_text(encoding="utf-8"))

    assert stated
    assert stated[1] == packages().python.minimum


def test_the_controller_claims_nothing_about_managed_repositories_which_it_does_not_see(tmp_path):
    found = asked.planned("repositories: managed\n")
    report = check_plans([found], Saved(tmp_path), datetime.now(timezone.utc))

    assert report.verdict == "unknown"
    assert {row.state for row in report.groups[0].packages} == {"unknown"}
    assert report.groups[0].reasons == ()


def test_set_and_plan_list_unconfirmed_packages():
    target = target_of(["H100 SXM"] * 8, "rocky-9", nvswitches=4)
    found = resolve_target(target, StackSpec())
    assert isinstance(found, StackSet)
    told = planned_set(target, found, StackSpec())
    assert isinstance(told, StackSet)

    assert "nvidia-fabricmanager-620.70.06-1.el9" in {row.spec for row in told.unconfirmed}
    assert "unconfirmed, no record shows" in stack_text(told)
    assert "unconfirmed" not in stack_text(found)
    text = plan_text(planned("rocky-9", "h100-sxm5-x8"))
    assert "nvidia-fabricmanager-620.70.06-1.el9" in text.partition("not confirmed")[2].replace("\n    ", " ")
