"""The readers of the machine that this process runs on, by need: each once, each with a deadline."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import msgspec

from gpucheck.host import simulated
from gpucheck.host.nvml.supervisor import SECONDS_PER_GPU, NvmlChild, query_twice
from gpucheck.host.readers.files import folder_names
from gpucheck.model import (
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
    PciDevice,
    Simulation,
    System,
)
from gpucheck.model.facts import BY_NAME, Facts
from gpucheck.model.host.network import PortCounters, RdmaDevice
from gpucheck.processes.deadline import StuckError, in_time

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
    "/etc/libibverbs.d/",
)


@dataclass(frozen=True)
class Place:
    """What is read, and how.

    isolated: ask NVML in a child process, so that a hang or a crash becomes an NvmlFailure.
    deadline_s: how long one NVML call may take there.
    machine: the directory of a simulated machine, whose root/ takes the place of / for the hardware.
    system_root: where the operating system's own files are.
    health: also ask NVML how each GPU is; without it the pass is half as long and Gpu.health is empty.
    begun: a child that already asks NVML.
    """

    isolated: bool
    deadline_s: float
    machine: Path | None = None
    system_root: Path = Path("/")
    health: bool = True
    begun: NvmlChild | None = None

    @property
    def root(self) -> Path:
        return self.system_root if self.machine is None else self.machine / "root"

    @property
    def nvml_s(self) -> float:
        """The longest that NVML takes by its own deadlines: two tries, on as many GPUs as a host has."""
        return 2 * (self.deadline_s + SECONDS_PER_GPU * MOST_GPUS)

    @cached_property
    def surroundings(self) -> simulated.Surroundings | None:
        """Environment of the simulated machine in place of this process' own; None on real hardware."""
        return None if self.machine is None else simulated.surroundings(self.machine)

    def at(self, path: str) -> Path:
        hardware = any(f"{path}/".startswith(prefix) for prefix in HARDWARE)
        if f"{path}/".startswith("/dev/") and simulated.software(self.machine) is None:
            # On the lab's hosts the driver's packages are installed, and make the device files, as everywhere.
            hardware = False
        return (self.root if hardware else self.system_root) / path.lstrip("/")


def _system(place: Place, _: Facts) -> System:
    from gpucheck.host.system import read_system

    return read_system(place.root, place.system_root)


def _simulation(place: Place, _: Facts) -> Simulation | None:
    if place.machine is None:
        return None
    try:
        return msgspec.json.decode((place.machine / "simulation.json").read_bytes(), type=Simulation)
    except (OSError, msgspec.DecodeError):
        return Simulation(profile="unknown", stand_ins=(f"{place.machine}: no readable simulation.json",))


def _driver(place: Place, facts: Facts) -> DriverState:
    from gpucheck.host.driver import read_driver

    return read_driver(place.root, facts.system.kernel, simulated=place.machine is not None)


def _pci(place: Place, _: Facts) -> tuple[PciDevice, ...]:
    from gpucheck.host.pci import read_pci

    return read_pci(place.root)


def _rdma(place: Place, _: Facts) -> tuple[RdmaDevice, ...]:
    from gpucheck.host.network import read_rdma

    return read_rdma(place.root)


def _counters_at_start(place: Place, facts: Facts) -> tuple[PortCounters, ...]:
    return _counters_now(place, facts, ())


def _counters(place: Place, facts: Facts) -> tuple[PortCounters, ...]:
    return _counters_now(place, facts, facts.counters_at_start)


def _counters_now(place: Place, facts: Facts, before: tuple[PortCounters, ...]) -> tuple[PortCounters, ...]:
    from gpucheck.host.network import read_counters

    made = place.surroundings
    return read_counters(place.root, facts.rdma, before, None if made is None else made.moving)


def _nvml(place: Place, facts: Facts) -> NvmlReading | NvmlFailure:
    if not place.isolated:
        try:
            simulated.preload()
        except OSError as error:
            return NvmlFailure(call="dlopen", code=12, name="NVMLError_LibraryNotFound", detail=str(error))
        from gpucheck.host.nvml.reading import read_nvml

        return read_nvml(lambda call, subject: None, health=place.health)  # noqa: ARG005 - progress is not shown
    gpus = sum(device.is_nvidia_gpu for device in facts.pci)

    def start() -> NvmlChild:
        return NvmlChild(place.deadline_s, health=place.health)

    def again() -> NvmlChild:
        second = start()
        second.more_time(gpus)
        return second

    first = place.begun or start()
    first.more_time(gpus)
    return query_twice(first, again)


