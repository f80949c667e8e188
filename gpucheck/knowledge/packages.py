"""Package names, versions and repositories by operating system (packages.yml)."""

from functools import partial
from typing import Literal

import msgspec

from gpucheck.knowledge._load import Table, TableRow, table


class Key(TableRow, frozen=True, kw_only=True):
    """The signing key of one repository directory: its fingerprint, or sha256, the digest of its file in armor.

    Lines of the armor that begin with Version do not count.
    """

    file: str
    fingerprint: str | None = None
    sha256: str | None = None
    unconfirmed: str | None = None


Signed = Literal["packages", "metadata", "both"]


class ToolkitRepository(TableRow, frozen=True, kw_only=True):
    """The container toolkit's own repository. signed: what of an rpm repository carries a signature."""

    apt_url: str
    dnf_url: str
    key_url: str
    fingerprint: str
    keyring: str
    signed: Signed


class Repositories(TableRow, frozen=True, kw_only=True):
    """Where packages come from. keys: by directory of NVIDIA's CUDA repository. signed: as for the toolkit's."""

    cuda_url: str
    keyring: str
    signed: Signed
    keys: dict[str, Key]
    container_toolkit: ToolkitRepository


class Folder(TableRow, frozen=True, kw_only=True):
    """The oldest driver branch and CUDA minor of a directory, None: all that are planned.

    otherwise: the source of an older driver, as text.
    """

    first_branch: str | None = None
    first_cuda: str | None = None
    otherwise: str | None = None


class BranchRange(TableRow, frozen=True, kw_only=True):
    """Driver branches, both ends included."""

    first: str
    last: str


class DriverPackages(TableRow, frozen=True, kw_only=True):
    """The compute-only package set of one system, branch range and module flavour.

    newest: packages with versions of their own, asked for without one.
    """

    os: tuple[str, ...]
    branches: BranchRange
    flavour: Literal["open", "proprietary"]
    packages: tuple[str, ...]
    newest: tuple[str, ...] = ()
    stream: str | None = None
    unconfirmed: str | None = None


class ModuleStreams(TableRow, frozen=True, kw_only=True):
    """EL majors that have module streams, and the module's name."""

    module: str
    el_majors: tuple[int, ...]


class Revision(TableRow, frozen=True, kw_only=True):
    """Package revisions of one driver version. fabric None: by the rule of the system.

    packages: those of the driver that have another revision than the rest.
    """

    driver: str
    packages: dict[str, str] = msgspec.field(default_factory=dict)
    fabric: str | None = None


class FabricRevision(TableRow, frozen=True, kw_only=True):
    """The revision of fabric manager, NSCQ and IMEX: bare up to a driver version of branch 580, later above."""

    bare_until: str
    bare: str
    later: str


class ElRevision(TableRow, frozen=True, kw_only=True):
    """Epoch and release of the EL packages."""

    epoch: int
    driver: str
    fabric: FabricRevision


class Revisions(TableRow, frozen=True, kw_only=True):
    """ubuntu: by driver version; ubuntu_driver: of the others."""

    ubuntu: dict[str, Revision]
    ubuntu_driver: FabricRevision
    ubuntu_fabric: FabricRevision
    debian: Revision
    el: ElRevision


class SubnetManager(TableRow, frozen=True, kw_only=True):
    """NVLink subnet manager packages by package manager. of_the_system: not from NVIDIA's directory, and not held."""

    apt: tuple[str, ...]
    dnf: tuple[str, ...]
    of_the_system: tuple[str, ...]


class FabricPackages(TableRow, frozen=True, kw_only=True):
    """What NVSwitch and NVLink 5 need besides the driver. suffixed_until: last branch that is in the names.

    el_before: names on EL up to that branch, which have no suffix.
    """

    suffixed_until: str
    el_before: dict[str, str]
    fabric_manager: tuple[str, ...]
    imex: tuple[str, ...]
    subnet_manager: SubnetManager
    boot_module: str


class CudaPackages(TableRow, frozen=True, kw_only=True):
    """The toolkit package; el_config_common by CUDA minor."""

    package: str
    revision: str
    el_config_common: dict[str, str]


class CudnnPackages(TableRow, frozen=True, kw_only=True):
    """The cuDNN packages; their names carry the CUDA major."""

    apt: tuple[str, ...]
    dnf: tuple[str, ...]
    revision: str


class NcclSystemBuild(TableRow, frozen=True, kw_only=True):
    """A NCCL version that exists as a system package for one CUDA minor."""

    version: str
    cuda: str
    unconfirmed: str | None = None


