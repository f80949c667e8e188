"""The plan of a host, compared with its packages, kernel module and frameworks."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

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
    (differs,) = (f for f in judge({**PLAN, "unconfirmed": unconfirmed}, packages=(DRIVER_PACKAGE,)).values() if f.code)

    text = f"unconfirmed when planned: {spec}: no record shows it in ubuntu2204 for x86_64"
    assert text in found["nccl"].evidence
    assert not any("unconfirmed" in line for line in found["driver"].evidence)
    assert found["nccl"].verdict is Verdict.PASS
    assert (differs.verdict, text in differs.evidence) == (Verdict.FAIL, True)


NCCL_13 = PackageVersion(name="libnccl2", version="2.32.3-1+cuda13.4")
NVLSM = {**PLAN, "components": {"fabric_manager": {"packages": [{"name": "nvlsm", "version": None}], "holds": []}}}
INDEX = {**PLAN, "stack": {"torch": {"version": "2.14.1", "build": "cu126", "origin": "index"}}}


@pytest.mark.parametrize(
    ("host", "found"),
    [
        ({}, []),
        # The CUDA build is in NCCL's version, so the newest package is the wrong one on a CUDA 12 host.
        ({"packages": (DRIVER_PACKAGE, NCCL_13)}, ["packages-differ"]),
        ({"packages": (NCCL_PACKAGE,)}, ["packages-missing"]),
        ({"packages": (DRIVER_PACKAGE, replace(NCCL_PACKAGE, held=False))}, ["packages-not-held"]),
        # What cannot be looked up is not missing; the kernel reports the module.
        ({"packages": None}, ["packages-unreadable"]),
        # nvlsm follows no driver version: the newest is taken, then held.
        ({"plan": NVLSM, "packages": (PackageVersion(name="nvlsm", version="2025.10-1"),)}, []),
        ({"plan": NVLSM, "packages": ()}, ["packages-missing"]),
        # The loaded module counts, not the package; an open module of the right version binds no Pascal GPU.
        ({"driver": DriverState(installed_version="580.178.04")}, ["module-not-planned"]),
        ({"driver": replace(LOADED, loaded_flavour="open")}, ["loaded-flavour-not-planned"]),
        ({"driver": replace(LOADED, installed_version="580.95.05")}, ["next-module-not-planned"]),
        ({"driver": replace(LOADED, installed_flavour="open")}, ["next-module-not-planned"]),
        # 2.13.0 and 2.13.0+cpu are two builds; a wheel of torch's own index must be the planned one.
        ({"torch": "2.7.1+cpu"}, ["framework-not-planned"]),
        ({"torch": "2.13.0+cu126"}, ["framework-not-planned", "library-not-installed", "library-not-installed"]),
        ({"torch": None}, ["framework-not-installed"]),
        ({"plan": INDEX, "torch": "2.14.1+cpu"}, ["framework-not-planned"]),
    ],
)
def test_host_compared_with_its_plan(host, found):
    assert [f.code for f in judge(**host).values() if f.code] == [f"software.{code}" for code in found]


def test_a_host_without_a_plan_is_skipped_with_the_reason():
    (finding,) = stack.evaluate(facts())

    assert (finding.code, finding.values) == ("software.no-plan", {"path": stack.PLAN})


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
