"""The one fake host of the whole suite: every answer is a value handed in, everything else is "not there"."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from gpucheck.model import (
    DriverState,
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
NO_DRIVER = NvmlFailure(call="nvmlInit", code=12, name="NVMLError_LibraryNotFound")


@dataclass
class FakeHost:
    """A host without anything, until told otherwise."""

    system_: System = SYSTEM
    simulation_: Simulation | None = None
    driver_: DriverState = field(default_factory=DriverState)
    pci_: tuple[PciDevice, ...] = ()
    nvml_: NvmlReading | NvmlFailure = NO_DRIVER
    packages_: tuple[PackageVersion, ...] = ()
    python_: dict[str, str] = field(default_factory=dict)
    services_: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)

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

    def packages(self, names: Iterable[str]) -> tuple[PackageVersion, ...]:
        wanted = set(names)
        return tuple(p for p in self.packages_ if p.name in wanted)

    def python_packages(self, names: Iterable[str]) -> dict[str, str | None]:
        return {name: self.python_.get(name) for name in names}

    def services(self, names: Iterable[str]) -> dict[str, str | None]:
        return {name: self.services_.get(name) for name in names}

    def read_text(self, path: str) -> str | None:
        return self.files.get(path)
