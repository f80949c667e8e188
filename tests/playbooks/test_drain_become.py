"""drain_become: the scheduler's programs run as root where they run, and only where the site says so."""

import pytest

from tests.playbooks.stubs import script
from tests.playbooks.test_drain import STAND_IN, drain, node  # noqa: F401 - a fixture
from tests.shared import sampled

pytestmark = pytest.mark.slow

SUDO = """#!/bin/sh
# What stands after the user is what runs as that user.
while [ "$1" != -u ]; do shift; done
user=$2; shift 2
BECAME="$user " exec "$@"
"""
PROGRAMS = ("scontrol", "squeue", "kubectl", "site-hosts")


@pytest.fixture
def as_user(drain, monkeypatch, tmp_path):  # noqa: F811 - the fixture
    """Like drain, with every call preceded by the user that sudo was asked for."""
    for name in PROGRAMS:
        (tmp_path / name).write_text(STAND_IN.replace('echo "$(', 'echo "$BECAME$(', 1))
    # The tests may be root themselves, and Ansible spares the way from root to root.
    monkeypatch.setenv("ANSIBLE_BECOME_ALLOW_SAME_USER", "1")
    given = {"drain_command": [str(tmp_path / "site-hosts")], "ansible_become_exe": script(tmp_path / "sudo", SUDO)}
    return lambda *states, **variables: drain(*states, **given, **variables)


@pytest.mark.parametrize("become", sampled([True, False], (0,)))
@pytest.mark.parametrize(
    ("drain_with", "state", "programs"),
    sampled(
        [
            ("slurm", "IDLE", {"scontrol", "squeue"}),
            ("kubernetes", node(False), {"kubectl"}),
            ("script", "", {"site-hosts"}),
        ],
        (0,),
    ),
)
def test_every_program_runs_as_root_where_the_site_says_so_and_else_none(as_user, drain_with, state, programs, become):
    """On a Slurm controller only root and operators may drain; the become of the hosts says nothing about it."""
    calls, done = as_user(state, drain_with=drain_with, **({"drain_become": True} if become else {}))

    assert done.returncode == 0, done.stdout
    who = {tuple(call.split()[: 1 + become]) for call in calls}
    assert who == {("root", name) if become else (name,) for name in programs}, calls
