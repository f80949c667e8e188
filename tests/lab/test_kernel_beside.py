"""What stands beside a lab host's driver: modules that need it, boot entries, and a look of bare metal."""

import pytest

from gpucheck.host.readers.kernels import SECURE_BOOT
from tests.lab.stand_in_kernel import Host, ready


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path, "p100-pcie-x2")


def test_peer_memory_needs_a_driver_that_was_built_beside_ofed(host):
    ready(host)
    host.call("boot")
    host.install("580.178.04", "proprietary")
    (host.root / "usr/src/ofa_kernel").mkdir(parents=True)

    refused = host.call("modprobe", "nvidia_peermem")
    assert refused.returncode == 1
    assert "built without OFED" in refused.stderr

    host.install("580.178.04", "proprietary")
    host.run("modprobe", "nvidia_peermem")
    assert (host.machine / "root/sys/module/nvidia_peermem").is_dir()
    assert "nvidia_peermem" in host.run("lsmod")


# Bare metal

ENTRY = "title Rocky Linux ({release})\nversion {release}\nlinux /vmlinuz-{release}\noptions root=/dev/x ro quiet\n"


def bare_metal(host, *releases):
    """A host that appears as bare metal, with a boot entry for each of these kernels."""
    (host.root / "usr/share/gpucheck-lab/bare-metal").touch()
    entries = host.root / "boot/loader/entries"
    entries.mkdir(parents=True)
    for release in releases:
        (entries / f"lab-{release}.conf").write_text(ENTRY.format(release=release))


def osrelease(host):
    return (host.machine / "root/proc/sys/kernel/osrelease").read_text().strip()


def arguments(host):
    return (host.machine / "root/proc/cmdline").read_text().split()


def test_the_kernels_arguments_are_those_of_its_own_boot_entry_at_the_next_boot(host):
    bare_metal(host, "4.1.0", host.kernel)

    host.run("grubby", "--update-kernel=ALL", "--args=iommu=pt")
    host.call("boot")
    assert arguments(host) == [f"BOOT_IMAGE=(hd0,gpt2)/vmlinuz-{host.kernel}", "root=/dev/x", "ro", "quiet", "iommu=pt"]

    host.run("grubby", "--update-kernel=ALL", "--args=a=1", "--remove-args=iommu=pt quiet")
    assert host.run("grubby", "--info=ALL").count('args="root=/dev/x ro a=1"') == 2
    assert "iommu=pt" in arguments(host)
    host.call("boot")
    assert arguments(host)[1:] == ["root=/dev/x", "ro", "a=1"]


def test_grubs_first_entry_gives_the_kernel_and_its_arguments(host):
    bare_metal(host)
    (host.root / "boot/grub").mkdir()
    (host.root / "boot/grub/grub.cfg").write_text(
        "\tlinux\t/boot/vmlinuz-9.9.9 root=/dev/sda1 ro  quiet iommu=pt\n"
        "\t\tlinux\t/boot/vmlinuz-9.9.9 root=/dev/sda1 ro single\n"
        f"\t\tlinux\t/boot/vmlinuz-{host.kernel} root=/dev/y\n"
    )

    host.call("boot")

    assert arguments(host)[1:] == ["root=/dev/sda1", "ro", "quiet", "iommu=pt"]
    assert osrelease(host) == "9.9.9"


# Secure Boot

VARIABLE = f"usr/share/gpucheck-lab/machine/root/{SECURE_BOOT}"


@pytest.fixture
def certificate(host):
    """Secure Boot is on, and DKMS has a key of the site's."""
    (host.root / VARIABLE).write_bytes(b"\6\0\0\0\1")
    path = host.root / "etc/site/mok.der"
    path.parent.mkdir()
    path.write_text("certificate")
    settings = host.root / "etc/dkms/framework.conf.d"
    settings.mkdir(parents=True)
    (settings / "site.conf").write_text("mok_certificate=/etc/site/mok.der\n")
    ready(host)
    return path


def test_with_secure_boot_a_module_loads_once_its_key_is_enrolled_at_a_boot(host, certificate):
    host.call("boot")
    host.install("580.178.04", "proprietary")
    assert "Key was rejected by service" in host.call("modprobe", "nvidia").stderr
    assert "is not enrolled" in host.run("mokutil", "--test-key", str(certificate))

    host.run("mokutil", "--import", str(certificate))
    waiting = host.call("mokutil", "--test-key", str(certificate))
    assert (waiting.returncode, "already in the enrollment request" in waiting.stdout) == (1, True)
    assert host.loaded() is None

    host.call("boot")
    assert "is already enrolled" in host.call("mokutil", "--test-key", str(certificate)).stdout
    assert host.loaded() == "580.178.04"
