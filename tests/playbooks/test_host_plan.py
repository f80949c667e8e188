"""Why a host stops before it is compared: each reason in its own words, and nothing else."""

import hashlib
import json

import pytest

from tests.playbooks.modules import PLAYBOOKS
from tests.playbooks.test_runs import play

pytestmark = pytest.mark.slow

CONFLICT = {
    "because": "no driver supports both",
    "between": [{"fact": "a K80"}, {"fact": "an H100"}],
    "try": "split them",
}


def taken(tmp_path, plan, wheel, computed=None):
    """What a playbook says that takes the plan of one host; plan is None where none was computed.

    computed: the plan's text when it was computed, if it is another one by now.
    """
    text = json.dumps(plan)
    sha256 = hashlib.sha256((computed or text).encode()).hexdigest()
    row = {
        "file": f"{tmp_path}/plan.json",
        "sha256": sha256,
        "requirements": "r",
        "torch": "",
        "pip_args": [],
        "digest": "d",
    }
    told = row if plan is not None else {}
    (tmp_path / "plan.json").write_text(f"{text}\n")
    take = {
        "hosts": "gpu",
        "connection": "local",
        "gather_facts": False,
        "vars": {"plan_told": told, "plan_wheel": {"path": "/x/gpucheck.whl"} if wheel else {}},
        "tasks": [
            {"import_tasks": str(PLAYBOOKS / "tasks/host_plan.yml")},
            {"ansible.builtin.debug": {"msg": "TAKEN {{ host_plan.schema }} {{ host_requirements }}"}},
        ],
    }
    done = play(tmp_path, [take], *(() if wheel else ("--skip-tags", "gpucheck")), hosts=["n1"])
    return " ".join(done.stdout.split())


@pytest.mark.parametrize("wheel", [True, False])
def test_a_plan_is_taken_over_and_without_gpucheck_no_wheel_is_needed(tmp_path, wheel):
    assert "TAKEN gpucheck.plan/1 r" in taken(tmp_path, {"schema": "gpucheck.plan/1"}, wheel)


@pytest.mark.parametrize("more", [{}, {"schema": "gpucheck.refusal/1"}])
def test_a_host_without_a_possible_plan_is_refused_with_what_clashes_and_the_way_out(tmp_path, more):
    said = taken(tmp_path, {"conflicts": [CONFLICT], **more}, wheel=True)

    assert "n1: rejected, nothing was changed. no driver supports both (a K80; an H100). Fix: split them." in said
    assert "not computed" not in said
    assert "TAKEN" not in said


def test_a_plan_that_another_run_replaced_is_not_taken(tmp_path):
    said = taken(tmp_path, {"schema": "gpucheck.plan/1"}, wheel=True, computed="{}")

    assert f"n1: another run has written another plan to {tmp_path}/plan.json. Nothing was changed." in said
    assert "TAKEN" not in said


def test_a_host_without_an_earlier_set_has_no_way_back(tmp_path):
    said = taken(tmp_path, {}, wheel=True)

    assert (
        "n1: no earlier set is recorded on this host, so there is nothing to roll back to. Nothing was changed." in said
    )


def test_a_host_whose_plan_was_not_computed_is_told_about_localhost(tmp_path):
    said = taken(tmp_path, None, wheel=True)

    assert "n1: its plan was not computed, nothing was changed." in said
    assert "(--limit 'n1,localhost'; make LIMIT=... does this)" in said
