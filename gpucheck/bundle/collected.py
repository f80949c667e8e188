"""What a host collected for a group. The host chose names and values, so each is checked before it is used."""

from pathlib import Path
from typing import Annotated

import msgspec

from gpucheck.bundle import contents, wheels
from gpucheck.bundle.manifest import BundleError, Digest, PlainName

LARGEST_RESPONSE_BYTES = 16 << 20
MOST_PACKAGES = 10_000
MOST_BYTES = 32 << 30

PackageFile = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+~^%:-]{0,245}\.(deb|rpm)\Z")]
ModuleFile = Annotated[str, msgspec.Meta(pattern=r"^modules/[A-Za-z0-9_][A-Za-z0-9_.+~^%:-]{0,230}-modules\.yaml\Z")]
MetadataFile = Annotated[str, msgspec.Meta(pattern=r"^(metadata|keys)/[A-Za-z0-9_][A-Za-z0-9_.+~-]{0,249}\Z")]


class CollectedPackage(msgspec.Struct, frozen=True, kw_only=True):
    """A package file as its host described it."""

    name: PlainName
    version: PlainName
    arch: PlainName
    file: PackageFile
    sha256: Digest
    bytes: Annotated[int, msgspec.Meta(ge=0, le=MOST_BYTES)]


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """GROUP.json, with the files in the directory GROUP next to it.

    metadata: the sources' own signed lists, and the keys that they are signed with.
    requirements, torch, pip_args: what pip gets on the host, gpucheck's wheel by its path here.
    """

    order: contents.Order
    packages: Annotated[tuple[CollectedPackage, ...], msgspec.Meta(max_length=MOST_PACKAGES)]
    not_offered: Annotated[tuple[PlainName, ...], msgspec.Meta(max_length=MOST_PACKAGES)]
    modules: Annotated[tuple[ModuleFile, ...], msgspec.Meta(max_length=1000)]
    metadata: Annotated[tuple[MetadataFile, ...], msgspec.Meta(max_length=1000)] = ()
    python: wheels.Interpreter
    requirements: str
    torch: str = ""
    pip_args: tuple[str, ...]


def read_collected(path: Path) -> Collected:
    """The response of a host in GROUP.json. Raises BundleError."""
    hint = "A host returned this: do not trust it until you know why, then run make bundle again."
    if path.stat().st_size > LARGEST_RESPONSE_BYTES:
        raise BundleError(f"{path}: larger than {LARGEST_RESPONSE_BYTES} bytes. {hint}")
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Collected)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BundleError(f"{path}: not a response of bundle_packages: {error}. {hint}") from error
    total = sum(package.bytes for package in found.packages)
    if total > MOST_BYTES:
        raise BundleError(f"{path}: {total} bytes of packages, at most {MOST_BYTES} are accepted. {hint}")
    if found.order.group != path.stem:
        raise BundleError(f"{path}: contains group {found.order.group!r}. {hint}")
    return found


def regular_file(folder: Path, name: str) -> Path:
    """The path of a collected file that is a regular one, reached over no symbolic link. Raises BundleError."""
    path = folder / name
    if path.is_symlink() or not path.is_file() or path.resolve().parent != folder.resolve() / Path(name).parent:
        raise BundleError(f"{path}: did not arrive, or is not a regular file. Run make bundle again.")
    return path
