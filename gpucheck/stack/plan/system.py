"""Prerequisites of the system: a source of DKMS on the EL family, and a Python for gpucheck."""

from typing import Any

from gpucheck.knowledge.packages import packages
from gpucheck.knowledge.tables import OperatingSystem
from gpucheck.stack.packages import uname_arch


def release_packages(system: OperatingSystem) -> tuple[str, ...]:
    """Return the package of the system's sources that adds EPEL; empty if they have no such package."""
    name = packages().epel.release_packages.get(system.os_id)
    return (name.format(major=system.version),) if name and system.family == "redhat" else ()


def epel_row(system: OperatingSystem, arch: str) -> dict[str, Any] | None:
    """Return EPEL as a repository of the plan, for DKMS alone and with its pinned key; None on other families."""
    table = packages().epel
    if system.family != "redhat" or system.version not in table.fingerprints:
        return None
    values = {"major": system.version, "uname_arch": uname_arch(arch)}
    return {
        "name": table.name,
        "kind": "dnf",
        "url": table.url.format(**values),
        "key_url": table.key_url.format(**values),
        "key_fingerprint": table.fingerprints[system.version],
        "signed": table.signed,
        "include": list(table.include),
    }


def system_repositories(system: OperatingSystem, arch: str) -> list[str]:
    """Return repositories of the system to enable: CRB, by its name on this system."""
    table = packages().epel
    older = table.enable_el8 if system.version == "8" else {}
    name = older.get(system.os_id) or table.enable.get(system.os_id)
    return [name.format(major=system.version, uname_arch=uname_arch(arch))] if name else []


def python(system: OperatingSystem) -> dict[str, Any]:
    """Return the interpreter of gpucheck's environment, and the system's packages that install it."""
    table = packages().python
    newer = system.family == "redhat" and int(system.version) in table.el_majors
    if not newer:
        return {"interpreter": "python3", "packages": []}
    return {"interpreter": table.interpreter, "packages": list(table.packages)}
