"""Facts of a host before any change: from the playbooks' facts module, or from ``gpucheck.host``."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec

from gpucheck.foreign import UnreadableInput, read_bytes
from gpucheck.model.facts import Source
from gpucheck.printable import printable

SCHEMA: Literal["gpucheck.facts/1"] = "gpucheck.facts/1"
MOST_BYTES = 64 << 20
"""A fleet in one array; one host is about 20 kB."""
MOST_HOST_BYTES, MOST_LETTERS, MOST_ROWS, MOST_GPUS, MOST_NAME = 1 << 20, 4096, 20_000, 256, 200


class FactsError(Exception):
    """A facts file is invalid. The message names the file and the place in it."""


class OsFacts(msgspec.Struct, frozen=True, kw_only=True):
    """os-release: ID, VERSION_ID and PRETTY_NAME."""

    id: str
    version: str
    name: str = ""


class GpuFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU on the PCI bus. device_id: four lower-case hex digits."""

    bus_id: str
    device_id: str
    subsystem_id: str | None = None


class RdmaFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One Mellanox RDMA card on the PCI bus. kind: infiniband or ethernet, by its PCI class."""

    bus_id: str
    device_id: str
    kind: str


class DriverFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The driver's kernel modules, None = not present."""

    loaded_version: str | None = None
    loaded_flavour: str | None = None
    installed_version: str | None = None
    installed_flavour: str | None = None


class HostFacts(msgspec.Struct, frozen=True, kw_only=True, rename={"schema_": "schema"}):
    """One host. ``stand_ins``: its simulated components, as text.

    One of them starts with ``kernel`` if the running kernel is not the host's own, so that no headers belong to it.

    nvswitches: NVSwitch devices on the PCI bus (Hopper and older; NVLink 5 switches are never listed there).
    kernels: installed kernel releases. headers: those that DKMS can build for. dkms: version -> kernels.
    processes: ``name (pid)`` of each process with an open GPU. free_bytes: by directory.
    package_locks, foreign: sentences.
    rdma: Mellanox cards. ofed: the version of MLNX_OFED or DOCA-OFED, None = not installed.
    """

    schema_: Literal["gpucheck.facts/1"]
    host: str
    os: OsFacts
    arch: str
    kernel: str
    simulated: bool = False
    stand_ins: tuple[str, ...] = ()
    gpus: tuple[GpuFacts, ...] = ()
    nvswitches: int = 0
    rdma: tuple[RdmaFacts, ...] = ()
    ofed: str | None = None
    driver: DriverFacts = DriverFacts()
    nouveau_loaded: bool = False
    secure_boot: bool | None = None
    kernels: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    dkms: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    vgpu_guest: bool = False
    repositories: tuple[str, ...] = ()
    processes: tuple[str, ...] = ()
    free_bytes: dict[str, int] = msgspec.field(default_factory=dict)
    package_locks: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    packages: dict[str, str] = msgspec.field(default_factory=dict)
    holds: tuple[str, ...] = ()
    python3: str | None = None


def read_facts_file(path: Path) -> tuple[HostFacts, ...]:
    """Return the hosts of one facts file. Raises FactsError, and UnreadableInput."""
    return read_facts(read_bytes(path, MOST_BYTES, f"Give {SCHEMA}, written by the gpu_facts module"), str(path))


def read_facts(text: bytes, name: str) -> tuple[HostFacts, ...]:
    """Return the hosts of one facts file: a JSON object, or an array of them. Raises FactsError naming ``name``.

    Control characters in its texts are escaped: any user of a host can name a process.
    """
    try:
        parts = msgspec.json.decode(text, type=list[msgspec.Raw] | dict[str, Any])
        rows = [bytes(part) for part in parts] if isinstance(parts, list) else [text]
        return tuple(_host_facts(row) for row in rows)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise FactsError(f"{name}: {error}. It must hold {SCHEMA}, written by the gpu_facts module") from None


def read_files(paths: Iterable[Path]) -> tuple[list[HostFacts], dict[str, FactsError | UnreadableInput]]:
    """Return the hosts of these facts files, and the errors of unreadable files by their name (a host's).

    Raises FactsError or UnreadableInput if no file can be read.
    """
    hosts: list[HostFacts] = []
    bad: dict[str, FactsError | UnreadableInput] = {}
    for path in paths:
        try:
            hosts += read_facts_file(path)
        except (FactsError, UnreadableInput) as error:  # noqa: PERF203 - a bad file excludes one host
            bad[file_name(path.stem)] = error
    if bad and not hosts:
        raise next(iter(bad.values()))
    return hosts, bad


def file_name(host: str) -> str:
    """Return the name of a host as the name of a file. Raises FactsError for a name with a path."""
    wrong = not host.strip(".") or not host.isprintable() or re.search(r"[/\\]", host)
    if wrong or len(host.encode("utf-8", "replace")) > MOST_NAME:
        raise FactsError(
            f"host name {host[:60]!a} cannot be the name of a file: it takes 1 to {MOST_NAME} bytes of printable "
            "text without / and \\"
        )
    return host


def _host_facts(text: bytes) -> HostFacts:
    if len(text) > MOST_HOST_BYTES:
        raise ValueError(f"one host has {len(text)} bytes, at most {MOST_HOST_BYTES} are allowed")
    facts = msgspec.convert(_plain(msgspec.json.decode(text)), HostFacts)
    if len(facts.gpus) > MOST_GPUS:
        raise ValueError(f"{len(facts.gpus)} GPUs, at most {MOST_GPUS} are allowed")
    try:
        file_name(facts.host)
    except FactsError as error:
        raise ValueError(str(error)) from None
    return facts


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        if len(value) > MOST_LETTERS:
            raise ValueError(f"a text of {len(value)} characters, at most {MOST_LETTERS} are allowed")
        return printable(value)
    if isinstance(value, (list, dict)) and len(value) > MOST_ROWS:
        raise ValueError(f"{len(value)} values in one place, at most {MOST_ROWS} are allowed")
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return {_plain(key): _plain(part) for key, part in value.items()} if isinstance(value, dict) else value


def facts_of(source: Source) -> HostFacts:
    """Return the facts of a live, simulated or recorded host. GPUs and switches are those of the PCI bus.

    Facts that only the installation needs (headers, packages, holds, Secure Boot) are not read.
    """
    facts = source.read("system", "driver", "simulation", "pci")
    system, driver, simulation, pci = facts.system, facts.driver, facts.simulation, facts.pci
    return HostFacts(
        schema_=SCHEMA,
        host=system.hostname,
        os=OsFacts(id=system.os_id, version=system.os_version, name=system.os_name),
        arch=system.arch,
        kernel=system.kernel,
        simulated=simulation is not None,
        stand_ins=simulation.stand_ins if simulation else (),
        gpus=tuple(GpuFacts(bus_id=d.bus_id, device_id=d.device_id.lower()) for d in pci if d.is_nvidia_gpu),
        nvswitches=sum(device.is_nvswitch for device in pci),
        driver=DriverFacts(
            loaded_version=driver.loaded_version,
            loaded_flavour=driver.loaded_flavour,
            installed_version=driver.installed_version,
            installed_flavour=driver.installed_flavour,
        ),
        nouveau_loaded=driver.nouveau_loaded,
    )
