"""The operating system: os-release(5) and the family of its package manager."""

import os
import shlex
import shutil
from typing import Dict

from .files import Path, text

RPM_FAMILY = frozenset(("rhel", "fedora", "centos", "rocky", "almalinux", "ol", "amzn", "suse"))
DPKG_FAMILY = frozenset(("debian", "ubuntu"))


def os_release(root: Path = "/") -> Dict[str, str]:
    """Return the keys of /etc/os-release, else of /usr/lib/os-release, with shell quoting removed."""
    content = text(os.path.join(root, "etc/os-release")) or text(os.path.join(root, "usr/lib/os-release")) or ""
    pairs = (line.partition("=") for line in content.splitlines() if "=" in line and not line.startswith("#"))
    return {key.strip(): _unquoted(value) for key, _, value in pairs}


def _unquoted(value: str) -> str:
    try:
        return " ".join(shlex.split(value))
    except ValueError:  # an unclosed quote: the text is still worth more than nothing
        return value.strip("\"'")


def package_family(release: Dict[str, str]) -> str:
    """Return ``dpkg`` or ``rpm`` by the family that the system states: a host may have both tools."""
    family = {release.get("ID", "")} | set(release.get("ID_LIKE", "").split())
    if RPM_FAMILY & family:
        return "rpm"
    if DPKG_FAMILY & family:
        return "dpkg"
    return "rpm" if shutil.which("rpm") and not shutil.which("dpkg-query") else "dpkg"
