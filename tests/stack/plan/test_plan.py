"""The plan: what the golden files cannot say by themselves."""

import re
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest
import yaml

from gpucheck.knowledge.packages import packages
from gpucheck.repositories import check_plans
from gpucheck.repositories.fetching import saved
from gpucheck.stack import StackSpec, resolve_target, target_of
from gpucheck.stack.lock import lock
from gpucheck.stack.plan import NoSuchHost, Plan, plan, planned_set
from gpucheck.stack.rules.driver import r15_newer_kernel
from gpucheck.stack.spec import parse_spec
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


@pytest.mark.parametrize(
    ("gpu", "driver", "first", "works"),
    [
        ("H200 SXM", "550.54.15", "550.90.07", "550.90.07"),
        ("B300", "580.65.06", "580.82.07", "580.95.05"),
        ("GB300", "580.65.06", "580.82.07", "580.178.04"),
        ("RTX PRO 6000 Server", "575.51.02", "575.57.08", "575"),
        ("RTX 5080", "570.86.15", "570.86.16", "590"),
    ],
)
def test_a_release_older_than_the_first_with_this_gpu_is_refused(gpu, driver, first, works):
    """It installs, its module loads, and binds no GPU."""
    conflict = asked.refusal([gpu], "ubuntu-24.04", f"driver={driver}")

    assert conflict.rule == "R9"
    assert conflict.because.startswith(f"driver {driver} does not drive ")
    assert f"is {first} (open-readme:{first}" in conflict.between[0].fact
    assert conflict.change
    assert asked.answer([gpu], "ubuntu-24.04", f"driver={works}").driver.version.startswith(works)


@pytest.mark.parametrize(
    ("system", "gpus", "spec", "name"),
    [
        ("rocky-9", "h100-sxm5-x8", "driver: 575", "kmod-nvidia-open-dkms-3:575.64.05-1.el9"),
        ("debian-12", "h100-pcie-x2", "driver: 575.57.08", "nvidia-kernel-open-dkms=575.57.08-1"),
        ("debian-12", "v100-sxm2-x8", "driver: 575.57.08", "nvidia-kernel-dkms=575.57.08-1"),
        ("ubuntu-24.04", "v100-sxm2-x8", "driver: 575", "nvidia-dkms-575=575.64.05-0ubuntu1"),
    ],
)
def test_branch_575_is_planned_by_the_names_that_records_show(system, gpus, spec, name):
    """Records of debian12, rhel9 and ubuntu2404 have its packages. The advice against it was to take 570 or newer."""
    rows = planned(system, gpus, parse_spec(spec, "stack.yml")).components["driver"]["packages"]

    assert name in [row["spec"] for row in rows]


def test_torch_is_one_that_the_python_of_the_hosts_can_install():
    """Ubuntu 22.04 has Python 3.10 and no newer one that provisioning installs: pip found no torch 2.15 for it."""
    jammy, noble = (asked.answer(["H100 SXM"], os) for os in ("ubuntu-22.04", "ubuntu-24.04"))

    assert (jammy.torch.version, jammy.torch.python) == ("2.14.1", "3.10")
    assert any("torch 2.15.0 is newer and has no wheel for Python 3.10" in row.because for row in jammy.reasons)
    assert (noble.torch.version, noble.cudnn, noble.nccl) == ("2.15.0", jammy.cudnn, jammy.nccl)
    assert asked.answer(["H100 SXM"], "ubuntu-22.04", "torch=2.15").torch.python == "3.12"
    assert asked.answer(["H100 SXM"], "rocky-8").torch.python == "3.12"


def test_the_advice_for_an_ended_system_is_the_next_release_of_it():
    assert asked.refusal(["T4"], "debian-11").try_.startswith("a newer release, such as debian-12: NVIDIA has no")
    assert asked.refusal(["T4"], "centos-stream-8").try_.startswith("a newer release, such as rocky-9; or ")


@pytest.mark.parametrize(("branch", "next_"), [("545", "550"), ("560", "570")])
def test_the_advice_for_a_branch_without_names_is_the_next_one_that_has_them(branch, next_):
    spec = parse_spec(f"driver: {branch}\nkernel_module: proprietary", "stack.yml")
    conflict = asked.rejected(spec, "rocky-9", "a100-sxm4-x8")

    assert conflict.try_ == f"driver {next_} or newer in stack.yml"


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
    report = check_plans([found], saved(tmp_path), datetime.now(timezone.utc))

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
