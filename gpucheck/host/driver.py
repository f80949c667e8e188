"""The driver's kernel side: which module is loaded, which one is installed, open or proprietary."""

import subprocess
from pathlib import Path

from gpucheck.host.readers.driver import flavour_of_license, loaded_module, modinfo
from gpucheck.host.readers.files import Unreadable, text
from gpucheck.host.readers.files import run as run_program
from gpucheck.model import DriverState

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
