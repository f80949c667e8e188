"""What the playbooks make of a comparison with the package repositories that fails, or that does not end."""

import pytest

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


def test_a_comparison_that_fails_is_shown_with_its_reason(tmp_path):
    status, words = said(tmp_path, "echo 'Error: none: no such file' >&2; exit 64")

    assert status == 2
    assert "none: no such file No host was changed." in words
