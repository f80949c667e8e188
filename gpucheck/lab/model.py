"""What a lab is: its name, its addresses, its hosts, and where its files are."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import gpucheck
from gpucheck.lab.system import LabError, LabUsageError

DEFAULT_NAME = "gpucheck-lab"
DEFAULT_SUBNET = "10.213.41.0/24"
SUBNET_VARIABLE = "GPUCHECK_LAB_SUBNET"
NAME = re.compile(r"[a-z][a-z0-9-]{0,40}")
# A label on everything that the lab creates in the engine: nothing without it is ever touched.
LABEL = "gpucheck.lab"
LABEL_STAMP = "gpucheck.lab.stamp"
LABEL_FLAVOUR = "gpucheck.lab.flavour"
IMAGES = "gpucheck-lab"


@dataclass(frozen=True)
class HostSpec:
    """A host of the lab. kernel: the release that it reports. offset: its address, counted from the subnet's first.

    bare_metal: no sign of a container, and its boot loader decides the kernel's arguments. faults: those of its
    machine.
    """

    name: str
    image: str
    profile: str
    kernel: str
    group: str
    offset: int
    bare_metal: bool = False
    faults: tuple[str, ...] = ()


HOSTS = (
    HostSpec("lab-apt", "apt-host", "p100-pcie-x2", "5.15.0-179-generic", "gpu_apt", 11),
    HostSpec("lab-dnf", "dnf-host", "hgx-h100-x8", "5.14.0-503.14.1.el9_5.x86_64", "gpu_dnf", 12),
)
# The same systems as bare metal, with RDMA cards, and ACS as Linux sets it with an IOMMU.
BARE_METAL_HOSTS = tuple(
    replace(host, profile=profile, bare_metal=True, faults=("acs-redirect",))
    for host, profile in zip(HOSTS, ("dgx1-p100", "hgx-h100-x8"), strict=True)
)
MIRROR = HostSpec("mirror", "mirror", "no-gpu", "", "", 10)
SMALLEST_PREFIX = 28  # 16 addresses: the mirror and the hosts have fixed ones


@dataclass(frozen=True)
class Lab:
    """One lab. root: the checkout it belongs to."""

    name: str
    subnet: IPv4Network
    root: Path

    @property
    def directory(self) -> Path:
        """Keys, known hosts, inventory and specification of this lab."""
        return self.root / ".lab" / self.name

    @property
    def mirror_ip(self) -> IPv4Address:
        return self.ip(MIRROR)

    def ip(self, host: HostSpec) -> IPv4Address:
        return self.subnet[host.offset]

    def container(self, role: str) -> str:
        """A container's name: of the mirror, or of a host."""
        return f"{self.name}-{role.removeprefix('lab-')}"


def checkout() -> Path:
    """The root of the checkout that this package runs from. Raises LabError when it was installed without one."""
    root = Path(gpucheck.__file__).resolve().parents[1]
    if not (root / "images/lab").is_dir():
        raise LabError(
            f"the lab is part of the source checkout, but {root} is not one (no images/lab there)\n"
            "do: clone the repository and run gpucheck from it (make provision does that)"
        )
    return root


def make_lab(name: str, subnet: str) -> Lab:
    """A lab from what the person typed. Raises LabUsageError."""
    return Lab(checked_name(name), parse_subnet(subnet), checkout())


def checked_name(name: str) -> str:
    """The name, when containers and folders can bear it. Raises LabUsageError."""
    if not NAME.fullmatch(name):
        raise LabUsageError(
            f"--name {name!r} cannot name containers\ndo: use lower-case letters, digits and dashes, letter first"
        )
    return name


def parse_subnet(text: str) -> IPv4Network:
    """The subnet from its text. Raises LabUsageError."""
    try:
        subnet = IPv4Network(text)
    except ValueError as error:
        raise LabUsageError(
            f"{text!r} is no IPv4 subnet: {error}\ndo: give one like {DEFAULT_SUBNET} with --subnet"
        ) from error
    if subnet.prefixlen > SMALLEST_PREFIX:
        raise LabUsageError(
            f"{subnet} has {subnet.num_addresses} addresses, and the lab needs 16\n"
            f"do: give /{SMALLEST_PREFIX} or larger, like {DEFAULT_SUBNET}, with --subnet or {SUBNET_VARIABLE}"
        )
    return subnet


def fingerprint(parts: Iterable[bytes | str | Path]) -> str:
    """A short hash of texts and files; a file counts with its content and mode, a folder with all that is below it."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            below = (path for path in part.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
            for path in [part] if part.is_file() else sorted(below):
                name = path.name if path == part else path.relative_to(part).as_posix()
                digest.update(f"{name}:{path.stat().st_mode & 0o111}:".encode())
                digest.update(path.read_bytes())
        else:
            digest.update(part.encode() if isinstance(part, str) else part)
        digest.update(b"\0")
    return digest.hexdigest()[:16]
