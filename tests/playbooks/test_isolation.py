"""Bare metal or a guest, and ACS on the bridges above GPUs: on a machine that the tests make up."""

import struct

import pytest

from tests.playbooks.modules import shared
from tests.playbooks.stubs import put

isolation = shared("isolation")


def firmware(root, vendor, product):
    put(root, "sys/class/dmi/id/sys_vendor", f"{vendor}\n")
    put(root, "sys/class/dmi/id/product_name", f"{product}\n")


@pytest.mark.parametrize(
    ("vendor", "product"),
    [("Supermicro", "SYS-821GE-TNHR"), ("NVIDIA", "DGXH100"), ("Amazon EC2", "p5.metal-48xl"), ("Microsoft", "C2195")],
)
def test_a_machine_that_nothing_speaks_against_is_bare_metal(tmp_path, vendor, product):
    firmware(tmp_path, vendor, product)
    put(tmp_path, "proc/cpuinfo", "flags\t\t: fpu vme svm\n")
    put(tmp_path, "proc/1/environ", "HOME=/\0TERM=linux\0")

    assert isolation.guest(str(tmp_path)) is None


@pytest.mark.parametrize(
    ("path", "content", "kind"),
    [
        ("run/systemd/container", "docker", "a container"),
        (".dockerenv", "", "a container"),
        ("proc/1/environ", "container=lxc\0TERM=linux\0", "a container"),
        ("sys/hypervisor/type", "xen\n", "a virtual machine (xen)"),
        ("sys/class/dmi/id/sys_vendor", "QEMU\n", "a virtual machine (QEMU)"),
        ("sys/class/dmi/id/product_name", "Virtual Machine\n", "a virtual machine (Virtual Machine)"),
        ("sys/class/dmi/id/sys_vendor", "Amazon EC2\n", "a virtual machine (Amazon EC2)"),
        ("proc/cpuinfo", "flags\t\t: fpu hypervisor lahf_lm\n", "a virtual machine (processor flag)"),
    ],
)
def test_any_evidence_makes_it_a_guest(tmp_path, path, content, kind):
    put(tmp_path, path, content)

    assert isolation.guest(str(tmp_path)) == kind


@pytest.mark.parametrize(
    ("plan", "asked"),
    [
        ({"components": {}, "tuning": {"boot": {"arguments": ["iommu=pt"]}}}, "iommu"),
        ({"components": {"acs": {"packages": []}}}, "acs"),
        ({"components": {"acs": {"packages": []}}, "tuning": {"boot": {"arguments": ["iommu=pt"]}}}, "iommu and acs"),
    ],
)
def test_a_guest_is_refused_with_the_way_out_and_only_where_it_is_asked(tmp_path, plan, asked):
    (tmp_path / ".dockerenv").touch()

    (words,) = isolation.refusals(plan, str(tmp_path))

    assert words.startswith(f"tuning requires {asked}, but this host is a container:")
    assert "ask the administrator of that machine" in words
    assert isolation.refusals({"components": {}, "tuning": {"files": [], "live": []}}, str(tmp_path)) == []
    (tmp_path / ".dockerenv").unlink()
    assert isolation.refusals(plan, str(tmp_path)) == []


def space(control):
    """A configuration space with this control register of ACS; None = without ACS."""
    config = bytearray(4096)
    if control is not None:
        struct.pack_into("<IHH", config, 0x100, 0x000D | 1 << 16, 0x1F, control)
    return bytes(config)


@pytest.fixture
def machine(tmp_path):
    """A GPU and a network card, each below a bridge of its own; both bridges have ACS on."""
    (tmp_path / "sys/bus/pci/devices").mkdir(parents=True)
    for bridge, device, vendor, kind in (
        ("0000:40:01.0", "0000:41:00.0", "0x10de", "0x030200"),
        ("0000:40:02.0", "0000:42:00.0", "0x15b3", "0x020000"),
    ):
        for path, row in ((bridge, ("0x8086", "0x060400")), (f"{bridge}/{device}", (vendor, kind))):
            folder = f"sys/devices/pci0000:40/{path}"
            put(tmp_path, f"{folder}/vendor", f"{row[0]}\n")
            put(tmp_path, f"{folder}/class", f"{row[1]}\n")
            config = put(tmp_path, f"{folder}/config", space(0x1D if path == bridge else None))
            (tmp_path / "sys/bus/pci/devices" / path.split("/")[-1]).symlink_to(config.parent)
    return tmp_path


def test_only_the_bridges_above_gpus_count(machine):
    assert isolation.bridges(str(machine)) == ["0000:40:01.0"]
    assert isolation.acs_words(str(machine)) == ["ACS is on at bridge 0000:40:01.0 (control 001d), planned off"]

    put(machine, "sys/devices/pci0000:40/0000:40:01.0/config", space(0))

    assert isolation.acs_words(str(machine)) == []
