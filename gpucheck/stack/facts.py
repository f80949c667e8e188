"""What is known of a host before anything is changed on it: from the playbooks' facts module, or from a host door."""

from pathlib import Path
from typing import Literal

import msgspec

from gpucheck.foreign import read_bytes
from gpucheck.model import Host

SCHEMA: Literal["gpucheck.facts/1"] = "gpucheck.facts/1"
MOST_BYTES = 64 << 20
"""A fleet in one array; one host is about 20 kB."""


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
    """The hosts of one facts file: a JSON object, or an array of them. Raises FactsError naming ``name``."""
    type_ = tuple[HostFacts, ...] if text.lstrip()[:1] == b"[" else HostFacts
    try:
        facts = msgspec.json.decode(text, type=type_)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FactsError(f"{name}: {error}. It must hold {SCHEMA}, written by the gpu_facts module") from None
    return facts if isinstance(facts, tuple) else (facts,)


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
