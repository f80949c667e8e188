"""The plan's parts that follow the kernel a host runs: header packages, and the compilers that DKMS builds with."""

import re
from collections.abc import Iterable

import msgspec
from packaging.version import Version

from gpucheck.knowledge.packages import HeaderPackages, packages
from gpucheck.knowledge.tables import OperatingSystem
from gpucheck.stack.packages import PlanGap
from gpucheck.stack.versions import parse

# EL's real-time kernels before the plus: 4.18.0-553.rt7.342.el8_10.x86_64.
OLD_RT = re.compile(r"\.rt\d")


def headers(system: OperatingSystem, kernels: Iterable[str]) -> tuple[str, ...]:
    """Header packages for kernels such as ``5.14.0-503.el9.aarch64+64k``. Raises PlanGap for an unknown variant."""
    return tuple(name for kernel in sorted(set(kernels)) for name in _headers(system, kernel))


def header_metapackage(system: OperatingSystem, kernels: Iterable[str], *, held: bool) -> str | msgspec.UnsetType:
    """The pattern of the package that brings headers with each later kernel. Unset: none is needed.

    kernel-devel-matched of the EL family follows kernel-core by itself. held: no upgrade brings another kernel.
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
            f"which packages hold the headers of kernel {kernel} is not known",
            "el-kernel-packages",
            "boot a kernel of the system without variant, or with one of " + ", ".join(table.el_variants),
        )
    return [pattern.format(kernel=base) for pattern in patterns]


def _el_patterns(system: OperatingSystem, table: HeaderPackages, variant: str) -> tuple[str, ...] | None:
    if variant:
        return table.el_variants.get(variant)
    return table.el8 if system.version == "8" else table.el


def compilers(system: OperatingSystem, kernel_module: str, kernels: Iterable[str]) -> tuple[str, ...]:
    """Compilers of the system's own sources, for the modules' language and for what the kernels were built with."""
    table = packages().compilers
    found = list(table.open_modules[system.family]) if kernel_module == "open" else []
    for row in table.kernels:
        if row.os == system.id and any(_release(kernel) >= parse(row.first) for kernel in kernels):
            found += row.packages
    return tuple(found)


def _release(kernel: str) -> Version:
    numbers = re.match(r"\d+\.\d+", kernel)
    return parse(numbers[0] if numbers else "0")
