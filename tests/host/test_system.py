"""The operating system around the GPUs: os-release, and whether the machine is a real one."""

import pytest

from gpucheck.host.system import os_release, read_system

ROCKY = """
NAME="Rocky Linux"
VERSION_ID="9.6"
# a comment = no key
ID=rocky
ID_LIKE='rhel centos fedora'
PRETTY_NAME="Rocky Linux 9.6 (Blue Onyx)"
"""


@pytest.fixture
def system(tmp_path, monkeypatch):
    """Read a system made of these files."""
    monkeypatch.delenv("container", raising=False)

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


def test_second_place_of_os_release(tmp_path):
    (tmp_path / "usr/lib").mkdir(parents=True)
    (tmp_path / "usr/lib/os-release").write_text(ROCKY)

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
    ],
)
def test_the_container_is_named_beside_the_hypervisor(system, files, container):
    """A container on a virtual machine is both; neither excuses the other's limits."""
    assert system(files).container == container


def test_a_simulated_machine_is_in_no_container(tmp_path):
    """The lab's hosts are containers, and the machines simulated in them are whole."""
    (tmp_path / ".dockerenv").touch()

    assert read_system(tmp_path / "simulated", tmp_path).container is None


@pytest.mark.parametrize(("compatible", "kind"), [("linux,kvm\0", "kvm"), ("xen,xen-4.17\0xen,xen\0", "xen")])
def test_virtual_machine_on_arm_is_told_by_the_device_tree(tmp_path, compatible, kind):
    """Its cpuinfo has Features and no line of flags."""
    (tmp_path / "proc/device-tree/hypervisor").mkdir(parents=True)
    (tmp_path / "proc/device-tree/hypervisor/compatible").write_text(compatible)
    (tmp_path / "proc/cpuinfo").write_text("processor\t: 0\nFeatures\t: fp asimd evtstrm aes\nCPU part\t: 0xd4f\n")

    assert read_system(tmp_path, tmp_path).virtual == kind


def test_arm_server_without_a_hypervisor(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("processor\t: 0\nFeatures\t: fp asimd evtstrm aes\nCPU part\t: 0xd4f\n")

    assert read_system(tmp_path, tmp_path).virtual is None
