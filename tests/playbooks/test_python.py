"""The interpreter of gpucheck's own environment: that of the plan, unless the site names another one."""

import pytest
import yaml
from jinja2.nativetypes import NativeEnvironment

from gpucheck.bundle.contents import order
from gpucheck.stack import StackSpec
from tests.playbooks.modules import ROLES, action
from tests.stack.plan.test_plan import planned

plans = action("stack_plans")
DEFAULTS = yaml.safe_load((ROLES / "gpucheck/defaults/main.yml").read_text())
PACKAGES = ["python3.12", "python3.12-pip"]


def used(plan, **site):
    """(gpucheck_python, gpucheck_python_packages) as the role sees them."""
    values = {"gpucheck_plan": plan, **site}
    for name in ("gpucheck_python", "gpucheck_python_packages"):
        values.setdefault(name, NativeEnvironment().from_string(DEFAULTS[name]).render(values))
    return values["gpucheck_python"], values["gpucheck_python_packages"]


@pytest.mark.parametrize("system", ["rocky-8", "rocky-9", "almalinux-9", "rhel-9"])
def test_old_enterprise_linux_gets_the_interpreter_of_its_plan(system):
    plan = planned(system, "t4-x1")

    assert used({"python": plan.python}) == ("python3.12", PACKAGES)
    assert set(PACKAGES) <= set(order(plan, "node01").optional)


def test_a_system_with_a_new_python_keeps_its_own():
    assert used({"python": planned("ubuntu-24.04", "t4-x1").python}) == ("python3", [])


@pytest.mark.parametrize("plan", [{}, {"python": {}}])
def test_a_plan_of_an_earlier_release_names_none(plan):
    assert used(plan) == ("python3", [])


def test_what_the_site_names_comes_first_and_brings_no_packages_of_the_plan():
    plan = {"python": planned("rocky-9", "t4-x1", StackSpec()).python}

    assert used(plan, gpucheck_python="/opt/python/bin/python3") == ("/opt/python/bin/python3", [])
    assert used(plan, gpucheck_python_packages=["python3.12"]) == ("python3.12", ["python3.12"])


def test_an_interpreter_that_changes_reinstalls_gpucheck():
    wheel, place = {"path": "/build/gpucheck.whl", "digest": "d", "sha256": "ab"}, "/var/lib/gpucheck/bundle"
    found = [plans.origin({"python": row}, wheel, {}, place, "https://torch.example/") for row in ({}, PYTHON)]

    assert found[0]["digest"] != found[1]["digest"]
    stated = {"gpucheck_python": "python3.12"}
    assert plans.origin({}, wheel, stated, place, "https://torch.example/")["digest"] == found[1]["digest"]


PYTHON = {"interpreter": "python3.12", "packages": PACKAGES}
