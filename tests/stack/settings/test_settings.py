"""Settings of stack.yml that choose no version: in the plan only if requested."""

import pytest

from gpucheck.stack.settings.driver import MODULE_OPTIONS, MOK, options_line
from gpucheck.stack.settings.imex import NODES
from gpucheck.stack.text import plan_text
from tests.stack.asked import planned


def contents(found):
    """Return the files of a plan: content by path."""
    return {row["path"]: row["content"] for row in found.files}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "kernel: keep",
        "kernel_lock: leave",
        "mok: none",
        "module_options: none",
        "module_options: {}",
        "driver_extra: none",
        "driver_extra: []",
        "dcgm: none\ngdrcopy: none",
        "imex: none",
        *("tuning: none", "tuning: auto", "tuning: {}", "tuning: {nofile: leave}"),
    ],
)
def test_setting_that_requests_nothing_leaves_the_plan_unchanged(text):
    assert planned(text, "ubuntu-22.04") == planned("driver: auto\n", "ubuntu-22.04")


def test_kernel_upgrade_is_in_the_plan():
    found = planned("kernel: upgrade\n")

    assert found.kernel == "upgrade"
    assert "kernel upgraded if no package source has the headers" in plan_text(found)


def test_kernel_lock_is_in_the_plan_and_its_role_is_last():
    found = planned("kernel_lock: hold\ntuning: recommended\n")

    assert found.kernel_lock == "hold"
    assert found.order[-2:] == ("tuning", "kernel_lock")
    assert "upgrades keep their versions" in plan_text(found)


def test_mok_is_passed_to_dkms_in_a_file():
    found = planned("mok: {key: /etc/site/mok.key, certificate: /etc/site/mok.der}\n")

    assert found.mok == {"key": "/etc/site/mok.key", "certificate": "/etc/site/mok.der"}
    assert contents(found)[MOK] == "mok_signing_key=/etc/site/mok.key\nmok_certificate=/etc/site/mok.der\n"


def test_module_options_are_one_line_in_a_file_of_the_initramfs():
    found = planned("module_options: {NVreg_RestrictProfilingToAdminUsers: 0, NVreg_CoherentGPUMemoryMode: driver}\n")
    (row,) = [row for row in found.files if row["path"] == MODULE_OPTIONS]

    assert row["content"] == (
        "options nvidia NVreg_CoherentGPUMemoryMode=driver NVreg_RestrictProfilingToAdminUsers=0\n"
    )
    assert row["initramfs"] is True


def test_module_option_with_a_list_is_quoted():
    assert options_line({"NVreg_RegistryDwords": "A=1;B=0x2"}) == 'options nvidia NVreg_RegistryDwords="A=1;B=0x2"\n'


def imex_row(found):
    return next(row for row in found.services if row["name"] == "nvidia-imex")


@pytest.mark.parametrize(("text", "state"), [("", "stopped"), ("imex: slurm\n", "leave")])
def test_imex_daemon_is_installed_and_not_enabled_by_default(text, state):
    """Without a list of nodes it fails; a prolog of the job or NVIDIA's DRA driver starts it, and stops it."""
    found = planned(text, "ubuntu-24.04", "gb200-x4")

    assert [row["name"] for row in found.components["fabric_manager"]["packages"]] == ["nvidia-imex"]
    assert imex_row(found) == {"name": "nvidia-imex", "enabled": False, "state": state}
    assert NODES not in contents(found)


def test_imex_daemon_is_started_by_systemd_with_the_list_of_nodes():
    text = "imex: {service: systemd, nodes: [10.0.0.2, 10.0.0.1]}\n"
    found = planned(text, "ubuntu-24.04", "gb200-x4")

    assert imex_row(found) == {"name": "nvidia-imex", "enabled": True, "state": "started"}
    assert contents(found)[NODES] == "10.0.0.2\n10.0.0.1\n"
    assert NODES not in contents(planned(text, "ubuntu-24.04", "h100-sxm5-x8"))


def test_container_engines_are_configured_by_default():
    found = planned("", "ubuntu-22.04")

    rows = {row["name"]: row for row in found.container_engines}
    assert rows["docker"]["files"] == ("/etc/docker/daemon.json",)
    assert (rows["containerd"]["beside"], rows["containerd"]["action"]) == ("kubelet", "restarted")
    assert found.order.index("container_engine") == found.order.index("container_toolkit") + 1


@pytest.mark.parametrize("text", ["container_engines: leave\n", "container_toolkit: none\n"])
def test_container_engines_are_unmanaged_if_requested_or_without_toolkit(text):
    found = planned(text, "ubuntu-22.04")

    assert not found.container_engines
    assert "container_engine" not in found.order
