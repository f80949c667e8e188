"""nvidia_peermem and held kernels on an apt and a dnf host, from the specification and back again.

Package managers, systemd, update-grub and setpci are real on the hosts, which appear as bare metal (SIMULATED, see
bare_metal.py). The module nvidia_peermem is a stand-in that loads by the real one's rules.

Every test begins with hosts that have the driver alone, and most end by showing that they are again exactly that.
"""

import pytest

from tests.lab.bare_metal import (
    GRUB_FILE,
    HOSTS,
    OLDER,
    RUNNING,
    changes_nothing,
    deprovisioned,
    holds,
    is_there,
    loaded,
    on_host,
    provision,
    reboot,
    refused,
    states,
)

pytestmark = pytest.mark.more_labs

PEERMEM_FILE = "/etc/modules-load.d/gpucheck-nvidia-peermem.conf"
OFED = {"lab-apt": "mlnx-ofed-kernel-dkms", "lab-dnf": "kmod-mlnx-ofa_kernel"}
INSTALL = {"lab-apt": "apt-get -qq install --yes", "lab-dnf": "dnf --quiet --assumeyes install"}
REMOVE = {"lab-apt": "apt-get -qq purge --yes", "lab-dnf": "dnf --quiet --assumeyes remove"}
# What an upgrade of the whole system would install, said and not done.
UPGRADE = {"lab-apt": "apt-get --simulate dist-upgrade", "lab-dnf": "dnf --assumeno upgrade 2>&1 || true"}
NEWER = {"lab-apt": "linux-image-5.15.0-181-generic", "lab-dnf": "503.19.1.el9_5"}


def test_with_ofed_peermem_is_loaded_now_and_at_boot_once_the_driver_was_built_beside_it(driver_alone, reports):
    for host in HOSTS:
        on_host(host, f"{INSTALL[host]} {OFED[host]} >/dev/null 2>&1")
    with_ofed = states()

    # The driver is from before OFED: the kernel refuses the module, and the run says what to do.
    said = refused(reports)
    assert said.count("nvidia_peermem works only if OFED was installed when the driver was built: run") >= len(HOSTS)
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
    assert with_ofed != driver_alone
    for host in HOSTS:
        on_host(host, f"{REMOVE[host]} {OFED[host]} >/dev/null 2>&1")
    provision(reports)
    for host in HOSTS:
        assert not is_there(host, PEERMEM_FILE)
        reboot(host)
        assert not loaded(host, "nvidia_peermem")


def test_every_installed_kernel_is_held_against_an_upgrade_and_let_go_again(driver_alone, reports):
    """Two kernels each, and a third in the host's package source."""
    for host in HOSTS:
        assert NEWER[host] in on_host(host, UPGRADE[host])

    provision(reports, kernel_lock="hold")

    held = {host: set(holds(host)) - set(driver_alone[host]["holds"]) for host in HOSTS}
    assert {f"linux-image-{release[host]}" for release in (OLDER, RUNNING) for host in ["lab-apt"]} <= held["lab-apt"]
    assert "linux-image-generic" in held["lab-apt"]
    for release in (OLDER, RUNNING):
        version = release["lab-dnf"].removesuffix(".x86_64")
        assert any(entry.startswith("kernel-core-") and version in entry for entry in held["lab-dnf"])
    for host in HOSTS:
        assert NEWER[host] not in on_host(host, UPGRADE[host])
    changes_nothing(reports)

    provision(reports)
    assert states() == driver_alone
    for host in HOSTS:
        assert NEWER[host] in on_host(host, UPGRADE[host])


def test_deprovision_takes_all_of_it_along_and_reboots_without_the_arguments(driver_alone, bare_metal, reports):
    provision(reports, kernel_lock="hold", tuning={"iommu": "passthrough", "acs": "off"})

    deprovisioned(reports)

    assert states() == bare_metal
    assert not is_there("lab-apt", GRUB_FILE)
    for host in HOSTS:
        assert not loaded(host, "nvidia")
