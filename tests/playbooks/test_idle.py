"""No program may use the GPUs once the host is drained. All cases are hosts of one run."""

import json
import sys

import pytest

from tests.playbooks.hostile import INTERPRETER, RUNNER, state
from tests.playbooks.stubs import script
from tests.playbooks.test_runs import play

pytestmark = pytest.mark.slow

PLAY = """
- hosts: gpu
  connection: local
  gather_facts: false
  vars: {ansible_become: false, preflight_idle_delay_s: 0, preflight_plan: {schema: gpucheck.plan/1}}
  tasks:
    - include_role: {name: gpucheck.provision.preflight, tasks_from: idle.yml}
"""
# By host: the programs, whether the site allows them, and what is said.
CASES = {
    "free": ([], False, ""),
    "services": (["dcgm-exporter (7)", "nvidia-device-p (8)"], False, ""),
    "allowed": (["python (9)"], True, ""),
    "busy": (["dcgm-exporter (7)", "python (9)"], False, "these programs still use the GPUs: python (9). No package"),
}


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """What a run over all of them says."""
    folder = tmp_path_factory.mktemp("idle")
    hosts = {}
    for name, (busy, allowed, _) in CASES.items():
        (folder / name).mkdir()
        answer = state({})
        answer["host"]["busy"] = busy
        (folder / name / "answers.json").write_text(json.dumps({"*": {"changed": False, **answer}}))
        python = script(folder / name / "python", INTERPRETER.format(python=sys.executable, runner=RUNNER))
        hosts[name] = {"ansible_python_interpreter": python, "preflight_allow_busy_gpus": allowed}
    return " ".join(play(folder, PLAY, hosts=hosts).stdout.split())


@pytest.mark.parametrize("name", CASES)
def test_programs_on_gpus_after_the_drain_stop_the_change(words, name):
    reason = CASES[name][2]

    assert f"{name} : ok=" in words
    assert (f"[{name}]: FAILED!" in words) is (f"{name}: {reason}" in words) is bool(reason), words
