"""Which module a lab host has loaded follows the real rules, step by step, on a tree in a temporary folder."""

import os
import subprocess
from pathlib import Path

import pytest

from gpucheck import simulator
from gpucheck.lab.model import HOSTS
from gpucheck.model import DriverState

PROGRAMS = Path(__file__).parents[2] / "images/lab/rootfs/usr/lib/gpucheck-lab/programs.py"
KERNELS = {host.profile: host.kernel for host in HOSTS}


class Host:
    """A lab host's file tree, and the programs run on it by their names."""

    def __init__(self, root: Path, profile: str) -> None:
        self.root, self.profile, self.kernel = root, profile, KERNELS[profile]
        self.state = root / "var/lib/gpucheck-lab"
        self.machine = root / "run/gpucheck-simulator"
        (root / "etc/modprobe.d").mkdir(parents=True)
        (root / "usr/lib/gpucheck-lab").mkdir(parents=True)
        (root / "usr/sbin").mkdir()
        (root / "usr/lib/gpucheck-lab/kernel-release").write_text(f"{self.kernel}\n")
        simulator.write_machine(
            simulator.load(profile), root / "usr/share/gpucheck-lab/machine", driver=None, kernel=self.kernel
        )
        self.call("boot")

    def call(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        link = self.root / "usr/sbin" / name
        if not link.is_symlink():
            link.symlink_to(PROGRAMS)
        return subprocess.run(
            [str(link), *arguments],
            env={**os.environ, "GPUCHECK_LAB_ROOT": str(self.root), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )

    def run(self, name: str, *arguments: str) -> str:
        done = self.call(name, *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def headers(self) -> None:
        (self.root / "lib/modules" / self.kernel / "build").mkdir(parents=True)

    def install(self, version: str, flavour: str) -> str:
        license_ = {"open": "Dual MIT/GPL", "proprietary": "NVIDIA"}[flavour]
        return self.run("dkms", "add", "-v", version, "-l", license_)

    def blacklist(self) -> None:
        (self.root / "etc/modprobe.d/no-nouveau.conf").write_text("# ours\nblacklist nouveau\n")

    def loaded(self) -> str | None:
        path = self.machine / "root/sys/module/nvidia/version"
        return path.read_text().strip() if path.exists() else None

    def has_nouveau(self) -> bool:
        return (self.machine / "root/sys/module/nouveau").exists()


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path, "p100-pcie-x2")


def ready(host):
    """Headers, no nouveau, and that in the initramfs."""
    host.headers()
    host.blacklist()
    host.run("update-initramfs", "-u")


def test_a_bare_host_boots_into_nouveau(host):
    assert (host.has_nouveau(), host.loaded()) == (True, None)
    assert (host.state / "boots").read_text() == "1\n"
    assert "nouveau" in host.run("lsmod")


def test_the_blacklist_counts_only_once_it_is_in_the_initramfs(host):
    host.headers()
    host.install("580.178.04", "proprietary")
    host.blacklist()
    host.call("boot")
    assert host.has_nouveau()
    assert (host.state / "boots").read_text() == "2\n"

    host.run("update-initramfs", "-u")
    host.call("boot")
    assert (host.has_nouveau(), host.loaded()) == (False, "580.178.04")


def test_a_blacklist_that_was_taken_away_again_does_not_count(host):
    ready(host)
    host.install("580.178.04", "proprietary")
    (host.root / "etc/modprobe.d/no-nouveau.conf").unlink()

    host.call("boot")

    assert host.has_nouveau()


def test_the_driver_waits_for_a_reboot_while_nouveau_holds_the_gpus(host):
    host.headers()

    host.install("580.178.04", "proprietary")

    assert host.loaded() is None
    assert host.run("modinfo", "-F", "version", "nvidia") == "580.178.04\n"
    refused = host.call("modprobe", "nvidia")
    assert refused.returncode == 1
    assert "nouveau holds the GPUs" in refused.stderr


def test_without_nouveau_the_driver_is_loaded_at_once(host):
    ready(host)
    host.call("boot")

    host.install("580.178.04", "proprietary")

    assert host.loaded() == "580.178.04"
    assert (host.root / "dev/nvidiactl").exists()


def test_an_upgrade_stays_out_of_the_kernel_until_the_reboot(host):
    """The old module answers, the new library speaks: NVML's version mismatch."""
    ready(host)
    host.call("boot")
    host.install("580.95.05", "proprietary")

    host.install("580.178.04", "proprietary")
    # What the old package's removal script does after the new one is in place.
    host.run("dkms", "remove", "-v", "580.95.05")

    assert host.loaded() == "580.95.05"
    assert host.run("modinfo", "-F", "version", "nvidia") == "580.178.04\n"
    host.call("boot")
    assert host.loaded() == "580.178.04"


def test_without_headers_dkms_says_added_and_succeeds(host):
    """The real trap: the package installs cleanly and there is no module."""
    said = host.install("580.178.04", "proprietary")

    assert "skipped since the kernel headers" in said
    assert host.run("dkms", "status") == "nvidia/580.178.04: added\n"
    host.headers()
    host.run("dkms", "autoinstall")
    assert host.run("dkms", "status") == f"nvidia/580.178.04, {host.kernel}, x86_64: installed\n"


def test_the_open_module_does_not_take_a_pascal_gpu(host):
    ready(host)
    host.call("boot")

    said = host.install("580.178.04", "open")

    assert host.loaded() is None
    assert "the open kernel module does not support the GPU 10de:15f8" in said


def test_removing_the_driver_takes_the_module_from_the_next_boot(host):
    ready(host)
    host.install("580.178.04", "proprietary")

    host.run("dkms", "remove", "-v", "580.178.04")

    assert host.call("modinfo", "nvidia").returncode == 1
    host.call("boot")
    assert (host.loaded(), host.has_nouveau()) == (None, False)


def test_unloading_leaves_nothing_of_the_driver_behind(host):
    ready(host)
    host.call("boot")
    host.install("580.178.04", "proprietary")

    host.run("modprobe", "-r", "nvidia")

    assert host.loaded() is None
    assert not (host.root / "dev/nvidiactl").exists()
    assert host.run("lsmod").splitlines()[1:] == []


@pytest.mark.parametrize(("profile", "flavour"), [("p100-pcie-x2", "proprietary"), ("hgx-h100-x8", "open")])
def test_a_loaded_driver_looks_as_the_simulator_writes_it(tmp_path, profile, flavour):
    """Every file and link of the tree, so that readers need not know who wrote it."""
    host = Host(tmp_path / "host", profile)
    ready(host)
    host.install("580.178.04", flavour)
    host.call("boot")
    state = DriverState(
        loaded_version="580.178.04",
        loaded_flavour=flavour,
        installed_version="580.178.04",
        installed_flavour=flavour,
    )
    simulator.write_machine(simulator.load(profile), tmp_path / "wanted", driver=state, kernel=host.kernel)

    seen, wanted = tree(host.machine / "root"), tree(tmp_path / "wanted/root")

    # The lab's own: the kernel's release, and the headers that the module was built with.
    seen.pop("proc/sys/kernel/osrelease", None)
    wanted.pop("proc/sys/kernel/osrelease", None)
    assert seen == wanted


def test_nouveau_looks_as_the_simulator_writes_it(host, tmp_path):
    state = DriverState(nouveau_loaded=True)
    simulator.write_machine(simulator.load(host.profile), tmp_path / "wanted", driver=state, kernel=host.kernel)

    seen, wanted = tree(host.machine / "root"), tree(tmp_path / "wanted/root")

    seen.pop("proc/sys/kernel/osrelease", None)
    wanted.pop("proc/sys/kernel/osrelease", None)
    assert seen == wanted


def tree(root: Path) -> dict[str, str]:
    """Every file's text and every link's target, by path."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_file():
            found[name] = path.read_bytes().hex()
    return found


# Modules that need the driver's


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


def test_gdrdrv_loads_only_beside_the_driver_that_it_was_built_against(host):
    ready(host)
    host.call("boot")
    (host.root / "dev").mkdir(exist_ok=True)
    assert "skipped" in host.run("gdrdrv", "add", "2.5.1")
    assert "not found" in host.call("modprobe", "gdrdrv").stderr
    host.install("580.95.05", "proprietary")
    host.run("gdrdrv", "add", "2.5.1")
    host.run("modprobe", "gdrdrv")
    assert (host.root / "dev/gdrdrv").exists()

    host.install("580.178.04", "proprietary")
    host.run("modprobe", "-r", "gdrdrv")
    assert not (host.root / "dev/gdrdrv").exists()
    host.call("boot")

    assert "built for another driver than 580.178.04" in host.call("modprobe", "gdrdrv").stderr
    host.run("gdrdrv", "add", "2.5.1")
    host.run("modprobe", "gdrdrv")
    assert "gdrdrv" in host.run("lsmod")


def test_what_modules_load_d_names_is_loaded_at_boot(host):
    ready(host)
    (host.root / "usr/src/ofa_kernel").mkdir(parents=True)
    host.install("580.178.04", "proprietary")
    (host.root / "etc/modules-load.d").mkdir()
    (host.root / "etc/modules-load.d/x.conf").write_text("# ours\nnvidia_peermem\n")

    host.call("boot")

    assert (host.machine / "root/sys/module/nvidia_peermem").is_dir()


def test_dkms_keeps_the_built_driver_where_the_real_one_does(host):
    ready(host)
    host.install("580.95.05", "proprietary")
    host.install("580.178.04", "proprietary")

    def kept():
        return [path.relative_to(host.root).as_posix() for path in host.root.glob("var/lib/dkms/nvidia/*/*/*/module/*")]

    assert kept() == [f"var/lib/dkms/nvidia/580.178.04/{host.kernel}/x86_64/module/nvidia.ko"]
    host.run("dkms", "remove", "-v", "580.178.04")
    assert kept() == []


# Bare metal

ENTRY = "title Rocky Linux ({release})\nversion {release}\nlinux /vmlinuz-{release}\noptions root=/dev/x ro quiet\n"


def bare_metal(host, *releases):
    """A host that appears as bare metal, with a boot entry for each of these kernels."""
    (host.root / "usr/share/gpucheck-lab/bare-metal").touch()
    entries = host.root / "boot/loader/entries"
    entries.mkdir(parents=True)
    for release in releases:
        (entries / f"lab-{release}.conf").write_text(ENTRY.format(release=release))


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


def test_grubs_first_entry_of_the_running_kernel_gives_its_arguments(host):
    bare_metal(host)
    (host.root / "boot/grub").mkdir()
    (host.root / "boot/grub/grub.cfg").write_text(
        "\tlinux\t/boot/vmlinuz-9.9.9 root=/dev/y\n"
        f"\tlinux\t/boot/vmlinuz-{host.kernel} root=/dev/sda1 ro  quiet iommu=pt\n"
        f"\t\tlinux\t/boot/vmlinuz-{host.kernel} root=/dev/sda1 ro single\n"
    )

    host.call("boot")

    assert arguments(host)[1:] == ["root=/dev/sda1", "ro", "quiet", "iommu=pt"]


def test_processors_of_bare_metal_do_not_say_that_they_are_a_hypervisors(host):
    bare_metal(host)

    host.call("boot")

    seen = (host.machine / "root/proc/cpuinfo").read_text()
    assert "flags" in seen
    assert "hypervisor" not in seen
