"""Facts of a host before any change: from the playbooks' facts module, or from ``gpucheck.host``."""

import difflib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from gpucheck.foreign import UnreadableInput, read_bytes
from gpucheck.knowledge import GpuModel, find_gpu, gpu_table, gpus_of_family, similar_gpus, tables
from gpucheck.knowledge.packages import packages
from gpucheck.knowledge.tables import OperatingSystem
from gpucheck.model import DriverState
from gpucheck.model.facts import Source
from gpucheck.printable import printable
from gpucheck.stack.types import NotProvisioned, Target, UnknownInput

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


class HostFacts(msgspec.Struct, frozen=True, kw_only=True, rename={"schema_": "schema"}):
    """One host. ``stand_ins``: its simulated components, as text.

    One of them starts with ``kernel`` if the running kernel is not the host's own, so that no headers belong to it.

    nvswitches: NVSwitch devices on the PCI bus (Hopper and older; NVLink 5 switches are never listed there).
    kernels: installed kernel releases. headers: those that DKMS can build for. dkms: version -> kernels.
    processes: ``name (pid)`` of each process with an open GPU. foreign: sentences.
    rdma: Mellanox cards. ofed: the version of MLNX_OFED or DOCA-OFED, None = not installed. ofed_built: False if the
    running kernel would load the driver of the cards that is its own.
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
    ofed_built: bool = True
    driver: DriverState = DriverState()
    nouveau_loaded: bool = False
    secure_boot: bool | None = None
    kernels: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    dkms: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    vgpu_guest: bool = False
    processes: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    packages: dict[str, str] = msgspec.field(default_factory=dict)
    holds: tuple[str, ...] = ()
    python3: str | None = None


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
            hosts += read_facts(
                read_bytes(path, MOST_BYTES, f"Give {SCHEMA}, written by the gpu_facts module"), str(path)
            )
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
        driver=driver,
        nouveau_loaded=driver.nouveau_loaded,
    )


def target_of(gpus: Sequence[str], os: str, arch: str | None = None, *, nvswitches: int | None = None) -> Target:
    """Return the target. A name of several boards (``A100``) selects one of them, which ``taken`` states.

    Raises UnknownInput with the closest names.
    """
    if not gpus:
        raise UnknownInput("no GPU was named: add --gpu MODEL, for example --gpu 'H100 SXM'")
    many = len(gpus) >= gpu_table().nvswitch_from_gpus if nvswitches is None else nvswitches > 0
    named = {text: _board(text, switched=many) for text in gpus}
    models = sorted((named[text][0] for text in gpus), key=lambda gpu: gpu.pci_ids[0])
    chosen = normal_arch(arch) if arch else ("sbsa" if any(gpu.grace for gpu in models) else "x86_64")
    taken = tuple(note for _, note in named.values() if note)
    return Target(gpus=tuple(models), os=find_os(os), arch=chosen, nvswitches=nvswitches, taken=taken)


def _board(text: str, *, switched: bool) -> tuple[GpuModel, str | None]:
    """Return the board, and the assumption made. switched: the host seems to have NVSwitch."""
    gpu = find_gpu(text)
    if gpu is not None:
        return gpu, None
    family = gpus_of_family(text)
    if len({(gpu.architecture, gpu.compute_capability, gpu.kernel_module, gpu.grace) for gpu in family}) == 1:
        chosen = next((gpu for gpu in family if (gpu.fabric is not None) is switched), family[0])
        if len(family) == 1:
            return chosen, None
        names = ", ".join(gpu.name for gpu in family)
        return chosen, f"{text} can be any of {names}: {chosen.name} is assumed. Name the board to avoid the assumption"
    near = tuple(gpu.name for gpu in family) or similar_gpus(text)
    hint = f"Did you mean {' or '.join(repr(name) for name in near)}?" if near else "No name in the tables is similar."
    raise UnknownInput(f"GPU {text!r} is not known. {hint}")


ARCHITECTURES: dict[str, Literal["x86_64", "sbsa"]] = {
    "x86_64": "x86_64",
    "amd64": "x86_64",
    "sbsa": "sbsa",
    "aarch64": "sbsa",
    "arm64": "sbsa",
}
# Names before the version, with their names in the tables.
DISTRIBUTIONS = {"almalinux": "alma", "ol": "oracle", "el": "rhel", "redhat": "rhel"}


def normal_arch(text: str) -> Literal["x86_64", "sbsa"]:
    """Return NVIDIA's name of an architecture (server arm64 is ``sbsa``). Raises UnknownInput."""
    try:
        return ARCHITECTURES[text.lower()]
    except KeyError:
        raise UnknownInput(f"architecture {text!r} is not known. Known: x86_64, sbsa (also called aarch64)") from None


def find_os(text: str) -> OperatingSystem:
    """Return the system named ``ubuntu-22.04``, ``rocky-9.6``, ``almalinux-9`` or ``centos-9``. Raises UnknownInput."""
    systems = {system.id: system for system in tables.operating_systems().systems}
    name, _, version = text.strip().lower().replace("_", "-").rpartition("-")
    name = DISTRIBUTIONS.get(name, name)
    candidates = [f"{name}-{version}", f"{name}-{version.partition('.')[0]}"]
    if name == "centos":
        candidates += [f"centos-stream-{version.partition('.')[0]}"]
    for candidate in candidates:
        if candidate in systems:
            return systems[candidate]
    _not_provisioned(name, version)
    near = difflib.get_close_matches(text.lower(), systems, n=2, cutoff=0.6)
    hint = f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(sorted(systems))}."
    raise UnknownInput(f"operating system {text!r} is not known. {hint}")


# Names of systems as people write them, with their ID in os-release.
OTHERS = {"amazon": "amzn", "amazonlinux": "amzn", "azl": "azurelinux", "suse": "sles", "opensuse": "opensuse-leap"}


def _not_provisioned(name: str, version: str) -> None:
    """Raise NotProvisioned if this system is one that NVIDIA has packages for, and gpucheck does not install them."""
    known = {row.os_id: row for row in tables.operating_systems().not_provisioned}
    row = known.get(OTHERS.get(name, name))
    if row is None:
        return
    places = {start: folder for start, folder in row.folders.items() if version.lower().startswith(start.lower())}
    start, folder = next(iter(places.items()), (version, ""))
    base = packages().repositories.cuda_url.partition("{")[0]
    raise NotProvisioned(
        f"gpucheck does not provision {row.name} {start}",
        f"install the driver from NVIDIA's packages, {base}{folder}, and use gpucheck verify and the images there",
    )
