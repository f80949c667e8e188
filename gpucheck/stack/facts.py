"""What is known of a host before anything is changed on it: from the playbooks' facts module, or from a host door."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec

from gpucheck.foreign import UnreadableInput, read_bytes
from gpucheck.model import Host
from gpucheck.printable import printable

SCHEMA: Literal["gpucheck.facts/1"] = "gpucheck.facts/1"
MOST_BYTES = 64 << 20
"""A fleet in one array; one host is about 20 kB."""
MOST_HOST_BYTES, MOST_LETTERS, MOST_ROWS, MOST_GPUS, MOST_NAME = 1 << 20, 4096, 20_000, 256, 200


class FactsError(Exception):
    """A facts file is not what it should be. The message names the file and the place in it."""


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
    """One RDMA card of Mellanox on the PCI bus. kind: infiniband or ethernet, by its class."""

    bus_id: str
    device_id: str
    kind: str


class DriverFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The driver's kernel side, None = not there."""

    loaded_version: str | None = None
    loaded_flavour: str | None = None
    installed_version: str | None = None
    installed_flavour: str | None = None


class HostFacts(msgspec.Struct, frozen=True, kw_only=True, rename={"schema_": "schema"}):
    """One host. stand_ins: what on it is not the real thing, in words.

    One of them starts with ``kernel`` where the running kernel is not the host's own, so that no headers belong to it.

    nvswitches: NVSwitch devices on the PCI bus (Hopper and older; NVLink 5 switches never show there).
    kernels: installed kernel releases. headers: those of them that DKMS can build for. dkms: version -> kernels.
    processes: ``name (pid)`` of what holds a GPU open. free_bytes: by folder. package_locks, foreign: sentences.
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
    reboot_count: int | None = None


def read_facts_file(path: Path) -> tuple[HostFacts, ...]:
    """The hosts of one facts file. Raises FactsError, and UnreadableInput."""
    return read_facts(read_bytes(path, MOST_BYTES, f"Give {SCHEMA}, written by the gpu_facts module"), str(path))


def read_facts(text: bytes, name: str) -> tuple[HostFacts, ...]:
    """The hosts of one facts file: a JSON object, or an array of them. Raises FactsError naming ``name``.

    Control characters in its texts are written out: any user of a host can name a process.
    """
    try:
        parts = msgspec.json.decode(text, type=list[msgspec.Raw] | dict[str, Any])
        rows = [bytes(part) for part in parts] if isinstance(parts, list) else [text]
        return tuple(_host_facts(row) for row in rows)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise FactsError(f"{name}: {error}. It must hold {SCHEMA}, written by the gpu_facts module") from None


def read_files(paths: Iterable[Path]) -> tuple[list[HostFacts], dict[str, FactsError | UnreadableInput]]:
    """The hosts of these facts files, and by name of file (a host's) those that cannot be read.

    Raises FactsError or UnreadableInput where none can.
    """
    hosts: list[HostFacts] = []
    bad: dict[str, FactsError | UnreadableInput] = {}
    for path in paths:
        try:
            hosts += read_facts_file(path)
        except (FactsError, UnreadableInput) as error:  # noqa: PERF203 - a bad file refuses one host
            bad[file_name(path.stem)] = error
    if bad and not hosts:
        raise next(iter(bad.values()))
    return hosts, bad


def file_name(host: str) -> str:
    """The name of a host as the name of a file. Raises FactsError for one that would leave its folder."""
    wrong = not host.strip(".") or not host.isprintable() or re.search(r"[/\\]", host)
    if wrong or len(host.encode("utf-8", "replace")) > MOST_NAME:
        raise FactsError(
            f"host name {host[:60]!a} cannot be the name of a file: it takes 1 to {MOST_NAME} bytes of printable "
            "text without / and \\"
        )
    return host


def _host_facts(text: bytes) -> HostFacts:
    if len(text) > MOST_HOST_BYTES:
        raise ValueError(f"{len(text)} bytes about one host, of {MOST_HOST_BYTES} at most")
    facts = msgspec.convert(_plain(msgspec.json.decode(text)), HostFacts)
    if len(facts.gpus) > MOST_GPUS:
        raise ValueError(f"{len(facts.gpus)} GPUs, of {MOST_GPUS} at most")
    try:
        file_name(facts.host)
    except FactsError as error:
        raise ValueError(str(error)) from None
    return facts


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        if len(value) > MOST_LETTERS:
            raise ValueError(f"a text of {len(value)} characters, of {MOST_LETTERS} at most")
        return printable(value)
    if isinstance(value, (list, dict)) and len(value) > MOST_ROWS:
        raise ValueError(f"{len(value)} values in one place, of {MOST_ROWS} at most")
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return {_plain(key): _plain(part) for key, part in value.items()} if isinstance(value, dict) else value


def facts_of(host: Host) -> HostFacts:
    """The same facts from a host door: live, simulated or recorded. GPUs and switches are those of the PCI bus.

    What only the installation needs (headers, packages, holds, Secure Boot) is not asked.
    """
    system, driver, simulation, pci = host.system(), host.driver(), host.simulation(), host.pci()
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
