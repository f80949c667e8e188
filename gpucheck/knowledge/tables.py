"""The compatibility tables as typed values: drivers, CUDA, cuDNN, NCCL, torch, TensorFlow, operating systems."""

import re
from functools import partial
from typing import Literal

import msgspec

from gpucheck.knowledge._load import Table, TableRow, TableSource, table


class Branch(TableRow, frozen=True, kw_only=True):
    """A driver branch. first and last: the oldest and newest version met in the sources, not a promise.

    max_kernel: newest kernel that it is shown to build on, None = not read.
    """

    branch: str
    state: Literal["supported", "eol", "disputed", "unknown"]
    architectures: tuple[str, ...]
    kernel_modules: tuple[Literal["open", "proprietary"], ...]
    confidence: str
    type: Literal["LTS", "PB", "NFB"] | None = None
    released: str | None = None
    eol: dict[str, str] = msgspec.field(default_factory=dict)
    first: str | None = None
    last: str | None = None
    native_cuda: str | None = None
    min_kernel: str | None = None
    max_kernel: str | None = None
    note: str | None = None


class _TuringNote(TableRow, frozen=True, kw_only=True):
    gpu: str
    branch: str
    because: str


class ReleaseLists(TableRow, frozen=True, kw_only=True):
    """Addresses of NVIDIA's own lists: of all drivers, and of one version."""

    releases: str
    redistrib: str


class DriverTable(Table, frozen=True, kw_only=True):
    """drivers.yml. minor_compat_floor: oldest driver by CUDA major."""

    lists: ReleaseLists
    minor_compat_floor: dict[str, str]
    turing_with_proprietary_below: _TuringNote
    not_listed_by_nvidia: tuple[str, ...]
    branches: tuple[Branch, ...]


class Toolkit(TableRow, frozen=True, kw_only=True):
    """A CUDA toolkit. driver_full: oldest driver for everything incl. PTX JIT, None = not known.

    min_cc, max_cc: compute capabilities its compiler accepts.
    """

    version: str
    driver_minor: str
    min_cc: str
    max_cc: str
    confidence: str
    driver_branch: str | None = None
    driver_full: str | None = None
    date: str | None = None
    note: str | None = None


class CudaTable(Table, frozen=True, kw_only=True):
    """cuda.yml. architectures: what ptxas accepts, by CUDA minor."""

    toolkits: tuple[Toolkit, ...]
    architectures: dict[str, tuple[str, ...]]


class CudnnRelease(TableRow, frozen=True, kw_only=True):
    """A cuDNN release. confirmed_for: CUDA majors whose architecture range was read."""

    version: str
    cuda_majors: tuple[int, ...]
    basis: str
    date: str
    min_cc: str | None = None
    max_cc: str | None = None
    confirmed_for: tuple[int, ...] = ()
    note: str | None = None


class CudnnTable(Table, frozen=True, kw_only=True):
    """cudnn.yml."""

    releases: tuple[CudnnRelease, ...]


class NcclBuild(TableRow, frozen=True, kw_only=True):
    """NCCL built for one CUDA major. sm: machine code inside (75 means 7.5); ptx: newest PTX inside."""

    version: str
    cuda_major: int
    min_cc: str
    sm: tuple[int, ...]
    ptx: int
    basis: str
    date: str
    note: str | None = None


class NcclTable(Table, frozen=True, kw_only=True):
    """nccl.yml."""

    builds: tuple[NcclBuild, ...]


class TorchBuild(TableRow, frozen=True, kw_only=True):
    """One CUDA build of a torch release. origin: pypi = the plain wheel, index = PyTorch's own wheel index.

    archs: machine code inside (x86_64), None = not confirmed.
    """

    build: str
    origin: Literal["pypi", "index"]
    cuda: str
    min_driver: str
    basis: str
    archs: tuple[int, ...] | None = None
    ptx: int | None = None
    cudnn: str | None = None
    nccl: str | None = None
    experimental: bool = False
    note: str | None = None


class TorchArm(TableRow, frozen=True, kw_only=True):
    """The plain aarch64 wheel: ``cpu`` or a CUDA build."""

    build: str
    archs: tuple[int, ...] = ()


class TorchRelease(TableRow, frozen=True, kw_only=True):
    """A torch release. pythons: versions with a wheel."""

    version: str
    date: str
    pythons: tuple[str, ...]
    glibc: str
    aarch64: TorchArm
    builds: tuple[TorchBuild, ...]
    triton: str | None = None
    note: str | None = None


class TorchTable(Table, frozen=True, kw_only=True):
    """torch.yml. index: address of the wheel index with a sub-index for each build."""

    index: str
    releases: tuple[TorchRelease, ...]


class TensorflowRelease(TableRow, frozen=True, kw_only=True):
    """A TensorFlow release. archs: ``sm_70`` machine code, ``compute_90`` machine code and PTX; None = not known."""

    version: str
    date: str
    pythons: tuple[str, ...]
    glibc: str
    and_cuda_extra: bool
    cuda: str | None = None
    archs: tuple[str, ...] | None = None
    min_driver: str | None = None
    cudnn: str | None = None
    nccl: str | None = None
    note: str | None = None


class SameEnvironment(TableRow, frozen=True, kw_only=True):
    """torch and tensorflow[and-cuda] resolved into one environment."""

    torch: str
    tensorflow: str
    result: Literal["works", "conflict", "clobber"]
    because: str
    python: str | None = None


class TensorflowTable(Table, frozen=True, kw_only=True):
    """tensorflow.yml."""

    releases: tuple[TensorflowRelease, ...]
    same_environment: tuple[SameEnvironment, ...]


