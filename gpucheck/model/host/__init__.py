"""What a check may ask of a host. The host room answers it live; a test or a replay answers it from values."""

from collections.abc import Iterable
from typing import Protocol

from gpucheck.model.host.hardware import PciDevice
from gpucheck.model.host.readings import (
    DeviceFile,
    DkmsModule,
    DriverState,
    InstalledKernel,
    KernelLog,
    Limits,
    LoaderLibrary,
    NvmlFailure,
    NvmlReading,
    PackageVersion,
    Simulation,
    System,
)


class NotRecorded(LookupError):
    """A value was requested that the recording does not contain. The message is a complete sentence."""


class Host(Protocol):
    """A host's answers, unjudged. No method raises for what the host lacks: absence is a value.

    Only a replay raises, and only NotRecorded: that a thing is not in a recording does not mean that it was not there.
    """

    def system(self) -> System:
        """The operating system and the machine."""

    def simulation(self) -> Simulation | None:
        """Set when the hardware is simulated."""

    def driver(self) -> DriverState:
        """The driver's kernel side, loaded and installed."""

    def pci(self) -> tuple[PciDevice, ...]:
        """Every NVIDIA function, every bridge and every network card, ordered by bus id."""

    def nvml(self) -> NvmlReading | NvmlFailure:
        """One pass over NVML, or why there was none."""

    def packages(self, names: Iterable[str]) -> tuple[PackageVersion, ...] | None:
        """The installed ones among these package names, from dpkg or rpm; None where neither database can be read."""

    def python_packages(self, names: Iterable[str]) -> dict[str, str | None]:
        """Versions of these distributions in the running interpreter's environment, None where not installed."""

    def services(self, names: Iterable[str]) -> dict[str, str | None]:
        """systemd's ActiveState of each unit.

        ``not-found``: systemd does not know the unit. None: systemd cannot be queried, as in most containers.
        """

    def read_text(self, path: str) -> str | None:
        """A text file by absolute path, None where it does not exist or cannot be read."""

    def kernel_log(self) -> KernelLog:
        """The kernel's messages about GPUs, switches, PCI and the IOMMU since boot."""

    def limits(self) -> Limits:
        """Shared memory and resource limits of this process."""

    def environment(self) -> dict[str, str]:
        """The variables of this process that steer CUDA, NCCL, the loader and the frameworks, and no others."""

    def kernels(self) -> tuple[InstalledKernel, ...]:
        """Every kernel that this machine could boot, the newest last."""

    def dkms(self) -> tuple[DkmsModule, ...]:
        """The state of each DKMS module for each kernel; none where DKMS is not installed."""

    def secure_boot(self) -> bool | None:
        """Return whether the firmware enforces signatures; None if unknown."""

    def loader_libraries(self, names: Iterable[str]) -> tuple[LoaderLibrary, ...] | None:
        """What the dynamic loader would find for names such as ``libcudart``, in its own order.

        None: its cache cannot be listed.
        """

    def device_files(self) -> tuple[DeviceFile, ...]:
        """The device files of the driver and of each GPU that it has; none without a driver."""

    def list_names(self, path: str) -> tuple[str, ...] | None:
        """Return the sorted names in a directory by absolute path, None if it is missing or unreadable."""
