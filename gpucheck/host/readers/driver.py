"""The nvidia kernel module: which version and flavor is loaded, and which one modinfo finds for a kernel."""

import os
import re
from typing import List, Optional, Tuple

from .files import Path, Unreadable, run, text

# Debian's own packages name the file after the current driver series; the loaded module is nvidia there too.
MODULE_NAMES = ("nvidia", "nvidia-current")
VERSION = re.compile(r"\d+\.\d+(\.\d+)?")
MODINFO_SECONDS = 10.0


def loaded_module(root: Path) -> Tuple[Optional[str], Optional[str]]:
    """Return (version, flavor) of the loaded module from /sys and /proc. Flavor None: the banner does not state it."""
    banner = (text(os.path.join(root, "proc/driver/nvidia/version")) or "").partition("\n")[0]
    found = VERSION.search(banner)
    loaded = text(os.path.join(root, "sys/module/nvidia/version")) or (found.group(0) if found else None)
    return loaded, _flavour_of_banner(banner) if loaded else None


def _flavour_of_banner(banner: str) -> Optional[str]:
    if "Open Kernel Module" in banner:
        return "open"
    return "proprietary" if "Kernel Module" in banner else None


def flavour_of_license(license_: Optional[str]) -> Optional[str]:
    """Return the flavor: the license of the open module is ``Dual MIT/GPL``, of the proprietary one ``NVIDIA``."""
    if not license_:
        return None
    return "open" if "GPL" in license_ else "proprietary"


def modinfo(kernel: str, root: Path = "/") -> Tuple[Optional[str], Optional[str]]:
    """Return (version, license) of the module that this kernel would load, (None, None) without one or without modinfo.

    A DKMS package installs with success and without a module if the headers are missing: only modinfo shows that.
    """
    base = ["-b", os.fspath(root)] if os.fspath(root) != "/" else []
    for name in MODULE_NAMES:
        values = [_field(["modinfo", "-k", kernel, "-F", field, *base, name]) for field in ("version", "license")]
        if any(values):
            return values[0], values[1]
    return None, None


def _field(argv: List[str]) -> Optional[str]:
    try:
        return run(argv, MODINFO_SECONDS).stdout.strip() or None
    except Unreadable:
        return None
