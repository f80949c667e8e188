"""Preflight of hosts whose driver comes from Ubuntu's own archive: Secure Boot needs no key, modules must be there."""

from typing import Any

import pytest

from tests.playbooks.hostile import Site, state
from tests.playbooks.planned import PLAN
from tests.playbooks.test_preflight import case, said

pytestmark = pytest.mark.slow

MODULES = "linux-modules-nvidia-580-server-open-6.8.0-106-generic"
COMPLETE = {"found": True, "right": True, "path": "/etc/apt/sources.list.d/gpucheck-archive.sources", "content": ""}


def ubuntu(**host: Any) -> dict[str, Any]:
    """Variables of such a host."""
    found = case(**{"archive": COMPLETE, "headers_unavailable": [], **host})
    archive = {"suite": "noble", "distribution": "ubuntu", "components": []}
    nothing = {"repositories": [], "files": [], "services": [], "components": {"driver": {"packages": []}}}
    found["preflight_plan"] |= {**PLAN, **nothing, "kernel_modules": {"pattern": "x-{kernel}"}, "archive": archive}
    return found


CASES: dict[str, dict[str, Any]] = {
    "signed": ubuntu(secure_boot=True),
    "mixed": ubuntu(mixed=["nvidia-utils-580 580.95.05-1"]),
    "no-modules": ubuntu(headers_missing=[MODULES], headers_unavailable=[MODULES]),
    # The components are added first, and then there may be some.
    "not-yet": ubuntu(headers_missing=[MODULES], headers_unavailable=[MODULES], archive={**COMPLETE, "right": False}),
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What preflight says of each case."""
    return said(tmp_path_factory.mktemp("preflight"), CASES)


@pytest.mark.parametrize("name", ["signed", "not-yet"])
def test_hosts_that_nothing_stands_in_the_way_of_go_on(told, name):
    assert told[name] == ""


def test_a_driver_of_nvidias_repository_has_to_go_first(told):
    assert told["mixed"].startswith(
        "driver packages of NVIDIA's repository are installed: nvidia-utils-580 580.95.05-1"
    )
    assert "make deprovision" in told["mixed"]


def test_a_kernel_without_modules_in_the_archive_is_refused_in_its_own_words(told):
    assert told["no-modules"].startswith(f"no package source offers {MODULES}, which contains the driver's module for")
    assert "headers" not in told["no-modules"]


def lacking(what: dict[str, Any], **offered: Any) -> dict[str, Any]:
    """What a host answers whose archive lacks packages of the driver."""
    found = state({"driver": ["nvidia-utils-580-server is not installed"]})
    found["host"].update(archive=COMPLETE, wrong_files=[], space=[], managed=[], **what, **offered)
    return {"plan_state": found}


def test_a_fabric_manager_that_lags_behind_the_driver_is_refused_before_anything_changes(tmp_path):
    """It starts at exactly the driver's version alone; without it CUDA answers 802 where nvidia-smi looks fine."""
    site = Site(tmp_path, {})
    (tmp_path / "stack.yml").write_text("source: ubuntu\ndriver: 580.95.05-0ubuntu0.22.04.2\n")
    behind = "nvidia-fabricmanager-580=580.95.05-0ubuntu0.22.04.2 (offered: 580.82.07-0ubuntu0.22.04.1)"
    site.host("behind", **lacking({"secure_boot": True}, offers_missing=[behind]))
    site.host("unread", **lacking({"secure_boot": True}, offers_unknown="apt-get: exit 100"))

    done = site.run("provision.yml", "--skip-tags", "verify")

    words = " ".join(done.stdout.split())
    assert f"no package source of this host offers {behind}." in words, done.stdout + done.stderr
    assert "wait for it, or set source: nvidia." in words
    assert "have the planned driver: apt-get: exit 100." in words
    assert "Secure Boot" not in words
    assert site.document("reports/provision.json")["hosts"]["behind"]["state"] == "refused"
    assert not {"package_sources", "planned_packages"} & set(site.asked("behind"))
