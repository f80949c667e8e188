import json
from typing import Any

import msgspec
import pytest

from gpucheck.checks.software import stack
from gpucheck.cli.stack.common import as_json
from gpucheck.model import DriverState, PackageVersion, Verdict
from tests.fakes import facts
from tests.machines import LOADED
from tests.stack.plan.test_plan import planned

PLAN: dict[str, Any] = {
    "schema": "gpucheck.plan/1",
    "stack": {"torch": {"version": "2.13.0+cpu"}},
    "components": {
        "driver": {"packages": [{"name": "libnvidia-compute-580", "version": "580.178.04-1"}], "holds": ["x"]},
        "nccl": {"packages": [{"name": "libnccl2", "version": "2.29.3-1+cuda12.9"}], "holds": ["libnccl2"]},
        "fabric_manager": {"packages": [], "holds": []},
    },
    "expected": {"driver_version": "580.178.04", "kernel_module": "proprietary"},
}
DRIVER_PACKAGE = PackageVersion(name="libnvidia-compute-580", version="580.178.04-1")
NCCL_PACKAGE = PackageVersion(name="libnccl2", version="2.29.3-1+cuda12.9", held=True)


def judge(plan=PLAN, *, packages=(DRIVER_PACKAGE, NCCL_PACKAGE), driver=LOADED, torch="2.13.0+cpu"):
    text = plan if isinstance(plan, str) else json.dumps(plan)
    python = {"torch": torch} if torch else {}
    host = facts(files={stack.PLAN: text}, packages=packages, driver=driver, python=python)
    return {str(finding.seen).split(":")[0]: finding for finding in stack.evaluate(host)}


@pytest.mark.parametrize(
    "plan",
    [
        "{",
        "[]",
        "{}",
        '{"schema": "gpucheck.plan/2", "components": {}}',
        {**PLAN, "stack": {"torch": ["2"]}},
        {**PLAN, "expected": [1]},
        {**PLAN, "components": {"driver": {"packages": [{"name": "x"}]}}},
        {**PLAN, "components": {"nccl": {"packages": [{"name": 5}]}}},
        {**PLAN, "components": {"nccl": {"packages": [{"name": "x", "version": ["1"]}], "holds": 3}}},
    ],
)
def test_damaged_plan_is_unknown(plan):
    (found,) = judge(plan, torch=None).values()

    assert (found.verdict, found.code) == (Verdict.UNKNOWN, "software.plan-unreadable")


@pytest.mark.parametrize("system", ["ubuntu-22.04", "rocky-9"])
def test_a_plan_as_provisioning_writes_it_is_read(system):
    found = judge(as_json(planned(system, "h100-sxm5-x8")), packages=(), torch=None)

    assert {"driver", "nccl", "fabric_manager"} <= set(found)


def test_package_without_a_published_record_is_named_as_unconfirmed_in_the_evidence():
    spec = "libnccl2=2.29.3-1+cuda12.9"
    unconfirmed = [{"component": "nccl", "spec": spec, "because": "no record shows it in ubuntu2204 for x86_64"}]
    found = judge({**PLAN, "unconfirmed": unconfirmed})

    text = f"unconfirmed when planned: {spec}: no record shows it in ubuntu2204 for x86_64"
    assert text in found["nccl"].evidence
    assert not any("unconfirmed" in line for line in found["driver"].evidence)
    assert found["nccl"].verdict is Verdict.PASS


def test_unconfirmed_package_is_named_also_if_it_differs():
    unconfirmed = [{"component": "nccl", "spec": "libnccl2=2.29.3-1+cuda12.9", "because": "no record shows it"}]
    found = judge({**PLAN, "unconfirmed": unconfirmed}, packages=(DRIVER_PACKAGE,))

    assert found["nccl"].verdict is Verdict.FAIL
    assert any("unconfirmed when planned" in line for line in found["nccl"].evidence)


def test_a_host_as_planned_passes_everywhere():
    found = judge()

    assert set(found) == {"driver", "nccl", "kernel module 580.178.04 proprietary", "torch 2.13.0+cpu"}
    assert {finding.verdict for finding in found.values()} == {Verdict.PASS}


def test_an_nccl_that_moved_to_cuda_13_is_named():
    """The CUDA build is in NCCL's version, so the newest package is the wrong one on a CUDA 12 host."""
    moved = PackageVersion(name="libnccl2", version="2.32.3-1+cuda13.4")

    finding = judge(packages=(DRIVER_PACKAGE, moved))["nccl"]

    assert (finding.verdict, finding.cause) == (Verdict.FAIL, "library-mismatch")
    assert (finding.code, finding.values["installed"]) == ("software.packages-differ", ("libnccl2 2.32.3-1+cuda13.4",))


def test_packages_that_cannot_be_looked_up_are_not_missing():
    """The module is judged all the same, which the kernel reports."""
    found = judge(packages=None).values()

    assert [finding.verdict for finding in found] == [Verdict.UNKNOWN, Verdict.PASS, Verdict.PASS]


def test_a_missing_package_fails():
    found = judge(packages=(NCCL_PACKAGE,))["driver"]

    assert (found.verdict, found.code) == (Verdict.FAIL, "software.packages-missing")


