"""What the playbooks make of a comparison with the package repositories that fails, or that does not end."""

import pytest
import yaml

from tests.playbooks.modules import PLAYBOOKS
from tests.playbooks.stubs import script
from tests.playbooks.test_runs import play

pytestmark = pytest.mark.slow

PLAY = """
- hosts: localhost
  gather_facts: false
  vars:
    controller_gpucheck: {folder}/gpucheck
    controller_lock: none
    controller_site: {{check_repositories_timeout_s: {seconds}}}
    repositories_groups: [g]
  tasks:
    - ansible.builtin.import_tasks: {playbooks}/tasks/repositories.yml
    - ansible.builtin.debug: {{msg: "GROUPS {{{{ repositories_report.groups | map(attribute='group') }}}} END"}}
"""


def said(tmp_path, program, seconds=600):
    """(exit status, output) of a run whose gpucheck is this program. seconds: for the comparison."""
    script(tmp_path / "gpucheck", f"#!/bin/sh\n{program}\n")
    done = play(tmp_path, PLAY.format(folder=tmp_path, seconds=seconds, playbooks=PLAYBOOKS))
    return done.returncode, " ".join(done.stdout.split())


def test_a_result_is_taken(tmp_path):
    status, words = said(tmp_path, """echo '{"groups": [{"group": "g"}], "repositories": []}'; exit 2""")

    assert status == 0, words
    assert "GROUPS ['g'] END" in words


def test_a_comparison_that_does_not_end_stops_nothing(tmp_path):
    status, words = said(tmp_path, "sleep 600", seconds=2)

    assert status == 0, words
    assert "were not compared with the plans: their indexes were not read within 2 s" in words
    assert "GROUPS [] END" in words


def planned(name):
    """A package of a plan."""
    return {"name": name, "version": "1", "spec": f"{name}=1"}


def test_a_package_that_is_on_the_host_already_is_not_asked_of_a_repository(tmp_path):
    """A mirror drops old releases: a host that has one could get nothing else any more, such as DCGM."""
    missing = [{"component": "driver", "spec": f"{name}=1", "state": "missing"} for name in ("libcuda", "nvidia-utils")]
    reasons = [
        "libcuda=1: no repository has this version of libcuda. State another.",
        "nvidia-utils=1: no repository has this version of nvidia-utils. State another.",
        "nvidia-utils 1 requires libcuda (= 1): no repository provides that version.",
    ]
    plan = {"group": "g", "components": {"driver": {"packages": [planned("libcuda"), planned("nvidia-utils")]}}}
    host = {"host_plan": plan, "host_state": {"components": {"driver": {"packages": []}}}}
    bare = {"libcuda is 0, planned 1", "nvidia-utils 1 is not installed"}
    report = {"groups": [{"group": "g", "reasons": reasons, "packages": missing}]}
    told = {"ansible.builtin.set_fact": {"repositories_report": report}}
    (*_, rejects) = yaml.safe_load((PLAYBOOKS / "hosts_planned.yml").read_text())
    ends = "{{ inventory_hostname }} {{ host_outcome | default('goes on') }}"
    rejects["tasks"].append({"ansible.builtin.debug": {"msg": ends}})
    done = play(
        tmp_path,
        [{"hosts": "localhost", "gather_facts": False, "tasks": [told]}, {**rejects, "connection": "local"}],
        hosts={
            "has": host,
            "bare": {**host, "host_state": {"components": {"driver": {"packages": sorted(bare)}}}},
            "other": {**host, "host_plan": {**plan, "group": "h"}},
        },
    )

    words = " ".join(done.stdout.split())
    assert "has goes on" in words, done.stdout
    assert "other goes on" in words
    assert "bare: its plan does not fit the package repositories, and nothing was changed: libcuda=1: no" in words
    assert "nvidia-utils 1 requires libcuda (= 1)" in words


def test_a_comparison_that_fails_is_shown_with_its_reason(tmp_path):
    status, words = said(tmp_path, "echo 'Error: none: no such file' >&2; exit 64")

    assert status == 2
    assert "none: no such file No host was changed." in words
