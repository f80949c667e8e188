"""The one fake host of the whole suite: every answer is a value handed in, everything else is "not there"."""

from collections.abc import Iterable
from dataclasses import dataclass, field

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
