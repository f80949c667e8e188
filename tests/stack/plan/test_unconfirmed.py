"""A plan says of each package whether a record shows it in its folder; so does the set that a site asks about."""

import json

from gpucheck.stack import StackSpec, resolve_target, target_of
from gpucheck.stack.plan import planned_set
from gpucheck.stack.stack_set import StackSet
from gpucheck.stack.text import plan_text, stack_text
from tests.stack.cli_words import lock_words, run, site
from tests.stack.plan.test_plan import planned

__all__ = ["site"]  # a fixture is used by its name


def said(found) -> dict[str, str]:
    """Spec and why."""
    return {row.spec: row.because for row in found.unconfirmed}


def test_plan_text_lists_unconfirmed_packages():
    text = plan_text(planned("rocky-9", "h100-sxm5-x8"))

    assert "unconfirmed, no record shows" in text
    assert "nvidia-fabricmanager-620.70.06-1.el9" in text.partition("not confirmed")[2].replace("\n    ", " ")


def test_resolved_set_lists_unconfirmed_packages_of_its_plan():
    target = target_of(["H100 SXM"] * 8, "rocky-9", nvswitches=4)
    found = resolve_target(target, StackSpec())
    assert isinstance(found, StackSet)
    told = planned_set(target, found, StackSpec())
    assert isinstance(told, StackSet)

    assert "nvidia-fabricmanager-620.70.06-1.el9" in said(told)
    assert "unconfirmed, no record shows" in stack_text(told)
    assert "unconfirmed" not in stack_text(found)


def test_resolve_prints_it():
    words = ["stack", "resolve", "--gpu", "T4", "--os", "rocky-9"]

    assert "unconfirmed, no record shows" in run(*words[1:]).output
    rows = json.loads(run(*words[1:], "--format", "json").output)["unconfirmed"]
    assert {"component", "spec", "because"} == set(rows[0])


def test_line_of_a_group_counts_unconfirmed_packages(site):
    done = run(*lock_words(site, "--all-hosts", site / "plans"))
    plan = json.loads((site / "plans/lab-dnf.json").read_text())

    assert plan["unconfirmed"]
    assert f"{len(plan['unconfirmed'])} unconfirmed (gpucheck stack plan --group {plan['group']})" in done.output
