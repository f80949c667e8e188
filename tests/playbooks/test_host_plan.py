"""Why a host stops before it is compared: each reason in its own words, and nothing else. All are hosts of one run."""

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
SOUND = {"schema": "gpucheck.plan/1"}
REJECTED = "rejected, nothing was changed. no driver supports both (a K80; an H100). Fix: split them."
# By host: its plan, None where none was computed, and what is said of it.
CASES = {
    "refused": ({"conflicts": [CONFLICT]}, REJECTED),
    "refusal": ({"conflicts": [CONFLICT], "schema": "gpucheck.refusal/1"}, REJECTED),
    "replaced": (SOUND, "another run has written another plan to FILE. Nothing was changed."),
    "nothing": (
        {},
        "no earlier set is recorded on this host, so there is nothing to roll back to. Nothing was changed.",
    ),
    "uncomputed": (None, "its plan was not computed, nothing was changed."),
    "sound": (SOUND, ""),
}


def taken(folder, plans, *words, wheel=True):
    """What a playbook says that takes the plans of these hosts."""
    hosts = {}
    for name, plan in plans.items():
        text = json.dumps(plan)
        (folder / f"{name}.json").write_text(f"{text}\n")
        sha256 = hashlib.sha256(("{}" if name == "replaced" else text).encode()).hexdigest()
        row = {"file": f"{folder}/{name}.json", "sha256": sha256, "requirements": "r"}
        row |= {"torch": "", "pip_args": [], "digest": "d"}
        told = row if plan is not None else {}
        hosts[name] = {"plan_told": told, "plan_wheel": {"path": "/x/gpucheck.whl"} if wheel else {}}
    message = "TAKEN {{ inventory_hostname }} {{ host_plan.schema }} {{ host_requirements }}"
    tasks = [{"import_tasks": str(PLAYBOOKS / "tasks/host_plan.yml")}, {"ansible.builtin.debug": {"msg": message}}]
    plays = [{"hosts": "gpu", "connection": "local", "gather_facts": False, "tasks": tasks}]
    return " ".join(play(folder, plays, *words, hosts=hosts).stdout.split())


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What a run over all cases says."""
    folder = tmp_path_factory.mktemp("plans")
    words = taken(folder, {name: plan for name, (plan, _) in CASES.items()})
    return words.replace(f"{folder}/replaced.json", "FILE")


@pytest.mark.parametrize("name", CASES)
def test_a_host_without_a_usable_plan_stops_with_the_reason(said, name):
    reason = CASES[name][1]

    assert not reason or f"{name}: {reason}" in said
    assert (f"TAKEN {name} gpucheck.plan/1 r" in said) is (not reason)
    assert said.count("its plan was not computed") == 1
    assert "(--limit 'uncomputed,localhost'; make LIMIT=... does this)" in said


def test_without_gpucheck_no_wheel_is_needed(tmp_path):
    assert "TAKEN n1 gpucheck.plan/1 r" in taken(tmp_path, {"n1": SOUND}, "--skip-tags", "gpucheck", wheel=False)
