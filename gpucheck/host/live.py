"""The machine that this process runs on; each thing is read at most once, by a module that is imported for it."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar, cast

import msgspec

from gpucheck.host import simulated
from gpucheck.host.nvml.supervisor import SECONDS_PER_GPU, NvmlChild, query_twice
from gpucheck.host.readers.files import folder_names
from gpucheck.model import (
    DeviceFile,
    DkmsModule,
    DriverState,
    Host,
    InstalledKernel,
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

Answer = TypeVar("Answer")
MOST_GPUS = 16
# Of a simulated machine these belong to the hardware: what is not in its tree is not there.
HARDWARE = (
    "/sys/",
    "/dev/",
    "/proc/driver/",
    "/proc/modules/",
    "/proc/cmdline/",
    "/proc/cpuinfo/",
    "/proc/uptime/",
    "/lib/modules/",
    "/var/lib/dkms/",
)


def live_host(*, isolated: bool, deadline_s: float, health: bool = True, begin: bool = False) -> Host:
    """This machine, or the simulated one that the environment names.

    isolated: ask NVML in a child process, so that a hang or a crash becomes an NvmlFailure.
    deadline_s: how long one NVML call may take there.
    health: also ask NVML how each GPU is; without it the pass is half as long and Gpu.health is empty.
    begin: ask NVML at once, while the caller does other things.
    """
    host = LiveHost(isolated=isolated, deadline_s=deadline_s, machine=simulated.machine_directory(), health=health)
    if begin:
        host.begin()
    return host


class LiveHost:
    """gpucheck.model.Host over sysfs, procfs, NVML, dpkg or rpm, and systemctl.

    machine: the directory of a simulated machine, whose root/ takes the place of / for the hardware.
    system_root: where the operating system's own files are.
    """

    def __init__(
        self,
        *,
        isolated: bool,
        deadline_s: float,
        machine: Path | None = None,
        system_root: Path = Path("/"),
        health: bool = True,
    ) -> None:
        self.isolated = isolated
        self.deadline_s = deadline_s
        self.machine = machine
        self.system_root = system_root
        self.health = health
        self.root = system_root if machine is None else machine / "root"
        self._child: NvmlChild | None = None
        self._answers: dict[object, object] = {}

    @property
    def patience_s(self) -> float:
        """The longest that nvml() takes by itself: two tries, on as many GPUs as a host has."""
        return 2 * (self.deadline_s + SECONDS_PER_GPU * MOST_GPUS)

    def begin(self) -> None:
        """Start to ask NVML, for a caller that will certainly want its answer: nvml() then waits for the rest."""
        if self.isolated and self._child is None and "nvml" not in self._answers:
            self._child = NvmlChild(self.deadline_s, health=self.health)

    def system(self) -> System:
        from gpucheck.host.system import read_system

        return self._once("system", lambda: read_system(self.root, self.system_root))

    def simulation(self) -> Simulation | None:
        """What is simulated; None on real hardware. A directory without that information counts as simulated."""
        return self._once("simulation", self._simulation)

    def driver(self) -> DriverState:
        from gpucheck.host.driver import read_driver

        kernel = self.system().kernel
        return self._once("driver", lambda: read_driver(self.root, kernel, simulated=self.machine is not None))

    def pci(self) -> tuple[PciDevice, ...]:
        from gpucheck.host.pci import read_pci

        return self._once("pci", lambda: read_pci(self.root))

    def nvml(self) -> NvmlReading | NvmlFailure:
        return self._once("nvml", self._nvml)

    @property
    def nvml_answered(self) -> bool:
        """Whether nvml() returns at once. A caller in a hurry must not ask a driver that hangs a second time."""
        return "nvml" in self._answers

    def packages(self, names: Iterable[str]) -> tuple[PackageVersion, ...] | None:
        wanted = frozenset(names)
        made = simulated.software(self.machine)
        if made is not None:
            found = sorted(wanted & made.packages.keys())
            return tuple(PackageVersion(name=name, version=made.packages[name], held=True) for name in found)
        from gpucheck.host.packages import read_packages
        from gpucheck.host.readers.system import os_release

        release = self._once("os-release", lambda: os_release(self.system_root))
        return self._once(("packages", wanted), lambda: read_packages(release, self.system_root, wanted))

    def python_packages(self, names: Iterable[str]) -> dict[str, str | None]:
        from gpucheck.host.packages import read_python_packages

        wanted = tuple(names)
        found = dict(self._once(("python", wanted), lambda: read_python_packages(wanted)))
        made = self._surroundings()
        return found if made is None else found | {name: made.python[name] for name in wanted if name in made.python}

    def services(self, names: Iterable[str]) -> dict[str, str | None]:
        wanted = tuple(names)
        made = simulated.software(self.machine)
        if made is not None:
            return {name: made.services.get(name, "not-found") for name in wanted}
        from gpucheck.host.packages import read_services

        return dict(self._once(("services", wanted), lambda: read_services(wanted)))

    def read_text(self, path: str) -> str | None:
        made = self._surroundings()
        wheel = made.wheel_file(path) if made is not None else None
        if wheel is not None:
            return wheel
        try:
            return self._place(path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None

    def list_names(self, path: str) -> tuple[str, ...] | None:
        return folder_names(self._place(path))

    def device_files(self) -> tuple[DeviceFile, ...]:
        return self._once("device-files", self._device_files)

    def kernel_log(self) -> KernelLog:
        from gpucheck.host.kernel_log import read_kernel_log

        return self._once("kernel-log", lambda: read_kernel_log(self.root, simulated=self.machine is not None))

    def limits(self) -> Limits:
        from gpucheck.host.system import read_limits

        made = self._surroundings()
        return self._once("limits", lambda: read_limits() if made is None else made.limits)

    def environment(self) -> dict[str, str]:
        from gpucheck.host.system import steering

        made = self._surroundings()
        return steering(os.environ if made is None else made.environment)

    def kernels(self) -> tuple[InstalledKernel, ...]:
        from gpucheck.host.driver import read_kernels

        running = self.system().kernel
        return self._once("kernels", lambda: read_kernels(self.root, running, simulated=self.machine is not None))

    def dkms(self) -> tuple[DkmsModule, ...]:
        from gpucheck.host.driver import read_dkms

        return self._once("dkms", lambda: read_dkms(self.root))

    def secure_boot(self) -> bool | None:
        """Return whether the firmware enforces signatures; False for a simulated machine without that information."""
        from gpucheck.host.driver import read_secure_boot

        made = self._surroundings()
        if made is not None and made.secure_boot is not None:
            return made.secure_boot
        state = self._once("secure-boot", lambda: read_secure_boot(self.root))
        return state if made is None else bool(state)

    def loader_libraries(self, names: Iterable[str]) -> tuple[LoaderLibrary, ...] | None:
        from gpucheck.host.system import belongs, read_libraries

        wanted = tuple(names)
        made = self._surroundings()
        if made is not None:
            return tuple(library for library in made.libraries if belongs(library.soname, wanted))
        path = os.environ.get("LD_LIBRARY_PATH", "")
        return self._once(("libraries", wanted), lambda: read_libraries(wanted, path))

    def _place(self, path: str) -> Path:
        hardware = any(f"{path}/".startswith(prefix) for prefix in HARDWARE)
        if f"{path}/".startswith("/dev/") and simulated.software(self.machine) is None:
            # On the lab's hosts the driver's packages are installed, and make the device files, as everywhere.
            hardware = False
        return (self.root if hardware else self.system_root) / path.lstrip("/")

    def _device_files(self) -> tuple[DeviceFile, ...]:
        from gpucheck.host.device_files import read_device_files

        made, nvml = self._surroundings(), self.nvml()
        return read_device_files(
            self._place("/dev"),
            self._place("/proc/driver/nvidia/gpus"),
            listed={gpu.pci_bus_id for gpu in nvml.gpus} if isinstance(nvml, NvmlReading) else None,
            simulated=None if made is None else made.open_errors,
            deadline_s=self.deadline_s + SECONDS_PER_GPU,
        )

    def _surroundings(self) -> simulated.Surroundings | None:
        """Environment of the simulated machine in place of this process' own; None on real hardware."""
        machine = self.machine
        return None if machine is None else self._once("surroundings", lambda: simulated.surroundings(machine))

    def _simulation(self) -> Simulation | None:
        if self.machine is None:
            return None
        try:
            return msgspec.json.decode((self.machine / "simulation.json").read_bytes(), type=Simulation)
        except (OSError, msgspec.DecodeError):
            return Simulation(profile="unknown", stand_ins=(f"{self.machine}: no readable simulation.json",))

    def _nvml(self) -> NvmlReading | NvmlFailure:
        if self.isolated:
            first = self._child or NvmlChild(self.deadline_s, health=self.health)
            gpus = sum(device.is_nvidia_gpu for device in self.pci())
            first.more_time(gpus)

            def again() -> NvmlChild:
                second = NvmlChild(self.deadline_s, health=self.health)
                second.more_time(gpus)
                return second

            return query_twice(first, again)
        try:
            simulated.preload()
        except OSError as error:
            return NvmlFailure(call="dlopen", code=12, name="NVMLError_LibraryNotFound", detail=str(error))
        from gpucheck.host.nvml.reading import read_nvml

        return read_nvml(lambda call, subject: None, health=self.health)  # noqa: ARG005 - progress is not shown

    def _once(self, key: object, query: Callable[[], Answer]) -> Answer:
        if key not in self._answers:
            self._answers[key] = query()
        return cast("Answer", self._answers[key])
