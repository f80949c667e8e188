"""A mistyped variable is an error that names the one that was meant; the variables of other people's roles are none."""

import pytest
import yaml

from tests.playbooks.modules import PLAYBOOKS, ROLES, action
from tests.playbooks.test_runs import playbook

plugin = action("known_variables")

SITE = set(yaml.safe_load((PLAYBOOKS / "vars/site_variables.yml").read_text()))


def mistakes(*names):
    settable, needed = plugin.options(ROLES)
    return plugin.mistakes(names, settable, needed, SITE)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("preflight_alow_busy_gpus", "preflight_allow_busy_gpus"),
        ("drain_wiht", "drain_with"),
        ("verify_timout_s", "verify_timeout_s"),
        ("stack_sepc", "stack_spec"),
        ("rebot_timeout_s", "reboot_timeout_s"),
        ("max_failing_precent", "max_failing_percent"),
    ],
)
def test_a_mistyped_name_is_told_which_was_meant(name, meant):
    assert f"Did you mean {meant}?" in mistakes(name)[name]


@pytest.mark.parametrize("name", ["bundle_pin", "bundle_key_fingerprint", "stack_file", "check_repositories_args"])
def test_an_unknown_name_like_those_of_no_role_is_an_error_too(name):
    """A mistyped bundle_fingerprint would accept the signature of any key."""
    words = mistakes(name)[name]
    assert "no such variable" in words
    assert "Did you mean" in words or "Known: " in words


def test_every_documented_variable_and_other_peoples_are_fine():
    settable, _ = plugin.options(ROLES)

    assert mistakes(*settable, *SITE, "ansible_user", "http_port", "cuda_version", "nginx_driver") == {}


def test_the_example_inventory_names_only_variables_that_exist():
    """Also those that are commented out: people uncomment them."""
    import re

    text = (PLAYBOOKS / "inventory/example/hosts.yml").read_text()
    names = re.findall(r"^\s+(?:# )?([a-z]+_[a-z_]+):", text, re.MULTILINE)

    assert len(names) > 8
    assert mistakes(*names) == {}
    settable, _ = plugin.options(ROLES)
    assert {name for name in names if not name.startswith("ansible_")} <= settable | SITE


def test_a_run_stops_at_a_mistyped_variable_before_it_reads_a_host(tmp_path):
    (tmp_path / "hosts.yml").write_text(
        "gpu:\n  hosts:\n    node01: {drain_wiht: slurm}\n"
        "    node02: {cuda_flags: x, gpucheck_x: 1, other_variables: [gpucheck_x]}\n"
    )

    done = playbook(tmp_path / "hosts.yml", "playbooks/provision.yml")

    assert done.returncode == 2
    words = " ".join(done.stdout.split())
    assert "drain_wiht: no such variable. Did you mean drain_with? (set for node01)" in words
    assert "gpucheck_x" not in words
    assert "Read the hosts" not in done.stdout
