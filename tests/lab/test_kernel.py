"""Which module a lab host has loaded follows the real rules, step by step, on a tree in a temporary folder.

Modules beside the driver, boot entries and Secure Boot are in the labs of bare metal.
"""

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
        recipe = simulator.Recipe(profile=simulator.load(profile), driver=None, kernel=self.kernel)
        simulator.write_machine(recipe, root / "usr/share/gpucheck-lab/machine")
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


def ready(host):
    """Headers, no nouveau, and that in the initramfs."""
    host.headers()
    host.blacklist()
    host.run("update-initramfs", "-u")


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path, "p100-pcie-x2")


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


def looks_as_written(host, folder, state):
    """Fail unless the host's tree is the simulator's for a driver in this state, but for what is the lab's own."""
    recipe = simulator.Recipe(profile=simulator.load(host.profile), driver=state, kernel=host.kernel)
    simulator.write_machine(recipe, folder)
    seen, expected = tree(host.machine / "root"), tree(folder / "root")
    # The kernel's release, and the headers that the module was built with.
    seen.pop("proc/sys/kernel/osrelease", None)
    expected.pop("proc/sys/kernel/osrelease", None)
    assert seen == expected


@pytest.mark.parametrize(
    ("profile", "flavour"), [("p100-pcie-x2", "proprietary"), ("hgx-h100-x8", "open"), ("hgx-h100-x8", "proprietary")]
)
def test_a_loaded_driver_looks_as_the_simulator_writes_it(tmp_path, profile, flavour):
    """Every file and link of the tree, so that readers need not know who wrote it."""
    host = Host(tmp_path / "host", profile)
    ready(host)
    host.install("580.178.04", flavour)
    host.call("boot")
    state = DriverState(
        loaded_version="580.178.04", loaded_flavour=flavour, installed_version="580.178.04", installed_flavour=flavour
    )

    looks_as_written(host, tmp_path / "expected", state)


def test_nouveau_looks_as_the_simulator_writes_it(host, tmp_path):
    looks_as_written(host, tmp_path / "expected", DriverState(nouveau_loaded=True))


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