def test_a_package_planned_without_a_version_only_has_to_be_there():
    """nvlsm follows no driver version: the newest is taken, then held."""
    row = {"packages": [{"name": "nvlsm", "version": None}], "holds": []}
    plan = {**PLAN, "components": {"fabric_manager": row}}

    there = judge(plan, packages=(PackageVersion(name="nvlsm", version="2025.10-1"),))
    gone = judge(plan, packages=())

    assert there["fabric_manager"].verdict is Verdict.PASS
    assert gone["fabric_manager"].verdict is Verdict.FAIL


def test_a_package_without_its_hold_can_move_by_itself():
    loose = PackageVersion(name="libnccl2", version="2.29.3-1+cuda12.9")

    finding = judge(packages=(DRIVER_PACKAGE, loose))["nccl"]

    assert (finding.verdict, finding.code) == (Verdict.WARN, "software.packages-not-held")


@pytest.mark.parametrize(
    ("driver", "code", "cause"),
    [
        (DriverState(installed_version="580.178.04"), "module-not-planned", "driver-mismatch"),
        (msgspec.structs.replace(LOADED, loaded_flavour="open"), "loaded-flavour-not-planned", "module-flavour-wrong"),
        (msgspec.structs.replace(LOADED, installed_version="580.95.05"), "next-module-not-planned", "driver-mismatch"),
        (msgspec.structs.replace(LOADED, installed_flavour="open"), "next-module-not-planned", "driver-mismatch"),
    ],
)
def test_the_module_in_force_is_judged_not_the_package(driver, code, cause):
    """Installed is not loaded, and the open flavour of the right version binds no Pascal card."""
    (finding,) = [f for f in judge(driver=driver).values() if f.verdict is Verdict.FAIL]

    assert (finding.code, finding.cause) == (f"software.{code}", cause)


@pytest.mark.parametrize(
    ("torch", "verdict"), [("2.13.0", Verdict.WARN), ("2.7.1", Verdict.WARN), (None, Verdict.SKIP)]
)
def test_another_build_of_torch_is_noticed(torch, verdict):
    """2.13.0 and 2.13.0+cpu are two builds; no torch beside gpucheck is no evidence."""
    (finding,) = [f for f in judge(torch=torch).values() if str(f.wanted) == "torch 2.13.0+cpu"]

    assert finding.verdict is verdict


def test_a_wheel_of_torchs_own_index_must_be_the_planned_build():
    """The plan keeps version and build apart."""
    plan = {**PLAN, "stack": {"torch": {"version": "2.14.1", "build": "cu126", "origin": "index"}}}

    found = judge(plan, torch="2.14.1+cu132")

    assert found["torch 2.14.1+cu132"].verdict is Verdict.WARN
    assert found["torch 2.14.1+cu132"].wanted == "torch 2.14.1+cu126"


def test_a_host_without_a_plan_is_skipped_with_the_reason():
    (finding,) = stack.evaluate(facts())

    assert (finding.verdict, finding.values) == (Verdict.SKIP, {"path": stack.PLAN})


@pytest.mark.parametrize(
    ("package", "verdict"),
    [("580.178.04-1", Verdict.PASS), ("1:580.178.04-1ubuntu1", Verdict.PASS), ("595.91.07-1", Verdict.FAIL)],
)
def test_fabric_manager_must_be_at_the_loaded_drivers_version(package, verdict):
    """Also where the plan does not speak of it: it would not start."""
    manager = PackageVersion(name="nvidia-fabricmanager", version=package)

    finding = judge(packages=(DRIVER_PACKAGE, NCCL_PACKAGE, manager))[
        f"fabric manager {package.split(':')[-1].split('-')[0]}"
    ]

    assert (finding.verdict, finding.cause) == (
        verdict,
        None if verdict is Verdict.PASS else "fabric-version-mismatch",
    )


def test_a_planned_fabric_manager_that_is_missing_fails():
    """The loaded driver needs it."""
    plan = {**PLAN, "expected": {**PLAN["expected"], "fabric_manager_version": "580.178.04"}}

    assert judge(plan)["fabric manager not installed"].verdict is Verdict.FAIL


def test_another_plan_than_the_hosts_own_can_be_compared():
    """A lock on the reader's machine; messages then name that file."""
    host = facts(files={stack.PLAN: "{"}, packages=(DRIVER_PACKAGE, NCCL_PACKAGE), driver=LOADED)

    given = list(stack.evaluate(host, plan=json.dumps(PLAN), where="stack.lock.yml"))
    broken = list(stack.evaluate(host, plan="{", where="stack.lock.yml"))

    assert given[0].verdict is Verdict.PASS
    assert (broken[0].code, broken[0].values["path"]) == ("software.plan-unreadable", "stack.lock.yml")


@pytest.mark.parametrize("given", [None, json.dumps(PLAN)])
def test_packages_of_the_plan_are_read(given):
    """Of the host's own plan, or of the one that is compared in its place."""
    host = facts(files={stack.PLAN: "{" if given else json.dumps(PLAN)})

    assert list(stack.more(host, given)) == ["package:libnvidia-compute-580", "package:libnccl2"]
