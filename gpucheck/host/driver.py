"""The driver's kernel side: which module is loaded, which one is installed, open or proprietary."""

import subprocess
from pathlib import Path

from gpucheck.host.readers.driver import flavour_of_license, loaded_module, modinfo
from gpucheck.host.readers.files import Unreadable, folder_names, text
from gpucheck.host.readers.files import run as run_program
from gpucheck.host.readers.kernels import DKMS_TREE, dkms_builds, release_key, secure_boot_variable
from gpucheck.model import DkmsModule, DriverState, InstalledKernel

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
    """Return the ``key=value`` lines of the stub of a compiled module."""
    for place in MODULE_PLACES:
        words = text(modules / place)
        if words is not None:
            lines = (line.partition("=") for line in words.splitlines() if "=" in line)
            values = {key.strip(): value.strip() for key, _, value in lines}
            return values.get("version"), values.get("license")
    return None, None


def module_version(root: Path, kernel: str, *, simulated: bool) -> str | None:
    """Return the version of the nvidia module that is installed for a kernel, None if it is missing."""
    return _installed(root, kernel, simulated=simulated)[0]


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
            nvidia=module_version(root, release, simulated=simulated),
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