def _kernel_log(place: Place, _: Facts) -> KernelLog:
    from gpucheck.host.kernel_log import read_kernel_log

    return read_kernel_log(place.root, simulated=place.machine is not None)


def _limits(place: Place, _: Facts) -> Limits:
    from gpucheck.host.system import read_limits

    return read_limits() if place.surroundings is None else place.surroundings.limits


def _environment(place: Place, _: Facts) -> dict[str, str]:
    """The variables that steer CUDA, NCCL, the loader and the frameworks, and no others."""
    from gpucheck.host.system import steering

    return steering(os.environ if place.surroundings is None else place.surroundings.environment)


def _kernels(place: Place, facts: Facts) -> tuple[InstalledKernel, ...]:
    from gpucheck.host.driver import read_kernels

    return read_kernels(place.root, facts.system.kernel, simulated=place.machine is not None)


def _dkms(place: Place, _: Facts) -> tuple[DkmsModule, ...]:
    from gpucheck.host.driver import read_dkms

    return read_dkms(place.root)


def _secure_boot(place: Place, _: Facts) -> bool | None:
    from gpucheck.host.driver import read_secure_boot

    made = place.surroundings
    if made is not None and made.secure_boot is not None:
        return made.secure_boot
    state = read_secure_boot(place.root)
    return state if made is None else bool(state)


def _device_files(place: Place, facts: Facts) -> tuple[DeviceFile, ...]:
    from gpucheck.host.driver import read_device_files

    made, nvml = place.surroundings, facts.nvml
    return read_device_files(
        place.at("/dev"),
        place.at("/proc/driver/nvidia/gpus"),
        listed={gpu.pci_bus_id for gpu in nvml.gpus} if isinstance(nvml, NvmlReading) else None,
        simulated=None if made is None else made.open_errors,
        deadline_s=place.deadline_s + SECONDS_PER_GPU,
    )


class Reader(NamedTuple):
    """read: returns a part of the facts. after: the parts that it needs. patient: it has deadlines of its own."""

    read: Callable[[Place, Facts], Any]
    after: tuple[str, ...] = ()
    patient: bool = False


READERS = {
    "system": Reader(_system),
    "simulation": Reader(_simulation),
    "driver": Reader(_driver, after=("system",)),
    "pci": Reader(_pci),
    # Each device has a deadline of its own.
    "rdma": Reader(_rdma, patient=True),
    "counters_at_start": Reader(_counters_at_start, after=("rdma",), patient=True),
    "counters": Reader(_counters, after=("counters_at_start", "rdma"), patient=True),
    "nvml": Reader(_nvml, after=("pci",), patient=True),
    "kernel_log": Reader(_kernel_log),
    "limits": Reader(_limits),
    "environment": Reader(_environment),
    "kernels": Reader(_kernels, after=("system",)),
    "dkms": Reader(_dkms),
    "secure_boot": Reader(_secure_boot),
    "device_files": Reader(_device_files, after=("nvml",), patient=True),
}


def _packages(place: Place, names: tuple[str, ...]) -> dict[str, PackageVersion | None] | None:
    made = simulated.software(place.machine)
    if made is not None:
        versions = made.packages
        return {n: PackageVersion(name=n, version=versions[n], held=True) if n in versions else None for n in names}
    from gpucheck.host.readers.system import os_release
    from gpucheck.host.system import read_packages

    found = read_packages(os_release(place.system_root), place.system_root, names)
    return None if found is None else dict.fromkeys(names) | {package.name: package for package in found}


def _python_packages(place: Place, names: tuple[str, ...]) -> dict[str, str | None]:
    from gpucheck.host.system import read_python_packages

    found, made = read_python_packages(names), place.surroundings
    return found if made is None else found | {name: made.python[name] for name in names if name in made.python}


def _services(place: Place, names: tuple[str, ...]) -> dict[str, str | None]:
    """systemd's ActiveState of each unit; ``not-found``: no such unit. None: systemd cannot be queried."""
    made = simulated.software(place.machine)
    if made is not None:
        return {name: made.services.get(name, "not-found") for name in names}
    from gpucheck.host.system import read_services

    return read_services(names)


