"""The facts of a host for the whole suite: every answer is a value handed in, everything else is "not there"."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from gpucheck.host import live as of_host
from gpucheck.host.live import NAMED, READERS, LiveSource, Place, Reader
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
from gpucheck.model.facts import BY_NAME, Facts
from gpucheck.model.host.network import PortCounters, RdmaDevice

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


class Everything(dict[str, Any]):
    """Answers by name: every name was asked, and what is not here is not there."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> None:
        return None


class EveryName(tuple[str, ...]):
    """Names of libraries: every one was asked for."""

    __slots__ = ()

    def __contains__(self, name: object) -> bool:
        return True


def facts(
    *,
    system: System = SYSTEM,
    simulation: Simulation | None = None,
    driver: DriverState = DriverState(),  # noqa: B008 - frozen
    pci: tuple[PciDevice, ...] = (),
    rdma: tuple[RdmaDevice, ...] = (),
    counters_at_start: tuple[PortCounters, ...] = (),
    counters: tuple[PortCounters, ...] = (),
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
        rdma=rdma,
        counters_at_start=counters_at_start,
        counters=counters,
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
        library_names=EveryName(),
        libraries=libraries,
        device_files=device_files,
    )


def live(monkeypatch: pytest.MonkeyPatch, host: Facts, **readers: Callable[[], Any]) -> LiveSource:
    """A live source that reads these facts. readers: of parts or kinds, in place of those of the host.

    A reader of a kind returns the answers of every name.
    """

    def part(name: str) -> Reader:
        read = readers.get(name, lambda: getattr(host, name))
        return Reader(lambda place, known: read(), READERS[name].after)

    def named(kind: str) -> Callable[[Place, tuple[str, ...]], dict[str, Any]]:
        answers = readers.get(kind, lambda: getattr(host, BY_NAME[kind]))
        return lambda place, names: {name: answers()[name] for name in names}

    monkeypatch.setattr(of_host, "READERS", {name: part(name) for name in READERS})
    monkeypatch.setattr(of_host, "NAMED", {kind: named(kind) for kind in NAMED})
    monkeypatch.setattr(of_host, "libraries", lambda place, names: host.libraries)
    return LiveSource(Place(isolated=False, deadline_s=1.0))
