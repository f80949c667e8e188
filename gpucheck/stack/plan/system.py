"""Prerequisites of the system: a source of DKMS on the EL family, and a Python for gpucheck."""

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from packaging.version import Version

from gpucheck.knowledge.packages import HeaderPackages, packages
from gpucheck.knowledge.tables import OperatingSystem
from gpucheck.stack.packages import PlanGap, uname_arch
from gpucheck.stack.versions import parse


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


# EL's real-time kernels before the plus: 4.18.0-553.rt7.342.el8_10.x86_64.
OLD_RT = re.compile(r"\.rt\d")


def headers(system: OperatingSystem, kernels: Iterable[str]) -> tuple[str, ...]:
    """Return header packages for kernels like ``5.14.0-503.el9.aarch64+64k``. Raises PlanGap for unknown variants."""
    return tuple(name for kernel in sorted(set(kernels)) for name in _headers(system, kernel))


def header_metapackage(system: OperatingSystem, kernels: Iterable[str], *, held: bool) -> str | msgspec.UnsetType:
    """Return the pattern of the package that installs headers with each later kernel. Unset: not needed.

    On the EL family, kernel-devel-matched depends on kernel-core. held: upgrades install no other kernel.
    """
    needed = system.family == "debian" and not held and any(kernels)
    return packages().headers.debian_metapackage if needed else msgspec.UNSET


def _headers(system: OperatingSystem, kernel: str) -> list[str]:
    table = packages().headers
    if system.family == "debian":
        return [pattern.format(kernel=kernel) for pattern in table.debian]
    if "uek" in kernel:
        return [pattern.format(kernel=kernel) for pattern in table.oracle_uek]
    base, _, variant = kernel.partition("+")
    patterns = _el_patterns(system, table, "rt" if OLD_RT.search(kernel) else variant)
    if patterns is None:
        raise PlanGap(
            f"the packages with the headers of kernel {kernel} are not known",
            "el-kernel-packages",
            "boot a kernel of the system without a variant, or with one of " + ", ".join(table.el_variants),
        )
    return [pattern.format(kernel=base) for pattern in patterns]


def _el_patterns(system: OperatingSystem, table: HeaderPackages, variant: str) -> tuple[str, ...] | None:
    if variant:
        return table.el_variants.get(variant)
    return table.el8 if system.version == "8" else table.el


def compilers(system: OperatingSystem, kernel_module: str, kernels: Iterable[str]) -> tuple[str, ...]:
    """Return compilers from the system's sources, for the modules and as the kernels were built."""
    table = packages().compilers
    found = list(table.open_modules[system.family]) if kernel_module == "open" else []
    for row in table.kernels:
        if row.os == system.id and any(_release(kernel) >= parse(row.first) for kernel in kernels):
            found += row.packages
    return tuple(found)


def _release(kernel: str) -> Version:
    numbers = re.match(r"\d+\.\d+", kernel)
    return parse(numbers[0] if numbers else "0")
