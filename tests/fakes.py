"""The one fake host of the whole suite: every answer is a value handed in, everything else is "not there"."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from gpucheck.model import (
    DeviceFile,
    DkmsModule,
    DriverState,
    InstalledKernel,
    KernelLine,
    KernelLog,
    Limits,
    LoaderLibrary,
    NvmlFailure,
    NvmlReading,
    PackageVersion,
    PciDevice,
    Simulation,
    System,
)
from gpucheck.model.facts import Facts

SYSTEM = System(
    hostname="node07",
    os_id="ubuntu",
    os_version="22.04",
    os_name="Ubuntu 22.04.5 LTS",
    arch="x86_64",
    kernel="5.15.0-179-generic",
)
LIMITS = Limits(shm_bytes=16 << 30, shm_free_bytes=16 << 30, memlock_bytes=-1, nofile=1 << 20)
QUIET_LOG = KernelLog(source="/dev/kmsg")
NO_DRIVER = NvmlFailure(call="nvmlInit", code=12, name="NVMLError_LibraryNotFound")


def kernel_log(*texts: str) -> KernelLog:
    """A log of these messages, one a second."""
    lines = tuple(KernelLine(text=text, seconds=float(n)) for n, text in enumerate(texts, start=1))
    return KernelLog(lines=lines, source="/dev/kmsg")


@dataclass
class FakeHost:
    """A host without anything, until told otherwise."""

    system_: System = SYSTEM
    simulation_: Simulation | None = None
    driver_: DriverState = field(default_factory=DriverState)
    pci_: tuple[PciDevice, ...] = ()
    nvml_: NvmlReading | NvmlFailure = NO_DRIVER
    packages_: tuple[PackageVersion, ...] | None = ()
    python_: dict[str, str] = field(default_factory=dict)
    services_: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    kernel_log_: KernelLog = QUIET_LOG
    limits_: Limits = LIMITS
    environment_: dict[str, str] = field(default_factory=dict)
    kernels_: tuple[InstalledKernel, ...] = ()
    dkms_: tuple[DkmsModule, ...] = ()
    secure_boot_: bool | None = False
    libraries_: tuple[LoaderLibrary, ...] | None = ()
    folders: dict[str, tuple[str, ...]] = field(default_factory=dict)
    device_files_: tuple[DeviceFile, ...] = ()

    def system(self) -> System:
        return self.system_

    def simulation(self) -> Simulation | None:
        return self.simulation_

    def driver(self) -> DriverState:
        return self.driver_

    def pci(self) -> tuple[PciDevice, ...]:
        return self.pci_

    def nvml(self) -> NvmlReading | NvmlFailure:
        return self.nvml_

    def packages(self, names: Iterable[str]) -> tuple[PackageVersion, ...] | None:
        wanted = set(names)
        if self.packages_ is None:
            return None
        return tuple(p for p in self.packages_ if p.name in wanted)

    def python_packages(self, names: Iterable[str]) -> dict[str, str | None]:
        return {name: self.python_.get(name) for name in names}

    def services(self, names: Iterable[str]) -> dict[str, str | None]:
        return {name: self.services_.get(name) for name in names}

    def read_text(self, path: str) -> str | None:
        return self.files.get(path)

    def kernel_log(self) -> KernelLog:
        return self.kernel_log_

    def limits(self) -> Limits:
        return self.limits_

    def environment(self) -> dict[str, str]:
        return self.environment_

    def kernels(self) -> tuple[InstalledKernel, ...]:
        return self.kernels_

    def dkms(self) -> tuple[DkmsModule, ...]:
        return self.dkms_

    def secure_boot(self) -> bool | None:
        return self.secure_boot_

    def loader_libraries(self, names: Iterable[str]) -> tuple[LoaderLibrary, ...] | None:
        wanted = set(names)
        if self.libraries_ is None:
            return None
        return tuple(library for library in self.libraries_ if library.soname.partition(".so")[0] in wanted)

    def list_names(self, path: str) -> tuple[str, ...] | None:
        return self.folders.get(path)

    def device_files(self) -> tuple[DeviceFile, ...]:
        return self.device_files_


class Everything(dict[str, Any]):
    """Answers by name: every name was asked, and what is not here is not there."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> None:
        return None


def facts(
    *,
    system: System = SYSTEM,
    simulation: Simulation | None = None,
    driver: DriverState = DriverState(),  # noqa: B008 - frozen
    pci: tuple[PciDevice, ...] = (),
    nvml: NvmlReading | NvmlFailure = NO_DRIVER,
    packages: Iterable[PackageVersion] | None = (),
    python: dict[str, str] | None = None,
    services: dict[str, str] | None = None,
    files: dict[str, str] | None = None,
    kernel_log: KernelLog = QUIET_LOG,
    limits: Limits = LIMITS,
    environment: dict[str, str] | None = None,
    kernels: tuple[InstalledKernel, ...] = (),
    dkms: tuple[DkmsModule, ...] = (),
    secure_boot: bool | None = False,
    libraries: tuple[LoaderLibrary, ...] | None = (),
    folders: dict[str, tuple[str, ...]] | None = None,
    device_files: tuple[DeviceFile, ...] = (),
) -> Facts:
    """A host without anything, until told otherwise; every question was asked."""
    return Facts(
        system=system,
        simulation=simulation,
        driver=driver,
        pci=pci,
        nvml=nvml,
        kernel_log=kernel_log,
        limits=limits,
        environment=environment or {},
        kernels=kernels,
        dkms=dkms,
        secure_boot=secure_boot,
        packages=None if packages is None else Everything({package.name: package for package in packages}),
        python_packages=Everything(python or {}),
        services=Everything(services or {}),
        texts=Everything(files or {}),
        folders=Everything(folders or {}),
        library_names=Everything(),  # type: ignore[arg-type]
        libraries=libraries,
        device_files=device_files,
    )
