"""What the distributions' own archives hold of the stack (archives.yml)."""

from typing import Literal

import msgspec

from gpucheck.knowledge._load import Table, table


class ArchivePackage(msgspec.Struct, frozen=True, kw_only=True):
    """A package. version None: that of the driver. held False: any version does, and it may move."""

    name: str
    version: str | None = None
    held: bool = True


class Archive(msgspec.Struct, frozen=True, kw_only=True):
    """One release of a distribution. components: of its archive, except main; revision: of the driver's packages.

    open_modules: version of the open kernel modules, which differs from the driver's. absent: components that it lacks.
    """

    os: str
    suite: str
    components: tuple[str, ...]
    architectures: tuple[str, ...]
    driver: str
    revision: str
    maintained_by: str
    driver_packages: tuple[ArchivePackage, ...]
    open_modules: str
    cuda: str
    cuda_packages: tuple[ArchivePackage, ...]
    absent: tuple[Literal["fabric_manager", "imex", "cudnn", "nccl", "container_toolkit"], ...]


class UbuntuSystem(msgspec.Struct, frozen=True, kw_only=True):
    """One release of Ubuntu. branches: of the driver, as seen in its archive."""

    os: str
    suite: str
    branches: tuple[str, ...]


class UbuntuArchive(msgspec.Struct, frozen=True, kw_only=True):
    """The driver in Ubuntu's archive, see archives.yml. Names hold {branch}, {open} and, of modules, {kernel}.

    asked_by: the package whose versions are those of the driver.
    """

    source: tuple[str, ...]
    components: tuple[str, ...]
    architectures: tuple[str, ...]
    systems: tuple[UbuntuSystem, ...]
    driver_packages: tuple[str, ...]
    modules: str
    fabric_packages: tuple[str, ...]
    asked_by: str


class ArchiveTable(Table, frozen=True, kw_only=True):
    """archives.yml."""

    schema_: Literal["gpucheck.knowledge.archives/1"]
    archives: tuple[Archive, ...]
    ubuntu: UbuntuArchive


def archives() -> tuple[Archive, ...]:
    """Every archive that is known. Raises KnowledgeError if the file is damaged."""
    return table("archives.yml", ArchiveTable).archives


def ubuntu() -> UbuntuArchive:
    """The driver in Ubuntu's archive. Raises KnowledgeError if the file is damaged."""
    return table("archives.yml", ArchiveTable).ubuntu
