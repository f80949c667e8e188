"""The driver's kernel side: which module is loaded, which one is installed, open or proprietary."""

import ctypes
import errno
import os
import re
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from gpucheck.host.readers.driver import flavour_of_license, loaded_module, modinfo
from gpucheck.host.readers.files import Unreadable, folder_names, text
from gpucheck.host.readers.files import run as run_program
from gpucheck.host.readers.kernels import DKMS_TREE, dkms_builds, release_key, secure_boot_variable
from gpucheck.model import DeviceFile, DkmsModule, DriverState, InstalledKernel
from gpucheck.processes.child import Child

# Where DKMS on Ubuntu and on the CentOS family puts the module; a packaged one is below kernel/.
MODULE_PLACES = ("updates/dkms/nvidia.ko", "extra/nvidia.ko")
SECONDS = 10.0
Module = tuple[str | None, str | None]  # version and license


def read_driver(root: Path, kernel: str, *, simulated: bool) -> DriverState:
    """Loaded: from /sys and /proc below root. Installed: from modinfo, or from the stub file of a simulated root.

    A simulated root may hold modules that were really compiled: the lab installs real packages too.
    """
    loaded, flavour = loaded_module(root)
    installed, license_ = _installed(root, kernel, simulated=simulated)
    return DriverState(
        loaded_version=loaded,
        loaded_flavour=flavour,
        installed_version=installed,
        installed_flavour=flavour_of_license(license_),
        nouveau_loaded=(root / "sys/module/nouveau").is_dir(),
    )


def _stub_module(modules: Path) -> Module:
    for place in MODULE_PLACES:
        words = text(modules / place)
        if words is not None:
            lines = (line.partition("=") for line in words.splitlines() if "=" in line)
            values = {key.strip(): value.strip() for key, _, value in lines}
            return values.get("version"), values.get("license")
    return None, None


def _installed(root: Path, kernel: str, *, simulated: bool) -> Module:
    modules = root / "lib/modules" / kernel
    if not simulated:
        return modinfo(kernel)
    found = _stub_module(modules)
    return modinfo(kernel, root) if not any(found) and (modules / "modules.dep").exists() else found


def output(command: list[str]) -> str | None:
    """What a program prints, whatever its exit status; None where there is no such program or it does not end."""
    done = run(command)
    return None if done is None else done.stdout


def run(command: list[str]) -> subprocess.CompletedProcess[str] | None:
    """Run a program to its end; None where there is no such program or it does not end."""
    try:
        return run_program(command, SECONDS)
    except Unreadable:
        return None


# The directory of a kernel that was removed stays behind where something unpackaged lies in it; these files go with it.
OF_A_KERNEL = ("kernel", "modules.dep", "modules.builtin")


def read_kernels(root: Path, running: str, *, simulated: bool) -> tuple[InstalledKernel, ...]:
    """The directories below /lib/modules that belong to a kernel, the newest release last."""
    modules = root / "lib/modules"
    releases = sorted(folder_names(modules) or (), key=release_key)
    return tuple(
        InstalledKernel(
            release=release,
            running=release == running,
            headers=(modules / release / "build").is_dir(),
            nvidia=_installed(root, release, simulated=simulated)[0],
        )
        for release in releases
        if release == running or any((modules / release / name).exists() for name in OF_A_KERNEL)
    )


def read_dkms(system_root: Path) -> tuple[DkmsModule, ...]:
    """Return the modules in DKMS' own tree; one without a build for any kernel is "added"."""
    tree = system_root / DKMS_TREE
    found: list[DkmsModule] = []
    for name in folder_names(tree) or ():
        for version in folder_names(tree / name) or ():
            if (tree / name / version / "source").is_symlink():
                found += _states(system_root, name, version)
    return tuple(found)


def _states(system_root: Path, name: str, version: str) -> list[DkmsModule]:
    states = [
        DkmsModule(name=name, version=version, state="installed" if build.installed else "built", kernel=build.kernel)
        for build in dkms_builds(system_root, name, version)
    ]
    return states or [DkmsModule(name=name, version=version, state="added")]


