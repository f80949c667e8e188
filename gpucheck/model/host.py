"""What a check may ask of a host. The host room answers it live; a test or a replay answers it from values."""

from collections.abc import Iterable
from typing import Protocol

from gpucheck.model.hardware import PciDevice
from gpucheck.model.readings import DriverState, NvmlFailure, NvmlReading, PackageVersion, Simulation, System


class Host(Protocol):
    """A host's answers, unjudged. No method raises for what the host lacks: absence is a value."""

    def system(self) -> System:
        """The operating system and the machine."""

    def simulation(self) -> Simulation | None:
        """Set when the hardware is simulated."""

    def driver(self) -> DriverState:
        """The driver's kernel side, loaded and installed."""

    def pci(self) -> tuple[PciDevice, ...]:
        """Every PCI function of vendor NVIDIA, ordered by bus id."""

    def nvml(self) -> NvmlReading | NvmlFailure:
        """One pass over NVML, or why there was none."""

    def packages(self, names: Iterable[str]) -> tuple[PackageVersion, ...]:
        """The installed ones among these package names, from dpkg or rpm."""

    def python_packages(self, names: Iterable[str]) -> dict[str, str | None]:
        """Versions of these distributions in the running interpreter's environment, None where not installed."""

    def services(self, names: Iterable[str]) -> dict[str, str | None]:
        """systemd's ActiveState of each unit, None where there is no such unit or no systemd."""

    def read_text(self, path: str) -> str | None:
        """A text file by absolute path, None where it does not exist or cannot be read."""