class OperatingSystem(TableRow, frozen=True, kw_only=True):
    """An operating system. os_id is the ID of os-release; repository the directory in NVIDIA's repository, if any.

    max_driver_branch: newest branch its kernel can build. explicit_only: why versions must be specified.
    """

    id: str
    name: str
    os_id: str
    version: str
    family: Literal["debian", "redhat"]
    glibc: str
    python: str
    kernel: str
    eol: str | None = None
    eol_extended: str | None = None
    repository: str | None = None
    max_driver_branch: str | None = None
    unconfirmed: tuple[str, ...] = ()
    explicit_only: str | None = None
    note: str | None = None


class OtherSystem(TableRow, frozen=True, kw_only=True):
    """A system that NVIDIA has packages for and gpucheck installs none on. folders: by the start of its version."""

    os_id: str
    name: str
    folders: dict[str, str]


class OsTable(Table, frozen=True, kw_only=True):
    """os.yml."""

    systems: tuple[OperatingSystem, ...]
    not_provisioned: tuple[OtherSystem, ...]


class _Sources(msgspec.Struct, frozen=True, kw_only=True, rename={"schema_": "schema"}):
    schema_: str
    as_of: str
    sources: dict[str, TableSource]


# The oldest row is the first. Each raises KnowledgeError if its file is damaged.
drivers = partial(table, "drivers.yml", DriverTable)
cuda = partial(table, "cuda.yml", CudaTable)
cudnn = partial(table, "cudnn.yml", CudnnTable)
nccl = partial(table, "nccl.yml", NcclTable)
torch = partial(table, "torch.yml", TorchTable)
tensorflow = partial(table, "tensorflow.yml", TensorflowTable)
operating_systems = partial(table, "os.yml", OsTable)


def sources() -> dict[str, TableSource]:
    return table("sources.yml", _Sources).sources


class Rule(TableRow, frozen=True, kw_only=True):
    """What is known of one rule in addition to its statement. tables: names of the tables that hold its data."""

    title: str
    source: tuple[str, ...]
    tables: tuple[str, ...]
    note: str | None = None


class _Rules(msgspec.Struct, frozen=True, kw_only=True, rename={"schema_": "schema"}):
    schema_: str
    as_of: str
    rules: dict[str, Rule]


def rules() -> dict[str, Rule]:
    """R1 to R25, in order."""
    return table("rules.yml", _Rules).rules


# The container toolkit's own repository, separate from the directories by system.
TOOLKIT = "libnvidia-container"
DIST_TAG = re.compile(r"\.(el\d+|amzn2023)$")


class RecordedTable(Table, frozen=True, kw_only=True):
    """recorded.yml. folders: directory -> architecture -> package -> versions, () where the name was seen alone.

    streams: directory -> module streams of nvidia-driver.
    """

    schema_: Literal["gpucheck.knowledge.recorded/1"]
    folders: dict[str, dict[str, dict[str, tuple[str, ...]]]]
    streams: dict[str, tuple[str, ...]]


recorded = partial(table, "recorded.yml", RecordedTable)


def is_recorded(folder: str, arch: str, name: str, version: str | None) -> bool:
    """Whether a document shows this package there; version None: any version of it.

    A recorded version without an epoch matches any epoch.
    """
    seen = recorded().folders.get(folder, {}).get(arch, {}).get(name)
    if seen is None or version is None:
        return seen is not None
    return any(version == one or version.partition(":")[2] == one for one in seen)


def recorded_versions(folder: str, name: str) -> tuple[str, ...]:
    """Every version of a package that documents show in a directory, on any architecture, without its revision."""
    arches = recorded().folders.get(folder, {}).values()
    return tuple(dict.fromkeys(version.partition("-")[0] for names in arches for version in names.get(name, ())))


def recorded_packages(folder: str, arch: str, name: str) -> tuple[str, ...]:
    """Every complete version of a package that is seen in a directory for an architecture, without its epoch."""
    seen = recorded().folders.get(folder, {}).get(arch, {}).get(name, ())
    return tuple(dict.fromkeys(version.partition(":")[2] or version for version in seen))


def nearest(folder: str, arch: str, name: str, version: str) -> str:
    """Where a document shows the same version of the same package else, ``rhel10 x86_64: 580.178.04-1.el10``, or "".

    Looked for in the directories that are built from the same sources, the own directory's other architecture first.
    """
    family = next((words for words in FAMILIES if folder.startswith(words)), (folder,))
    others = [name for name in recorded().folders if name.startswith(family)]
    for other in sorted(others, key=lambda other: other != folder):
        for own, names in recorded().folders[other].items():
            for seen in names.get(name, ()) if (other, own) != (folder, arch) else ():
                if _plain(seen) == _plain(version):
                    return f"{other} {own}: {seen}"
    return ""


FAMILIES = (("rhel", "amzn"), ("ubuntu",), ("debian",))


def _plain(version: str) -> str:
    return DIST_TAG.sub("", version.rpartition(":")[2])


OFF = ("false", "no", "off")


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """One variable. harmless: values that change nothing. effect: what every other value does.

    slows: the collectives of one host show it.
    """

    name: str
    harmless: tuple[str, ...]
    effect: str
    slows: bool = False

    def changes(self, value: str) -> bool:
        """Whether a value has an effect; an empty one counts as not set, and ``off`` as 0."""
        word = value.strip().lower()
        return bool(word) and ("0" if word in OFF else word) not in map(str.lower, self.harmless)


class _Variables(Table, frozen=True, kw_only=True):
    schema_: Literal["gpucheck.knowledge.environment/1"]
    variables: tuple[Variable, ...]


def variables() -> dict[str, Variable]:
    """Every known variable by its name. Raises KnowledgeError if the file is damaged."""
    return {variable.name: variable for variable in table("environment.yml", _Variables).variables}