def _texts(place: Place, paths: tuple[str, ...]) -> dict[str, str | None]:
    return {path: _text(place, real_path(path)) for path in paths}


def _text(place: Place, path: str) -> str | None:
    made = place.surroundings
    wheel = made.wheel_file(path) if made is not None else None
    if wheel is not None:
        return wheel
    try:
        return place.at(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _folders(place: Place, paths: tuple[str, ...]) -> dict[str, tuple[str, ...] | None]:
    return {path: folder_names(place.at(real_path(path))) for path in paths}


# By the kind of a need with a name, as in gpucheck.model.facts.BY_NAME. None: the host could not be asked.
NAMED: Mapping[str, Callable[[Place, tuple[str, ...]], Mapping[str, Any] | None]] = {
    "package": _packages,
    "python": _python_packages,
    "service": _services,
    "text": _texts,
    "folder": _folders,
}


def libraries(place: Place, names: tuple[str, ...]) -> tuple[LoaderLibrary, ...] | None:
    """What the dynamic loader would find for names such as ``libcudart``, in its own order.

    None: its cache cannot be listed.
    """
    from gpucheck.host.system import belongs, read_libraries

    if place.surroundings is not None:
        made = (*place.surroundings.libraries, *(simulated.VERBS if place.surroundings.verbs else ()))
        return tuple(library for library in made if belongs(library.soname, names))
    return read_libraries(names, os.environ.get("LD_LIBRARY_PATH", ""))


def real_path(path: str) -> str:
    """Return the path of this interpreter and user for one that begins with ``{purelib}`` or ``{home}``."""
    if not path.startswith("{"):
        return path
    from sysconfig import get_path

    return path.replace("{purelib}", get_path("purelib"), 1).replace("{home}", str(Path.home()), 1)


READ_S = 20.0
# After one read got stuck the next ones probably wait for the same thing: 30 of them must not take 30 deadlines.
AFTER_STUCK_S = 2.0


class LiveSource:
    """facts: of this host so far. errors: how the read of a need ended that has no answer. stuck: reads left behind.

    With an error is its traceback: each time that it is raised adds the place of that to the error itself.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.facts = Facts()
        self.errors: dict[str, tuple[Exception, TracebackType | None]] = {}
        self.stuck = 0

    def read(self, *needs: str) -> Facts:
        """Return the facts with these needs. Raises what the read of one raised, each time that it is needed."""
        for need in needs:
            if ":" not in need and self._left([need]):
                self._part(need)
        for kind in BY_NAME:
            left = self._left([need for need in dict.fromkeys(needs) if need.startswith(f"{kind}:")])
            if left:
                names = tuple(need.partition(":")[2] for need in left)
                self._read(left, partial(self._by_name, kind, names), READ_S)
        for need in needs:
            if need in self.errors:
                error, trace = self.errors[need]
                raise error.with_traceback(trace)
        return self.facts

    def _left(self, needs: list[str]) -> list[str]:
        return [need for need in self.facts.missing(needs) if need not in self.errors]

    def _part(self, need: str) -> None:
        reader = READERS[need]
        try:
            facts = self.read(*reader.after)
        except Exception as error:
            self._keep([need], error)
            return
        seconds = READ_S + self.place.nvml_s if reader.patient else READ_S
        self._read([need], lambda: {need: reader.read(self.place, facts)}, seconds)

    def _read(self, needs: list[str], call: Callable[[], dict[str, Any]], seconds: float) -> None:
        try:
            answers = in_time(f"reading {needs[0]}", call, AFTER_STUCK_S if self.stuck else seconds)
        except StuckError as error:
            self.stuck += 1
            self._keep(needs, error)
        except Exception as error:  # one broken reader must not lose all that the others read
            self._keep(needs, error)
        else:
            self.facts = msgspec.structs.replace(self.facts, **answers)

    def _keep(self, needs: list[str], error: Exception) -> None:
        self.errors.update(dict.fromkeys(needs, (error, error.__traceback__)))

    def _by_name(self, kind: str, names: tuple[str, ...]) -> dict[str, Any]:
        field = BY_NAME[kind]
        known = getattr(self.facts, field)
        if kind == "library":
            every = (*known, *names)
            return {field: every, "libraries": libraries(self.place, every)}
        found = NAMED[kind](self.place, names)
        return {field: None if found is None else {**known, **found}}
