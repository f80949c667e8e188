"""IOMMU and ACS on an apt and a dnf host that appear as bare metal, from the specification and back again.

Package managers, systemd, update-grub and setpci are real on the hosts, which appear as bare metal (SIMULATED, see
bare_metal.py). Not had in a container, and so not proven: that firmware and kernel act on the arguments and registers,
that a machine boots with them, and the real grubby.

Every test begins with hosts that have the driver alone, and most end by showing that they are again exactly that.
"""

import pytest

from tests.lab.bare_metal import (
    GRUB_FILE,
    HOSTS,
    OLDER,
    RUNNING,
    above_gpus,
    acs,
    boots,
    changes_nothing,
    cmdline,
    entries,
    is_there,
    on_host,
    packages,
    provision,
    reboot,
    refused,
    run,
    states,
)
from tests.lab.e2e import provision_json

pytestmark = pytest.mark.more_labs


def test_the_iommus_arguments_are_in_every_normal_entry_after_one_reboot_and_go_again(driver_alone, reports):
    count = {host: boots(host) for host in HOSTS}

    provision(reports, tuning={"iommu": "passthrough"})

    for host in HOSTS:
        assert len(entries(host)) >= len((OLDER, RUNNING))
        assert all(words.count("iommu=pt") == 1 for words in entries(host))
        assert not any("iommu=pt" in words for words in entries(host, recovery=True))
        assert "iommu=pt" in cmdline(host)
        assert boots(host) == count[host] + 1
    assert entries("lab-apt", recovery=True), "the real update-grub writes entries for recovery"
    changes_nothing(reports)

    provision(reports, tuning={"iommu": "off"})
    for host in HOSTS:
        assert {"intel_iommu=off", "amd_iommu=off"} <= set(cmdline(host))
        assert not any("iommu=pt" in words for words in [*entries(host), cmdline(host)])

    provision(reports)
    assert states() == driver_alone
    assert {host: boots(host) for host in HOSTS} == {host: count[host] + 3 for host in HOSTS}


def test_an_argument_that_the_site_sets_after_ours_went_is_neither_ours_nor_taken_away(driver_alone, reports):
    provision(reports, tuning={"iommu": "passthrough"})
    provision(reports)
    set_ = {
        "lab-apt": "echo 'GRUB_CMDLINE_LINUX=iommu=pt' >/etc/default/grub.d/site.cfg; update-grub 2>/dev/null",
        "lab-dnf": "grubby --update-kernel=ALL --args=iommu=pt",
    }
    unset = {
        "lab-apt": "rm /etc/default/grub.d/site.cfg; update-grub 2>/dev/null",
        "lab-dnf": "grubby --update-kernel=ALL --remove-args=iommu=pt",
    }
    for host in HOSTS:
        on_host(host, "mkdir -p /etc/default/grub.d")
        on_host(host, set_[host])
        reboot(host)
    try:
        theirs = states()
        provision(reports, tuning={"iommu": "passthrough"})
        changes_nothing(reports)
        assert not is_there("lab-apt", GRUB_FILE)
        provision(reports)
        assert states() == theirs
        assert all("iommu=pt" in cmdline(host) for host in HOSTS)
    finally:
        for host in HOSTS:
            on_host(host, unset[host])
            reboot(host)


def test_acs_is_cleared_above_gpus_now_and_at_every_boot_and_comes_back_without_the_spec(driver_alone, reports):
    on = {host: acs(host) for host in HOSTS}
    for host in HOSTS:
        assert above_gpus(host) & on[host].keys()
        assert "001d" in on[host].values()

    provision(reports, tuning={"acs": "off"})

    cleared = {
        host: {name: "0000" if name in above_gpus(host) else on[host][name] for name in on[host]} for host in HOSTS
    }
    assert {host: acs(host) for host in HOSTS} == cleared
    # The H100 host has bridges with ACS that lead to network cards and NVSwitches alone.
    assert "001d" in cleared["lab-dnf"].values()
    for host in HOSTS:
        assert any(row.startswith("pciutils ") for row in packages(host))
        assert on_host(host, "systemctl is-enabled gpucheck-acs-off; systemctl is-active gpucheck-acs-off").split() == [
            "enabled",
            "active",
        ]
    changes_nothing(reports)

    # What firmware and kernel set at boot is on again, until the service has run.
    for host in HOSTS:
        reboot(host)
    assert {host: acs(host) for host in HOSTS} == cleared
    changes_nothing(reports)

    provision(reports)
    assert states() == driver_alone
    for host in HOSTS:
        reboot(host)
    assert {host: acs(host) for host in HOSTS} == on


def test_acs_that_somebody_set_again_is_planned_by_name_and_cleared(driver_alone, reports):
    provision(reports, tuning={"acs": "off"})
    bridge = min(above_gpus("lab-apt") & acs("lab-apt").keys())
    on_host("lab-apt", f"setpci -s {bridge} ECAP_ACS+6.w=0015")

    assert f"ACS is on at bridge {bridge} (control 0015), planned off" in run("plan", reports).plain
    assert acs("lab-apt")[bridge] == "0015"

    assert run("provision", reports).status == 0
    assert acs("lab-apt")[bridge] == "0000"
    assert {host: row["state"] for host, row in provision_json(reports)["hosts"].items()} == {
        "lab-apt": "changed",
        "lab-dnf": "unchanged",
    }


def test_a_guest_is_refused_with_the_reason_and_nothing_is_changed_on_it(driver_alone, reports):
    """Each evidence of a guest is in tests/playbooks/test_isolation."""
    for host in HOSTS:
        on_host(host, "cp /sys/class/dmi/id/sys_vendor /tmp/vendor; echo QEMU >/sys/class/dmi/id/sys_vendor")
    try:
        said = refused(reports, tuning={"iommu": "passthrough", "acs": "off"})
        after = states()
    finally:
        for host in HOSTS:
            on_host(host, "cat /tmp/vendor >/sys/class/dmi/id/sys_vendor; rm /tmp/vendor")

    words = "tuning requires iommu and acs, but this host is a virtual machine (QEMU)"
    assert said.count(words) >= len(HOSTS)
    assert "Remove the setting from the stack.yml of this host" in said
    assert {row["state"] for row in provision_json(reports)["hosts"].values()} == {"refused"}
    assert after == driver_alone
