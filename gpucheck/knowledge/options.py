"""Optional components, installed only on request (options.yml)."""

from typing import Literal

import msgspec

from gpucheck.knowledge._load import Row, Table, table
from gpucheck.knowledge.packages import BranchRange


class OptionVersion(Row, frozen=True, kw_only=True):
    """A version that packages exist of. unconfirmed: what it rests on, None = read in a source of its own."""

    version: str
    unconfirmed: str | None = None


class DcgmPackages(Row, frozen=True, kw_only=True):
    """DCGM 4. by_cuda: once for each CUDA major that the host needs. old: DCGM 3, which may not be there as well.

    first_capability: compute capability from which the packages for the driver's own CUDA major are enough.
    """

    source: tuple[str, ...]
    packages: tuple[str, ...]
    by_cuda: tuple[str, ...]
    versions: tuple[OptionVersion, ...]
    epoch: int
    revision: str
    service: str
    first_capability: str
    old: tuple[str, ...]


class GdrcopyPackages(Row, frozen=True, kw_only=True):
    """GDRCopy, from a repository of your own. revision: behind the version of a package. seen: versions.

    module_packages, module_word, services: by package manager; the word stands behind the number of the revision.
    """

    source: tuple[str, ...]
    apt: tuple[str, ...]
    dnf: tuple[str, ...]
    revision: str
    seen: tuple[str, ...]
    module: str
    device: str
    module_packages: dict[str, str]
    module_word: dict[str, str]
    services: dict[str, tuple[str, ...]]


class WithDriver(Row, frozen=True, kw_only=True):
    """Packages that are released with the driver, at its version, and installed with it."""

    source: tuple[str, ...]
    packages: tuple[str, ...]


class ExtraPackages(Row, frozen=True, kw_only=True):
    """Names of a part on some systems and branches. names: () = the driver's own packages contain it."""

    os: tuple[str, ...]
    branches: BranchRange
    names: tuple[str, ...]


class DriverExtra(Row, frozen=True, kw_only=True):
    """A part of the driver that its compute-only packages lack. fabric: it has the revision of fabric manager."""

    contains: str
    packages: tuple[ExtraPackages, ...]
    fabric: bool = False


class OptionTable(Table, frozen=True, kw_only=True):
    """options.yml. with_driver: by component. driver_extra: by the word of stack.yml."""

    schema_: Literal["gpucheck.knowledge.options/1"]
    dcgm: DcgmPackages
    gdrcopy: GdrcopyPackages
    with_driver: dict[str, WithDriver] = msgspec.field(default_factory=dict)
    driver_extra: dict[str, DriverExtra] = msgspec.field(default_factory=dict)


def options() -> OptionTable:
    """The whole table. Raises KnowledgeError if the file is damaged."""
    return table("options.yml", OptionTable)
