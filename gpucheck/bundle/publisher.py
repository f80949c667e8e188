"""Packages of a bundle against the signed indexes of their publishers: a collecting host's word counts for nothing.

Trusted are the keys that the plan pins, and keys configured on this host. Each index is taken only if its
hash is in a release file that such a key signed; each package only if its hash is in such an index.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

import msgspec

from gpucheck.bundle import contents, wheels
from gpucheck.bundle.contents import BundleError, Digest, PlainName
from gpucheck.bundle.signing import gpg
from gpucheck.foreign import UnreadableInput, read_bytes, unpacked_pieces
from gpucheck.processes import gnupg
from gpucheck.repositories import apt, dnf
from gpucheck.repositories.index import ALGORITHMS, Package, UnusableIndex
from gpucheck.repositories.reading import MOST_LIST, MOST_RELEASE, MOST_UNPACKED
from gpucheck.stack.plan import Plan

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

    group: PlainName
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
    try:
        found = msgspec.json.decode(read_bytes(path, LARGEST_RESPONSE_BYTES), type=Collected)
    except (UnreadableInput, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        what = error.what if isinstance(error, UnreadableInput) else f"not a response of bundle_packages: {error}"
        raise BundleError(f"{path}: {what}. {hint}") from error
    total = sum(package.bytes for package in found.packages)
    if total > MOST_BYTES:
        raise BundleError(f"{path}: {total} bytes of packages, at most {MOST_BYTES} are accepted. {hint}")
    if found.group != path.stem:
        raise BundleError(f"{path}: contains group {found.group!r}. {hint}")
    return found


def regular_file(folder: Path, name: str) -> Path:
    """The path of a collected file that is a regular one, reached over no symbolic link. Raises BundleError."""
    path = folder / name
    if path.is_symlink() or not path.is_file() or path.resolve().parent != folder.resolve() / Path(name).parent:
        raise BundleError(f"{path}: did not arrive, or is not a regular file. Run make bundle again.")
    return path


# What the name of NVIDIA's own repository begins with, and the repositories of one component.
NVIDIAS = ("nvidia-cuda", "cuda-")
OWN = {"nvidia-container-toolkit": "container_toolkit"}
# The age of an index does not count.
ANY_TIME = datetime.min.replace(tzinfo=timezone.utc)


# A package as an index describes it, with the fingerprint of the key that signed the index.
Published = tuple[str, Package]
# The plan of a group, what a host collected for it, and where that is.
Collection = tuple[Plan, Collected, Path]


def keyring(
    home: Path, collections: Iterable[Collection], site_keys: Iterable[Path]
) -> tuple[Path, list[dict[str, Any]]]:
    """A keyring with the pinned and the configured keys, and the repositories of the plans.

    There a pinned digest is replaced by the fingerprints of the keys in the file with it.
    home: gpg's, empty. Raises BundleError for any other key.
    """
    rows = []
    for plan, answer, folder in collections:
        for row in map(dict, contents.sources(plan)):
            rows.append(row)
            name = f"keys/{row['name']}.{'gpg' if row['kind'] == 'apt' else 'asc'}"
            if name not in answer.metadata:
                continue
            path = regular_file(folder, name)
            keys = gnupg.primary_fingerprints(gpg(home, "--with-colons", "--show-keys", path))
            if keys and f"SHA256:{gnupg.key_digest(path.read_bytes()).upper()}" in _pins(row):
                row["key_fingerprint"] = ",".join(keys)
            pins = _pins(row)
            foreign = [key for key in keys if key not in pins]
            if foreign:
                raise BundleError(
                    f"{path}: contains key {', '.join(foreign)}, pinned is {', '.join(pins)}. "
                    "Do not trust the host that collected it until you know why."
                )
            gpg(home, "--import", path)
    for path in site_keys:
        gpg(home, "--import", path)
    target = home / "trusted.gpg"
    target.touch()
    gpg(home, "--output", target, "--export")
    return target, rows


def _pins(repository: Mapping[str, str | None]) -> list[str]:
    return re.sub(r"\s", "", repository["key_fingerprint"] or "").upper().split(",")


def own_packages(plans: Iterable[Plan]) -> dict[str, frozenset[str]]:
    """Names of the packages that plans take from a repository of one component, by the name of that repository."""
    found: dict[str, set[str]] = {}
    for plan in plans:
        for name, component in OWN.items():
            part = plan.components.get(component, {"packages": ()})
            found.setdefault(name, set()).update(package["name"] for package in part["packages"])
    return {name: frozenset(names) for name, names in found.items()}


def vouching(
    found: Sequence[Published],
    repositories: Iterable[Mapping[str, str | None]],
    own: Mapping[str, frozenset[str]],
) -> dict[str, Published]:
    """Digest of a package -> the row that vouches for it, of those whose key counts for a package of that name.

    A key that is pinned for NVIDIA's repository counts for all it lists. One that is pinned for another repository
    counts for the packages that are planned from there, and for names that NVIDIA's does not list. A key from
    bundle_trusted_keys counts for what no pinned repository lists in that version.
    """
    pinned: dict[str, set[str]] = {}
    for repository in repositories:
        for key in _pins(repository):
            pinned.setdefault(key, set()).add(repository["name"] or "")
    main = {key for key, names in pinned.items() if any(name.startswith(NVIDIAS) for name in names)}
    names = {row.name for key, row in found if key in main}
    listed = {(row.name, row.version, row.arch) for key, row in found if key in pinned}

    def counts(key: str, row: Package) -> bool:
        if key in main:
            return True
        if key in pinned:
            return row.name not in names or any(row.name in own.get(one, ()) for one in pinned[key])
        return (row.name, row.version, row.arch) not in listed

    return {row.digest: (key, row) for key, row in found if counts(key, row)}


def published(keys: Path, folder: Path, metadata: Iterable[str]) -> list[Published]:
    """Every row with a digest of an index that a trusted key signed. keys: keyring."""
    files = {name: regular_file(folder, name) for name in metadata if name.startswith("metadata/")}
    digests: dict[str, str] = {}
    for name, path in files.items():
        if name.endswith((".InRelease", ".Release", ".repomd.xml")):
            digests |= _vouched(keys, path)
    found: list[Published] = []
    for name, path in files.items():
        listed = ".Packages" in name or ".primary.xml" in name
        key = next((digests[one] for one in file_digests(path) if one in digests), None) if listed else None
        if key is not None:
            found += [(key, row) for rows in _listed(path).values() for row in rows if row.digest]
    return found


def file_digests(path: Path) -> list[str]:
    with path.open("rb") as file:
        digests = [hashlib.new(name) for name in ALGORITHMS]
        while piece := file.read(1 << 20):
            for one in digests:
                one.update(piece)
    return [one.hexdigest() for one in digests]


def _vouched(keys: Path, path: Path) -> dict[str, str]:
    """Checksum of an index -> the key, for every index that this release file names; {} without a good signature."""
    if path.stat().st_size > MOST_RELEASE:
        return {}
    signature = next((s for s in (path.with_name(f"{path.name}{e}") for e in (".gpg", ".asc")) if s.is_file()), None)
    if path.suffix == ".InRelease":
        single = gnupg.is_single_message(path.read_bytes())
        key, text, _ = gnupg.verify(keys, "--output", "-", path) if single else (None, b"", {})
    elif signature is None:
        return {}
    else:
        key, text = gnupg.verify(keys, signature, path).key, path.read_bytes()
    if key is None:
        return {}
    # What cannot be read vouches for nothing.
    with suppress(UnusableIndex):
        if path.suffix == ".xml":
            return {dnf.read_repomd(text).checksum.digest: key}
        listed = apt.read_release(text.decode("utf-8", "replace"), ANY_TIME).files.values()
        return {one.checksum.digest: key for one in listed}
    return {}


def _listed(path: Path) -> dict[str, tuple[Package, ...]]:
    """The packages of a list; none of a list that cannot be read."""
    with suppress(UnusableIndex, UnreadableInput):
        pieces = unpacked_pieces(read_bytes(path, MOST_LIST), MOST_UNPACKED, str(path), "")
        return apt.read_packages(apt.lines_of(pieces)) if path.suffix == ".Packages" else dnf.read_primary(pieces)
    return {}
