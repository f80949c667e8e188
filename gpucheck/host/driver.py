"""The driver's kernel side: which module is loaded, which one is installed, open or proprietary."""

import re
import subprocess
from pathlib import Path

from gpucheck.host.files import text
from gpucheck.model import DriverState

# Where DKMS on Ubuntu and on the CentOS family puts the module; a packaged one is below kernel/.
MODULE_PLACES = ("updates/dkms/nvidia.ko", "extra/nvidia.ko")
# Debian's own packages name the file after the driver series that is current; loaded, the module is nvidia there too.
MODULE_NAMES = ("nvidia", "nvidia-current")
VERSION = re.compile(r"\d+\.\d+(\.\d+)?")
SECONDS = 10.0


def read_driver(root: Path, kernel: str, *, simulated: bool) -> DriverState:
    """Loaded: from /sys and /proc below root. Installed: from modinfo, or from the stub file of a simulated root.

    A simulated root may hold modules that were really compiled: the lab installs real packages too.
    """
    banner = (text(root / "proc/driver/nvidia/version") or "").partition("\n")[0]
    loaded = text(root / "sys/module/nvidia/version") or _version_in(banner)
    installed = _installed(root, kernel, simulated=simulated)
    return DriverState(
        loaded_version=loaded,
        loaded_flavour=_flavour_of_banner(banner) if loaded else None,
        installed_version=installed.get("version"),
        installed_flavour=_flavour_of_license(installed.get("license")),
        nouveau_loaded=(root / "sys/module/nouveau").is_dir(),
    )


def _version_in(banner: str) -> str | None:
    found = VERSION.search(banner)
    return found[0] if found else None


def _flavour_of_banner(banner: str) -> str | None:
    if "Open Kernel Module" in banner:
        return "open"
    return "proprietary" if "Kernel Module" in banner else None


def _flavour_of_license(license_: str | None) -> str | None:
    """Return the flavor: the license of the open module is ``Dual MIT/GPL``, of the proprietary one ``NVIDIA``."""
    if license_ is None:
        return None
    return "open" if "GPL" in license_ else "proprietary"


def _stand_in(modules: Path) -> dict[str, str]:
    """Return the ``key=value`` lines of the stub of a compiled module."""
    for place in MODULE_PLACES:
        words = text(modules / place)
        if words is not None:
            pairs = (line.partition("=") for line in words.splitlines() if "=" in line)
            return {key.strip(): value.strip() for key, _, value in pairs}
    return {}


def module_version(root: Path, kernel: str, *, simulated: bool) -> str | None:
    """Return the version of the nvidia module that is installed for a kernel, None if it is missing."""
    return _installed(root, kernel, simulated=simulated).get("version")


def _installed(root: Path, kernel: str, *, simulated: bool) -> dict[str, str]:
    modules = root / "lib/modules" / kernel
    if not simulated:
        return _modinfo(kernel)
    return _stand_in(modules) or (_modinfo(kernel, root) if (modules / "modules.dep").exists() else {})


def _modinfo(kernel: str, base: Path | None = None) -> dict[str, str]:
    """Return version and license of the nvidia module for this kernel; empty without the module or modinfo.

    base: the root of a simulated machine, None for this one.
    """
    place = ["-b", str(base)] if base else []
    for name in MODULE_NAMES:
        found = {}
        for field in ("version", "license"):
            words = output(["modinfo", "-k", kernel, "-F", field, *place, name])
            if words:
                found[field] = words.strip()
        if found:
            return found
    return {}


def output(command: list[str]) -> str | None:
    """What a program prints, whatever its exit status; None where there is no such program or it does not end."""
    done = run(command)
    return None if done is None else done.stdout


def run(command: list[str]) -> subprocess.CompletedProcess[str] | None:
    """Run a program to its end; None where there is no such program or it does not end."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS, errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        return None
