"""Options that only bare metal or special hardware has, on an apt and a dnf host, each from the wish and back again.

IOMMU and ACS, GDRCopy, nvidia_peermem, held kernels. The hosts are containers that appear as bare metal (SIMULATED, see
bare_metal.py); package managers, systemd, update-grub and setpci are real. Not had in a container, and so not proven:
that firmware and kernel act on the arguments and registers, that a machine boots with them, the real grubby, and the
modules gdrdrv and nvidia_peermem themselves (stand-ins that load by the real ones' rules).

Every test begins with hosts that have the driver alone, and most end by showing that they are again exactly that.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab import bare_metal
from tests.lab.bare_metal import (
    HOSTS,
    OLDER,
    RUNNING,
    above_gpus,
    acs,
    boots,
    changes_nothing,
    cmdline,
    deprovisioned,
    entries,
    holds,
    on_host,
    packages,
    provision,
    reasons,
    reboot,
    run,
    site_repository,
    states,
    wish,
)
from tests.lab.e2e import provision_json

pytestmark = pytest.mark.more_labs

States = dict[str, dict[str, Any]]
GRUB_FILE = "/etc/default/grub.d/90-gpucheck.cfg"
GDRDRV_FILE, PEERMEM_FILE = (
    "/etc/modules-load.d/gpucheck-gdrdrv.conf",
    "/etc/modules-load.d/gpucheck-nvidia-peermem.conf",
)
OFED = {"lab-apt": "mlnx-ofed-kernel-dkms", "lab-dnf": "kmod-mlnx-ofa_kernel"}
INSTALL = {"lab-apt": "apt-get -qq install --yes", "lab-dnf": "dnf --quiet --assumeyes install"}
REMOVE = {"lab-apt": "apt-get -qq purge --yes", "lab-dnf": "dnf --quiet --assumeyes remove"}
# What an upgrade of the whole system would install, said and not done.
UPGRADE = {"lab-apt": "apt-get --simulate dist-upgrade", "lab-dnf": "dnf --assumeno upgrade 2>&1 || true"}
NEWER = {"lab-apt": "linux-image-5.15.0-181-generic", "lab-dnf": "503.19.1.el9_5"}


@pytest.fixture(scope="module")
def reports(tmp_path_factory) -> Path:
    return Path(tmp_path_factory.mktemp("bare-metal") / "reports")


@pytest.fixture(scope="module")
def bare(reports) -> Iterator[States]:
    """The lab, and its hosts before anything was provisioned; a lab that is kept is brought back to that."""
    if not bare_metal.KEPT:
        bare_metal.up()
    elif is_there(HOSTS[0], "/etc/gpucheck/stack.json"):
        deprovisioned(reports)
    yield states()
    if not bare_metal.KEPT:
        bare_metal.down()


@pytest.fixture
def before(bare, reports) -> States:
    """The hosts with the driver alone, whatever the test before left."""
    provision(reports)
    return states()


def is_there(host: str, path: str) -> bool:
    return on_host(host, f"if [ -e {path} ]; then echo yes; fi") == "yes"


def loaded(host: str, module: str) -> bool:
    """Whether the kernel that runs shows the module. SIMULATED."""
    return is_there(host, f"/run/gpucheck-simulator/root/sys/module/{module}")


def refused(reports: Path, **values: Any) -> str:
    """What a run says that refuses both hosts."""
    wish(**values)
    done = run("provision", reports)
    assert done.status != 0, done.text
    return done.plain


# IOMMU and ACS


def test_the_iommus_arguments_are_in_every_normal_entry_after_one_reboot_and_go_again(before, reports):
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
    assert states() == before
    assert {host: boots(host) for host in HOSTS} == {host: count[host] + 3 for host in HOSTS}


def test_an_argument_that_the_site_sets_after_ours_went_is_neither_ours_nor_taken_away(before, reports):
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


def test_acs_is_cleared_above_gpus_now_and_at_every_boot_and_comes_back_without_the_wish(before, reports):
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
    assert states() == before
    for host in HOSTS:
        reboot(host)
    assert {host: acs(host) for host in HOSTS} == on


def test_acs_that_somebody_set_again_is_planned_by_name_and_cleared(before, reports):
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


ALONE = {"lab-apt": ("update-grub", "/usr/sbin/update-grub"), "lab-dnf": ("grubby", "/usr/sbin/grubby")}
GUESTS = {
    "container": ("touch /.dockerenv", "rm /.dockerenv", "this host is a container"),
    "firmware": (
        "cp /sys/class/dmi/id/sys_vendor /tmp/vendor; echo QEMU >/sys/class/dmi/id/sys_vendor",
        "cat /tmp/vendor >/sys/class/dmi/id/sys_vendor; rm /tmp/vendor",
        "this host is a virtual machine (QEMU)",
    ),
    "processor": (
        "sed -i.bak 's/^flags.*/& hypervisor/' /run/gpucheck-simulator/root/proc/cpuinfo; "
        "cat /run/gpucheck-simulator/root/proc/cpuinfo >/proc/cpuinfo",
        "cat /run/gpucheck-simulator/root/proc/cpuinfo.bak >/proc/cpuinfo",
        "this host is a virtual machine (its processor says so)",
    ),
}


@pytest.mark.parametrize("kind", GUESTS)
def test_a_guest_is_refused_with_the_reason_and_nothing_is_changed_on_it(before, reports, kind):
    become, undo, words = GUESTS[kind]
    for host in HOSTS:
        on_host(host, become)
    try:
        said = refused(reports, tuning={"iommu": "passthrough", "acs": "off"})
        after = states()
    finally:
        for host in HOSTS:
            on_host(host, undo)

    assert said.count(f"tuning asks for iommu and acs, and {words}") >= len(HOSTS)
    assert "Take it out of the tuning of this host's stack.yml" in said
    assert {row["state"] for row in provision_json(reports)["hosts"].values()} == {"refused"}
    assert after == before


def test_a_host_whose_boot_loader_cannot_be_told_is_refused_with_what_to_do(before, reports):
    for tool, path in ALONE.values():
        host = next(host for host in HOSTS if ALONE[host][0] == tool)
        on_host(host, f"mv {path} {path}.away")
    try:
        said = refused(reports, tuning={"iommu": "passthrough"})
        after = states()
    finally:
        for host in HOSTS:
            on_host(host, f"mv {ALONE[host][1]}.away {ALONE[host][1]}")

    for tool, _ in ALONE.values():
        assert f"there is no {tool} on this host to tell its boot loader" in said
    assert "Set them by hand as that boot loader wants it and leave iommu in stack.yml" in said
    assert after == before


# GDRCopy


def gdrcopy(version: str) -> dict[str, Any]:
    """stack.yml's words for GDRCopy from the site's repository."""
    return {"gdrcopy": version, "repositories": {"gdrcopy": site_repository("gdrcopy")}}


def built_for(host: str) -> str:
    """The driver that the built module says it was built against. SIMULATED."""
    return on_host(host, f"sed -n s/^nvidia=//p /var/lib/dkms/gdrdrv/*/{RUNNING[host]}/x86_64/module/gdrdrv.ko")


GDRCOPY = {
    "lab-apt": {"gdrdrv-dkms 2.5.1-1", "libgdrapi 2.5.1-1", "gdrcopy 2.5.1-1"},
    "lab-dnf": {"gdrcopy-kmod 2.5.1-1dkms", "gdrcopy 2.5.1-1"},
}


def test_gdrcopy_comes_from_the_sites_repository_with_its_module_and_goes_again(before, reports):
    """The repository holds 2.6 as well, which nobody asked for."""
    provision(reports, **gdrcopy("2.5.1"))

    for host in HOSTS:
        assert packages(host) - before[host]["packages"] == GDRCOPY[host]
        held = "\n".join(set(holds(host)) - set(before[host]["holds"]))
        assert all(row.split()[0] in held for row in GDRCOPY[host])
        assert on_host(host, f"cat {GDRDRV_FILE}") == "gdrdrv"
        assert loaded(host, "gdrdrv")
        assert is_there(host, "/dev/gdrdrv")
    assert on_host("lab-dnf", "systemctl is-active gdrcopy; systemctl is-enabled gdrcopy").split() == [
        "active",
        "enabled",
    ]
    changes_nothing(reports)

    for host in HOSTS:
        reboot(host)
        assert loaded(host, "gdrdrv"), "modules-load.d loads it at boot"
    changes_nothing(reports)

    provision(reports)
    assert states() == before
    # What is loaded stays until the next boot.
    for host in HOSTS:
        assert loaded(host, "gdrdrv")
        reboot(host)
        assert not loaded(host, "gdrdrv")


def test_gdrcopys_module_follows_a_change_of_the_driver(before, reports):
    provision(reports, **gdrcopy("2.5.1"))
    first = {host: built_for(host) for host in HOSTS}

    provision(reports, driver="580.95.05", **gdrcopy("2.5.1"))

    for host in HOSTS:
        assert first[host] != "580.95.05"
        assert built_for(host) == "580.95.05"
        assert loaded(host, "gdrdrv")
    changes_nothing(reports)


def test_gdrcopy_without_a_repository_is_refused_before_anything_changes(before, reports):
    said = refused(reports, gdrcopy="2.5.1")

    assert (
        "GDRCopy needs a repository of the site's, and repositories: gdrcopy lacks url, key_url, key_fingerprint"
        in said
    )
    assert states() == before


# RDMA cards


def test_cards_without_ofed_get_no_peermem_and_the_plan_says_why(before, reports):
    """The P100 host has the proprietary modules, the H100 host the open ones."""
    said = " ".join(reasons(host) for host in HOSTS)

    assert "RDMA cards cannot reach GPU memory, their data goes through the host's: nvidia_peermem needs OFED" in said
    assert "DMA-BUF needs the open kernel modules, and the proprietary ones are planned" in said
    assert "Install DOCA-OFED and provision again" in said
    assert "the open kernel modules let them reach GPU memory by DMA-BUF, not nvidia_peermem" in said
    for host in HOSTS:
        assert not is_there(host, PEERMEM_FILE)
        assert not loaded(host, "nvidia_peermem")


def test_with_ofed_peermem_is_loaded_now_and_at_boot_once_the_driver_was_built_beside_it(before, reports):
    for host in HOSTS:
        on_host(host, f"{INSTALL[host]} {OFED[host]} >/dev/null 2>&1")
    with_ofed = states()

    # The driver is from before OFED: the kernel refuses the module, and the run says what to do.
    said = refused(reports)
    assert said.count("nvidia_peermem is only usable where OFED was there when the driver was built: run") >= len(HOSTS)
    for host, words in {"lab-apt": "dpkg-reconfigure --frontend noninteractive", "lab-dnf": "dnf"}.items():
        assert words in said, host

    module = {"lab-apt": "nvidia-dkms-580", "lab-dnf": "kmod-nvidia-open-dkms"}
    on_host("lab-apt", f"dpkg-reconfigure --frontend noninteractive {module['lab-apt']}")
    on_host("lab-dnf", f"dnf --assumeyes --quiet reinstall {module['lab-dnf']} 2>&1")
    for host in HOSTS:
        reboot(host)
    provision(reports)

    for host in HOSTS:
        assert on_host(host, f"cat {PEERMEM_FILE}") == "nvidia_peermem"
        assert loaded(host, "nvidia_peermem")
    changes_nothing(reports)
    for host in HOSTS:
        reboot(host)
        assert loaded(host, "nvidia_peermem"), "modules-load.d loads it at boot"
    changes_nothing(reports)

    # Without OFED the plan has it no more.
    assert with_ofed != before
    for host in HOSTS:
        on_host(host, f"{REMOVE[host]} {OFED[host]} >/dev/null 2>&1")
    provision(reports)
    for host in HOSTS:
        assert not is_there(host, PEERMEM_FILE)
        reboot(host)
        assert not loaded(host, "nvidia_peermem")


# Kernels


def test_every_installed_kernel_is_held_against_an_upgrade_and_let_go_again(before, reports):
    """Two kernels each, and a third in the host's package source."""
    for host in HOSTS:
        assert NEWER[host] in on_host(host, UPGRADE[host])

    provision(reports, kernel_lock="hold")

    held = {host: set(holds(host)) - set(before[host]["holds"]) for host in HOSTS}
    assert {f"linux-image-{release[host]}" for release in (OLDER, RUNNING) for host in ["lab-apt"]} <= held["lab-apt"]
    assert "linux-image-generic" in held["lab-apt"]
    for release in (OLDER, RUNNING):
        version = release["lab-dnf"].removesuffix(".x86_64")
        assert any(entry.startswith("kernel-core-") and version in entry for entry in held["lab-dnf"])
    for host in HOSTS:
        assert NEWER[host] not in on_host(host, UPGRADE[host])
    changes_nothing(reports)

    provision(reports)
    assert states() == before
    for host in HOSTS:
        assert NEWER[host] in on_host(host, UPGRADE[host])


# Everything at once


def test_deprovision_takes_all_of_it_along_and_reboots_without_the_arguments(before, bare, reports):
    provision(reports, kernel_lock="hold", tuning={"iommu": "passthrough", "acs": "off"}, **gdrcopy("2.5.1"))

    deprovisioned(reports)

    assert states() == bare
    assert not is_there("lab-apt", GRUB_FILE)
    for host in HOSTS:
        assert not loaded(host, "gdrdrv")
        assert not loaded(host, "nvidia")
