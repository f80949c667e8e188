"""A lab host's file tree in a temporary folder, and the programs around its stand-in kernel."""

import os
import subprocess
from pathlib import Path

from gpucheck import simulator
from gpucheck.lab.model import HOSTS

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
