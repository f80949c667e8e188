"""Recordings of a host: the values that were read, and a host that returns them again."""

import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from gpucheck.host.system import belongs
from gpucheck.model import (
    DeviceFile,
    DkmsModule,
    DriverState,
    Host,
    InstalledKernel,
    KernelLog,
    Limits,
    LoaderLibrary,
    NotRecorded,
    NvmlFailure,
    NvmlReading,
    PackageVersion,
    PciDevice,
    Simulation,
    System,
)
from gpucheck.model.full_record import Difference, FullRecord

SCHEMA: Literal["gpucheck.recording/1"] = "gpucheck.recording/1"
Value = TypeVar("Value")


class Recording(msgspec.Struct, frozen=True, kw_only=True, rename={"schema_": "schema"}):
    """Every answer of one host. Where a question has a name in it, the key is that name and None is "not there".

    packages, libraries: None where the host could not read its package database or the loader's cache.
    gpucheck: version of the recorder. recorded: when, ISO 8601 with a time zone. redacted: see redaction.
    texts, folders: by absolute path; a path below the interpreter's packages or the user's home starts with
    ``{purelib}`` or ``{home}``, because these lie elsewhere where the recording is replayed.
    full: of gpucheck record --full. differences: what of it gpucheck did not expect; first, for it is read first.
    """

    schema_: Literal["gpucheck.recording/1"]
    gpucheck: str
    recorded: str
    redacted: bool
    differences: tuple[Difference, ...] = ()
    system: System
    simulation: Simulation | None
    driver: DriverState
    pci: tuple[PciDevice, ...]
    nvml: NvmlReading | NvmlFailure
    kernel_log: KernelLog
    limits: Limits
    environment: dict[str, str]
    kernels: tuple[InstalledKernel, ...]
    dkms: tuple[DkmsModule, ...]
    secure_boot: bool | None
    packages: dict[str, PackageVersion | None] | None
    python_packages: dict[str, str | None]
    services: dict[str, str | None]
    texts: dict[str, str | None]
    folders: dict[str, tuple[str, ...] | None]
    library_names: tuple[str, ...]
    libraries: tuple[LoaderLibrary, ...] | None
    device_files: tuple[DeviceFile, ...] = ()
    redactions: dict[str, int] = {}
    full: FullRecord | None = None


class RecordingHost:
    """gpucheck.model.Host that passes every question on and remembers those that have a name in them."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._packages: set[str] = set()
        self._python: set[str] = set()
        self._services: set[str] = set()
        self._libraries: set[str] = set()
        self._texts: dict[str, str | None] = {}
        self._folders: dict[str, tuple[str, ...] | None] = {}
        self.system, self.simulation, self.driver = host.system, host.simulation, host.driver
        self.pci, self.nvml, self.kernel_log = host.pci, host.nvml, host.kernel_log
        self.limits, self.environment = host.limits, host.environment
        self.kernels, self.dkms, self.secure_boot = host.kernels, host.dkms, host.secure_boot
        self.device_files = host.device_files

    def packages(self, names: Iterable[str]) -> tuple[PackageVersion, ...] | None:
        return self._host.packages(_noted(names, self._packages))

    def python_packages(self, names: Iterable[str]) -> dict[str, str | None]:
        return self._host.python_packages(_noted(names, self._python))

    def services(self, names: Iterable[str]) -> dict[str, str | None]:
        return self._host.services(_noted(names, self._services))

    def loader_libraries(self, names: Iterable[str]) -> tuple[LoaderLibrary, ...] | None:
        return self._host.loader_libraries(_noted(names, self._libraries))

    def read_text(self, path: str) -> str | None:
        return self._texts.setdefault(portable(path), self._host.read_text(path))

    def list_names(self, path: str) -> tuple[str, ...] | None:
        return self._folders.setdefault(portable(path), self._host.list_names(path))

    def recording(self, *, version: str, now: str) -> Recording:
        """Everything that was queried, and what every host has. version: of gpucheck. now: ISO 8601."""
        host = self._host
        installed = host.packages(sorted(self._packages))
        found = {package.name: package for package in installed or ()}
        libraries = tuple(sorted(self._libraries))
        return Recording(
            schema_=SCHEMA,
            gpucheck=version,
            recorded=now,
            redacted=False,
            system=host.system(),
            simulation=host.simulation(),
            driver=host.driver(),
            pci=host.pci(),
            nvml=host.nvml(),
            kernel_log=host.kernel_log(),
            limits=host.limits(),
            environment=host.environment(),
            kernels=host.kernels(),
            dkms=host.dkms(),
            secure_boot=host.secure_boot(),
            device_files=host.device_files(),
            packages=None if installed is None else {name: found.get(name) for name in sorted(self._packages)},
            python_packages=host.python_packages(sorted(self._python)),
            services=host.services(sorted(self._services)),
            texts=dict(sorted(self._texts.items())),
            folders=dict(sorted(self._folders.items())),
            library_names=libraries,
            libraries=host.loader_libraries(libraries),
        )


class ReplayHost:
    """gpucheck.model.Host over a recording. What was not queried then raises NotRecorded."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.system = lambda: recording.system
        self.simulation = lambda: recording.simulation
        self.driver = lambda: recording.driver
        self.pci = lambda: recording.pci
        self.nvml = lambda: recording.nvml
        self.kernel_log = lambda: recording.kernel_log
        self.limits = lambda: recording.limits
        self.environment = lambda: dict(recording.environment)
        self.kernels = lambda: recording.kernels
        self.dkms = lambda: recording.dkms
        self.secure_boot = lambda: recording.secure_boot
        self.device_files = lambda: recording.device_files

    def packages(self, names: Iterable[str]) -> tuple[PackageVersion, ...] | None:
        recorded = self.recording.packages
        if recorded is None:
            return None
        answers = (self._answer(recorded, name, "package") for name in sorted(set(names)))
        return tuple(package for package in answers if package is not None)

    def python_packages(self, names: Iterable[str]) -> dict[str, str | None]:
        return {name: self._answer(self.recording.python_packages, name, "Python package") for name in names}

    def services(self, names: Iterable[str]) -> dict[str, str | None]:
        return {name: self._answer(self.recording.services, name, "service") for name in names}

    def loader_libraries(self, names: Iterable[str]) -> tuple[LoaderLibrary, ...] | None:
        wanted = tuple(names)
        recorded = dict.fromkeys(self.recording.library_names)
        for name in wanted:
            self._answer(recorded, name, "library")
        libraries = self.recording.libraries
        return None if libraries is None else tuple(one for one in libraries if belongs(one.soname, wanted))

    def read_text(self, path: str) -> str | None:
        return self._answer(self.recording.texts, portable(path), "file")

    def list_names(self, path: str) -> tuple[str, ...] | None:
        return self._answer(self.recording.folders, portable(path), "directory")

    def _answer(self, answers: dict[str, Value], name: str, kind: str) -> Value:
        if name not in answers:
            made = f"recorded on {self.recording.recorded} by gpucheck {self.recording.gpucheck}"
            raise NotRecorded(f"the recording ({made}) does not contain {kind} {name}")
        return answers[name]


def _noted(names: Iterable[str], queried: set[str]) -> tuple[str, ...]:
    """Add the names to those that were queried, and return them."""
    noted = tuple(names)
    queried.update(noted)
    return noted


def portable(path: str) -> str:
    """A path below this interpreter's packages or this user's home, under a name that means the same elsewhere."""
    for name, folder in (("{purelib}", sysconfig.get_path("purelib")), ("{home}", str(Path.home()))):
        if path.startswith(f"{folder}/"):
            return name + path.removeprefix(folder)
    return path
