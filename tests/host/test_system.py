"""The operating system around the GPUs: os-release, and whether the machine is a real one."""

import pytest

from gpucheck.host.readers.system import os_release
from gpucheck.host.system import read_system

ROCKY = """
NAME="Rocky Linux"
VERSION_ID="9.6"
# a comment = no key
ID=rocky
ID_LIKE='rhel centos fedora'
PRETTY_NAME="Rocky Linux 9.6 (Blue Onyx)"
"""
# cpuinfo has Features there and no line of flags.
ARM = "processor\t: 0\nFeatures\t: fp asimd evtstrm aes\nCPU part\t: 0xd4f\n"
# /proc/self/mountinfo of a pod under containerd, of a rootless podman, of a host, and the line that enroot adds.
OVERLAY = "1030 990 0:94 / / rw,relatime master:271 - overlay overlay rw,lowerdir=/var/lib/containerd/1/fs\n"
FUSE = "598 537 0:46 / / ro,nodev,relatime - fuse.fuse-overlayfs fuse-overlayfs rw,user_id=0\n"
PARTITION = "29 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n"
ENROOT = "71 29 259:2 /enroot/data/app/.lock /.lock ro,nosuid,nodev,noexec - ext4 /dev/nvme0n1p2 rw\n"


@pytest.fixture
def system(tmp_path, monkeypatch):
    """Read a system made of these files."""
    for name in ("container", "KUBERNETES_SERVICE_HOST", "APPTAINER_NAME", "SINGULARITY_NAME"):
        monkeypatch.delenv(name, raising=False)

    def system(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return read_system(tmp_path, tmp_path)

    return system


def test_os_release_is_read_with_its_quotes(system):
    seen = system({"etc/os-release": ROCKY})

    assert (seen.os_id, seen.os_version, seen.os_name) == ("rocky", "9.6", "Rocky Linux 9.6 (Blue Onyx)")
    assert seen.arch
    assert seen.hostname


def test_open_quote_is_no_reason_to_fail(system):
    assert system({"etc/os-release": 'ID=odd\nPRETTY_NAME="Odd Linux\n'}).os_name == "Odd Linux"


def test_second_place_of_os_release(system, tmp_path):
    assert system({"usr/lib/os-release": ROCKY}).os_id == "rocky"
    assert os_release(tmp_path)["ID_LIKE"] == "rhel centos fedora"


def test_system_without_os_release(system):
    assert (system({}).os_id, system({}).os_name) == ("linux", "Linux")


@pytest.mark.parametrize(
    ("files", "virtual"),
    [
        ({}, None),
        ({"sys/class/dmi/id/sys_vendor": "QEMU\n"}, "kvm"),
        ({"sys/class/dmi/id/product_name": "VMware Virtual Platform\n"}, "vmware"),
        ({"sys/class/dmi/id/sys_vendor": "Amazon EC2\n", "sys/class/dmi/id/product_name": "p4d.24xlarge\n"}, "amazon"),
        ({"sys/class/dmi/id/sys_vendor": "Amazon EC2\n", "sys/class/dmi/id/product_name": "g4dn.metal\n"}, None),
        (
            {
                "sys/class/dmi/id/sys_vendor": "Microsoft Corporation\n",
                "sys/class/dmi/id/product_name": "Virtual Machine\n",
            },
            "microsoft",
        ),
        ({"sys/class/dmi/id/sys_vendor": "Microsoft Corporation\n", "sys/class/dmi/id/product_name": "C2030\n"}, None),
        ({"sys/class/dmi/id/sys_vendor": "Supermicro\n"}, None),
        ({"sys/hypervisor/type": "xen\n"}, "xen"),
        ({"proc/cpuinfo": "processor : 0\nflags\t\t: fpu vme hypervisor lm\n"}, "vm"),
        ({"proc/cpuinfo": "processor : 0\nflags\t\t: fpu vme lm\n"}, None),
        ({".dockerenv": ""}, None),
        ({"dev/dxg": "", "proc/cpuinfo": "processor : 0\nflags\t\t: fpu vme hypervisor lm\n"}, "wsl"),
        ({"proc/cpuinfo": ARM}, None),
        ({"proc/cpuinfo": ARM, "proc/device-tree/hypervisor/compatible": "linux,kvm\0"}, "kvm"),
        ({"proc/cpuinfo": ARM, "proc/device-tree/hypervisor/compatible": "xen,xen-4.17\0xen,xen\0"}, "xen"),
    ],
)
def test_the_hypervisor_is_named(system, files, virtual):
    """It hides the real PCI tree, so the checks judge widths by it."""
    assert system(files).virtual == virtual


@pytest.mark.parametrize(
    ("files", "container"),
    [
        ({}, None),
        ({".dockerenv": ""}, "docker"),
        ({"run/.containerenv": ""}, "podman"),
        ({"run/systemd/container": "lxc\n"}, "lxc"),
        ({".dockerenv": "", "sys/class/dmi/id/sys_vendor": "QEMU\n"}, "docker"),
        ({"sys/class/dmi/id/sys_vendor": "QEMU\n"}, None),
        ({"proc/self/mountinfo": OVERLAY}, "container"),
        ({"proc/self/mountinfo": FUSE}, "container"),
        ({"proc/self/mountinfo": OVERLAY, ".dockerenv": ""}, "docker"),
        ({"proc/self/mountinfo": OVERLAY, "run/systemd/system/x": ""}, None),
        ({"proc/self/mountinfo": PARTITION}, None),
        ({"proc/self/mountinfo": OVERLAY + PARTITION}, None),
        ({"proc/self/mountinfo": PARTITION + ENROOT}, "enroot"),
        ({"proc/self/mountinfo": "\n12 34\n"}, None),
    ],
)
def test_the_container_is_named_in_addition_to_the_hypervisor(system, files, container):
    """A container on a virtual machine is both; neither excuses the other's limits.

    containerd and CRI-O leave no marker file. A network-booted host has an overlay as root too, and runs systemd.
    """
    assert system(files).container == container


@pytest.mark.parametrize(
    ("variable", "container"),
    [
        ("KUBERNETES_SERVICE_HOST", "kubernetes"),
        ("APPTAINER_NAME", "apptainer"),
        ("SINGULARITY_NAME", "singularity"),
        ("container", "lxc"),
    ],
)
def test_container_is_detected_by_the_variable_of_its_runtime(system, monkeypatch, variable, container):
    """A pod under containerd has neither /.dockerenv nor /run/.containerenv."""
    monkeypatch.setenv(variable, "lxc")

    assert system({}).container == container


def test_a_simulated_machine_is_in_no_container(tmp_path):
    """The lab's hosts are containers, and the machines simulated in them are whole."""
    (tmp_path / ".dockerenv").touch()

    assert read_system(tmp_path / "simulated", tmp_path).container is None