def read_secure_boot(root: Path) -> bool | None:
    """Return the firmware's variable. No EFI means no Secure Boot; without /sys/firmware (container) it is unknown."""
    value = secure_boot_variable(root)
    if value is not None:
        return value
    firmware = folder_names(root / "sys/firmware") or ()
    return False if firmware and "efi" not in firmware else None


# access(2) asks a device cgroup as open(2) does (devcgroup_inode_permission in include/linux/device_cgroup.h; tried
# with cgroup v1 and with a program of cgroup v2 on Linux 6.18), and it does not reach the driver: it wakes no GPU and
# does not wait for one. Only a GPU that this process may use and that NVML does not list is opened, in a child with a
# deadline.
CONTROL = ("nvidiactl", "nvidia-uvm")
MINOR = re.compile(r"^Device Minor:\s*(\d+)", re.MULTILINE)
GPU_FILE = re.compile(r"nvidia\d+")
# Without O_NONBLOCK, with which the driver answers before it has initialised the GPU.
OPEN = """import errno, os, sys
try: os.close(os.open(sys.argv[1], os.O_RDWR)); answer = ""
except OSError as error: answer = errno.errorcode.get(error.errno, str(error.errno))
os.write(int(sys.argv[2]), (answer + "\\n").encode())"""


def read_device_files(
    devices: Path, gpus: Path, *, listed: Collection[str] | None, simulated: Mapping[str, str] | None, deadline_s: float
) -> tuple[DeviceFile, ...]:
    """Return the control files and a file for each GPU of the driver; none if there is neither driver nor file.

    devices: /dev. gpus: /proc/driver/nvidia/gpus. listed: bus ids of the GPUs that NVML lists; None opens no GPU.
    simulated: errors of a simulated driver by file name, for there is no driver to open.
    """
    bus_ids = dict(_minors(gpus))
    names = {name for name in folder_names(devices) or () if GPU_FILE.fullmatch(name) or name in CONTROL}
    if not names | bus_ids.keys():
        return ()
    names |= {*bus_ids, "nvidiactl"}
    # A file without a GPU of the driver is opened only if it may be that of a GPU which NVML does not list.
    numbered = [name for name in names if GPU_FILE.fullmatch(name)]
    spare = listed is not None and len(numbered) > len(listed)
    found = []
    for name in sorted(names, key=lambda name: (len(name), name)):
        path, bus_id = devices / name, bus_ids.get(name)
        error = denied(path)
        if simulated is not None:
            error = error if error in ("EPERM", "ENOENT") else simulated.get(name)
        elif error is None and name in numbered and listed is not None and bus_id not in listed and (bus_id or spare):
            error = _opened(path, deadline_s)
        found.append(DeviceFile(name=name, bus_id=bus_id, error=error))
    return tuple(found)


def _minors(gpus: Path) -> Iterator[tuple[str, str]]:
    for bus_id in folder_names(gpus) or ():
        minor = MINOR.search(text(gpus / bus_id / "information") or "")
        if minor:
            yield f"nvidia{minor[1]}", bus_id.lower()


def denied(path: Path) -> str | None:
    """Return errno's name if this process may not read and write a file, None if it may."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.access(os.fsencode(path), os.R_OK | os.W_OK) == 0:
        return None
    return errno.errorcode.get(ctypes.get_errno(), "EIO")


def _opened(path: Path, deadline_s: float) -> str | None:
    """Open a file and close it. Return errno's name, ETIMEDOUT if that does not return, None if it works."""
    try:
        child = Child([sys.executable, "-I", "-S", "-c", OPEN, str(path)], os.environ)
    except OSError:
        return None
    try:
        line = child.read_line(time.monotonic() + deadline_s)
    except TimeoutError:
        return "ETIMEDOUT"
    finally:
        child.end(patience_s=0.0)
    return (line or b"").decode().strip() or None
