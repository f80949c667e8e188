"""The plan's files: what modprobe, the package manager and logins read on a host."""

from typing import Any

from gpucheck.knowledge.packages import packages
from gpucheck.stack.settings import module_options
from gpucheck.stack.settings.imex import imex_files
from gpucheck.stack.spec import Wish
from gpucheck.stack.types import StackSet

NOUVEAU = "blacklist nouveau\noptions nouveau modeset=0\n"
UNATTENDED = """// NVIDIA packages move only as a whole set: an unattended fabric manager upgrade has stopped clusters.
Unattended-Upgrade::Package-Blacklist {
    "nvidia-.*";
    "libnvidia-.*";
    "cuda-.*";
    "libnccl.*";
    "libcudnn.*";
    "libcublas.*";
    "libcufft.*";
    "libcufile.*";
    "libcurand.*";
    "libcusolver.*";
    "libcusparse.*";
    "libnpp.*";
    "libnvfatbin.*";
    "libnvjitlink.*";
    "libnvjpeg.*";
    "gds-tools-.*";
    "nsight-.*";
};
"""
# The pinning package does the same, but is not in force yet while the transaction that installs it is computed.
PIN = """# Every part of the driver at one version, also what is pulled in as a dependency.
Package: nvidia-* libnvidia-* libcuda1 cuda-drivers* firmware-nvidia-* libxnvctrl* xserver-xorg-video-nvidia*
Pin: version {version}*
Pin-Priority: 1000
"""
PROFILE = 'export PATH="/usr/local/cuda/bin${PATH:+:${PATH}}"\n'


def files(manager: str, stack: StackSet, wish: Wish) -> list[dict[str, Any]]:
    """The files that every host of a plan gets."""
    files = [file("/etc/modprobe.d/gpucheck-nouveau.conf", NOUVEAU, initramfs=True)]
    if wish.module_options:
        files.append(file(module_options.PATH, module_options.options_line(wish.module_options), initramfs=True))
    if manager == "apt":
        files.append(file("/etc/apt/apt.conf.d/51gpucheck-nvidia", UNATTENDED))
        files.append(file("/etc/apt/preferences.d/gpucheck-nvidia", PIN.format(version=stack.driver.version)))
    # A distribution's own nvcc is on the path already.
    if stack.cuda and not stack.source:
        files.append(file("/etc/profile.d/gpucheck-cuda.sh", PROFILE))
    if stack.subnet_manager:
        files.append(file("/etc/modules-load.d/gpucheck-ib_umad.conf", packages().fabric.boot_module + "\n"))
    if stack.imex:
        files += [file(path, content) for path, content in imex_files(wish.imex)]
    return files


def file(path: str, content: str, *, initramfs: bool = False) -> dict[str, Any]:
    """A row of the plan. initramfs: the initramfs carries a copy, and a change of it reboots."""
    return {"path": path, "content": content, "mode": "0644", "initramfs": initramfs}
