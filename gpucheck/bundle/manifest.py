"""bundle.json: what a bundle holds, for which groups, and the digest of every file in it."""

from typing import Annotated, Literal

import msgspec

from gpucheck.printable import of_printable
from gpucheck.stack.stack_set import StackSet

MANIFEST = "bundle.json"
SIGNATURE = "bundle.json.asc"
KEY = "key.asc"
LOCK = "stack.lock.yml"
# Versions and hashes of what pip installs next to torch; it came with gpucheck's wheel.
PIP_LOCK = "requirements.lock"
MIB, GIB = 2**20, 2**30


class BundleError(Exception):
    """A bundle cannot be made or used. The message states what, where, why and what to do."""


class BundleDamaged(BundleError):
    """A bundle is not as it was signed."""


# A plain file name: no separator, no leading dot or dash, no control character, nothing that a program takes for an
# option, and short enough for every file system.
PlainName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+~^%:-]{0,249}\Z")]
Digest = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
# As isoformat writes UTC: as text, later is greater.
Moment = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\+00:00\Z")]


class BundledFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file: hex SHA-256 and size in bytes."""

    sha256: Digest
    bytes: Annotated[int, msgspec.Meta(ge=0)]


class BundledGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group of the lock that can be provisioned. packages: planned name -> version, None = the newest then.

    headers: those of the planned kernel headers that are in it.
    """

    system: str
    stack: StackSet
    packages: dict[str, str | None]
    headers: tuple[str, ...]
    hosts: tuple[str, ...]


class PackageSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where packages came from, and the key that vouched for them then."""

    name: str
    url: str
    key_fingerprint: str | None


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """What vouches for the packages. by_key: fingerprint -> how many; unverified: names that no trusted key signed."""

    by_key: dict[str, int] = {}
    unverified: tuple[str, ...] = ()


class BundledSystem(msgspec.Struct, frozen=True, kw_only=True):
    """What all groups of one operating system share. packages and wheels: directories of the bundle.

    versions: every package that is in it, with its versions. python: the version that the wheels are for.
    """

    package_manager: Literal["apt", "dnf"]
    packages: str
    wheels: str
    python: str
    versions: dict[str, tuple[str, ...]]
    not_offered: tuple[str, ...]
    sources: tuple[PackageSource, ...]
    verified: Verified | None = None


class OwnWheel(msgspec.Struct, frozen=True, kw_only=True):
    """gpucheck's wheel: its file name, the digest of its sources, the oldest Python it runs on, its own SHA-256."""

    name: PlainName
    digest: str
    python_minimum: str
    sha256: str = ""


class Manifest(msgspec.Struct, frozen=True, kw_only=True, rename={"schema_": "schema"}):
    """The outside contract ``gpucheck.bundle/1``. key: fingerprint of what signed it; files: by path in the bundle.

    simulated: one of its hosts has simulated hardware, so its packages may be stubs.
    """

    schema_: Literal["gpucheck.bundle/1"] = "gpucheck.bundle/1"
    made: Moment
    key: str
    simulated: bool
    wheel: OwnWheel
    groups: dict[PlainName, BundledGroup]
    systems: dict[PlainName, BundledSystem]
    files: dict[str, BundledFile]


def write_manifest(manifest: Manifest) -> bytes:
    """The manifest as JSON; equal manifests give equal bytes."""
    return msgspec.json.format(msgspec.json.encode(manifest, order="deterministic"), indent=2) + b"\n"


def read_manifest(content: bytes, name: str) -> Manifest:
    """The manifest in JSON text. Raises BundleError naming ``name``."""
    try:
        return msgspec.json.decode(content, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BundleError(
            f"{name}: this is not a manifest of a bundle: {error}. Make a new bundle: make bundle"
        ) from error


@of_printable
def manifest_text(manifest: Manifest) -> str:
    """What is in it, for whom, how large, and who signed it."""
    mark = " SIMULATED" if manifest.simulated else ""
    total = sum(file.bytes for file in manifest.files.values())
    lines = [
        f"bundle of {manifest.made}, {size(total)}, {len(manifest.files)} files{mark}",
        f"signed by {manifest.key}",
    ]
    for name, system in manifest.systems.items():
        count = sum(map(len, system.versions.values()))
        wheels = sum(path.startswith(f"{system.wheels}/") for path in manifest.files)
        each = [folder_bytes(manifest, folder) for folder in (system.packages, system.wheels)]
        lines.append(
            f"{name}: {count} {system.package_manager} packages ({size(each[0])}), "
            f"{wheels} wheels for Python {system.python} ({size(each[1])})"
        )
        lines += [f"  for group {group}" for group, row in manifest.groups.items() if row.system == name]
        if system.verified is not None:
            lines += [f"  {n} verified with key {key}" for key, n in system.verified.by_key.items()]
        if system.verified is not None and system.verified.unverified:
            names = ", ".join(system.verified.unverified)
            lines.append(f"  unverified, accepted by bundle_accept_unverified: {names}")
        if system.not_offered:
            lines.append(f"  no source offered {', '.join(system.not_offered)}: hosts need to have it already")
    return "\n".join(lines)


def folder_bytes(manifest: Manifest, folder: str) -> int:
    return sum(file.bytes for path, file in manifest.files.items() if path.startswith(f"{folder}/"))


def size(count: int) -> str:
    """``4.2 GiB`` or ``0.3 MiB``."""
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / MIB:.1f} MiB"