class NcclPackages(TableRow, frozen=True, kw_only=True):
    """NCCL packages; their version carries the CUDA minor."""

    apt: tuple[str, ...]
    dnf: tuple[str, ...]
    revision: str
    builds: tuple[NcclSystemBuild, ...]


class ContainerEngine(TableRow, frozen=True, kw_only=True):
    """An engine that nvidia-ctk configures. program: what a host with it has; ``beside``: what else must be present.

    files: what ``nvidia-ctk runtime configure`` writes, the main one first. service: who takes them over, by action.
    """

    name: Literal["docker", "containerd"]
    program: str
    beside: str | None = None
    files: tuple[str, ...]
    service: str
    action: Literal["reloaded", "restarted"]


class ContainerToolkitPackages(TableRow, frozen=True, kw_only=True):
    """All of these always at one version."""

    packages: tuple[str, ...]
    versions: tuple[str, ...]
    revision: str
    engines: tuple[ContainerEngine, ...]


class HeaderPackages(TableRow, frozen=True, kw_only=True):
    """Kernel header packages for a kernel release. el_variants: by the word behind its plus.

    debian_metapackage: of the flavor of an installed kernel metapackage, linux-image-{flavor}.
    """

    debian: tuple[str, ...]
    debian_metapackage: str
    el8: tuple[str, ...]
    el: tuple[str, ...]
    el_variants: dict[str, tuple[str, ...]]
    oracle_uek: tuple[str, ...]


class KernelCompiler(TableRow, frozen=True, kw_only=True):
    """The compiler that kernels of a system were built with, from a release on."""

    os: str
    first: str
    packages: tuple[str, ...]


class Compilers(TableRow, frozen=True, kw_only=True):
    """What DKMS needs for builds in addition to its own dependencies. open_modules: by family."""

    open_modules: dict[str, tuple[str, ...]]
    kernels: tuple[KernelCompiler, ...]


class Epel(TableRow, frozen=True, kw_only=True):
    """Where DKMS comes from on the EL family. fingerprints: by EL major; the other tables by ID of os-release.

    include: the packages that may come from it. enable: repositories of the system itself.
    """

    name: str
    url: str
    key_url: str
    fingerprints: dict[str, str]
    signed: Signed
    include: tuple[str, ...]
    release_packages: dict[str, str]
    enable: dict[str, str]
    enable_el8: dict[str, str]


class Python(TableRow, frozen=True, kw_only=True):
    """The Python of gpucheck itself. el_majors: where the system's own is older than minimum, and another is there."""

    minimum: str
    el_majors: tuple[int, ...]
    interpreter: str
    packages: tuple[str, ...]


class PackageTable(Table, frozen=True, kw_only=True):
    """packages.yml. folders: directory -> architecture -> what it begins with."""

    schema_: Literal["gpucheck.knowledge.packages/1"]
    repositories: Repositories
    folders: dict[str, dict[str, Folder]]
    drivers: tuple[DriverPackages, ...]
    module_streams: ModuleStreams
    revisions: Revisions
    fabric: FabricPackages
    cuda: CudaPackages
    cudnn: CudnnPackages
    nccl: NcclPackages
    container_toolkit: ContainerToolkitPackages
    headers: HeaderPackages
    compilers: Compilers
    epel: Epel
    python: Python


packages = partial(table, "packages.yml", PackageTable)


class OptionVersion(TableRow, frozen=True, kw_only=True):
    """A version that packages exist of. unconfirmed: what it rests on, None = read in a source of its own."""

    version: str
    unconfirmed: str | None = None


class DcgmPackages(TableRow, frozen=True, kw_only=True):
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


class WithDriver(TableRow, frozen=True, kw_only=True):
    """Packages that are released with the driver, at its version, and installed with it."""

    source: tuple[str, ...]
    packages: tuple[str, ...]


class ExtraPackages(TableRow, frozen=True, kw_only=True):
    """Names of a part on some systems and branches. names: () = the driver's own packages contain it."""

    os: tuple[str, ...]
    branches: BranchRange
    names: tuple[str, ...]


class DriverExtra(TableRow, frozen=True, kw_only=True):
    """A part of the driver that its compute-only packages lack. fabric: it has the revision of fabric manager."""

    contains: str
    packages: tuple[ExtraPackages, ...]
    fabric: bool = False


class OptionTable(Table, frozen=True, kw_only=True):
    """options.yml. with_driver: by component. driver_extra: by the word of stack.yml."""

    schema_: Literal["gpucheck.knowledge.options/1"]
    dcgm: DcgmPackages
    with_driver: dict[str, WithDriver] = msgspec.field(default_factory=dict)
    driver_extra: dict[str, DriverExtra] = msgspec.field(default_factory=dict)


options = partial(table, "options.yml", OptionTable)


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
