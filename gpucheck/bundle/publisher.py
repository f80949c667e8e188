"""Packages of a bundle against the signed indexes of their publishers: a collecting host's word counts for nothing.

Trusted are the keys that the plan pins, and keys configured on this host. Each index is taken only if its
hash is in a release file that such a key signed; each package only if its hash is in such an index.
"""

import bz2
import gzip
import hashlib
import lzma
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Annotated, Any

import msgspec

from gpucheck.bundle import contents, wheels
from gpucheck.bundle.manifest import BundleError, Digest, PlainName
from gpucheck.bundle.signing import gpg
from gpucheck.processes import gnupg
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


LARGEST_RELEASE_BYTES = 16 << 20
LARGEST_INDEX_BYTES = 1 << 30
OPENERS: Mapping[str, Any] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open, ".xml": open, ".Packages": open}
# NVIDIA's CUDA repositories state SHA-256, its container toolkit SHA-512 alone.
ALGORITHMS = ("sha256", "sha512")
MOST_ROWS = 500_000
# What the name of NVIDIA's own repository begins with, and the repositories of one component.
NVIDIAS = ("nvidia-cuda", "cuda-")
OWN = {"nvidia-container-toolkit": "container_toolkit", "gdrcopy": "gdrcopy"}
SPACE = "{http://linux.duke.edu/metadata/%s}"


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """A package as a signed index describes it. key: fingerprint of what signed it."""

    name: str
    version: str
    arch: str
    key: str


def keyring(home: Path, answers: Sequence[Collected], folders: Sequence[Path], site_keys: Iterable[Path]) -> Path:
    """A keyring with the pinned and the configured keys. home: gpg's, empty. Raises BundleError for any other key."""
    for answer, folder in zip(answers, folders, strict=True):
        for row in answer.order.repositories:
            name = f"keys/{row['name']}.{'gpg' if row['kind'] == 'apt' else 'asc'}"
            if name not in answer.metadata:
                continue
            pins = _pins(row)
            foreign = [key for key in _primary_keys(home, regular_file(folder, name)) if key not in pins]
            if foreign:
                raise BundleError(
                    f"{folder / name}: contains key {', '.join(foreign)}, pinned is {', '.join(pins)}. "
                    "Do not trust the host that collected it until you know why."
                )
            gpg(home, "--import", folder / name)
    for path in site_keys:
        gpg(home, "--import", path)
    target = home / "trusted.gpg"
    target.touch()
    gpg(home, "--output", target, "--export")
    return target


def _pins(repository: Mapping[str, str | None]) -> list[str]:
    return re.sub(r"\s", "", repository["key_fingerprint"] or "").upper().split(",")


def _primary_keys(home: Path, path: Path) -> list[str]:
    return gnupg.primary_fingerprints(gpg(home, "--with-colons", "--show-keys", path))


def own_packages(plans: Iterable[Plan]) -> dict[str, frozenset[str]]:
    """Names of the packages that plans take from a repository of one component, by the name of that repository."""
    found: dict[str, set[str]] = {}
    for plan in plans:
        for name, component in OWN.items():
            part = plan.components.get(component, {"packages": ()})
            found.setdefault(name, set()).update(package["name"] for package in part["packages"])
    return {name: frozenset(names) for name, names in found.items()}


def vouching(
    found: Sequence[tuple[str, Published]],
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
    names = {row.name for _, row in found if row.key in main}
    listed = {(row.name, row.version, row.arch) for _, row in found if row.key in pinned}

    def counts(row: Published) -> bool:
        if row.key in main:
            return True
        if row.key in pinned:
            return row.name not in names or any(row.name in own.get(one, ()) for one in pinned[row.key])
        return (row.name, row.version, row.arch) not in listed

    return {digest: row for digest, row in found if counts(row)}


def published(keys: Path, folder: Path, metadata: Iterable[str]) -> list[tuple[str, Published]]:
    """(SHA-256 or SHA-512 of a package, its row) for each row of an index that a trusted key signed. keys: keyring."""
    files = {name: regular_file(folder, name) for name in metadata if name.startswith("metadata/")}
    digests: dict[str, str] = {}
    for name, path in files.items():
        if name.endswith((".InRelease", ".Release", ".repomd.xml")):
            digests |= _vouched(keys, path)
    found: list[tuple[str, Published]] = []
    for name, path in files.items():
        listed = ".Packages" in name or ".primary.xml" in name
        key = next((digests[one] for one in file_digests(path) if one in digests), None) if listed else None
        if key is not None:
            found += _apt_rows(path, key) if name.endswith(".Packages") else _dnf_rows(path, key)
            if len(found) > MOST_ROWS:
                raise BundleError(f"{folder}: the signed indexes list more than {MOST_ROWS} packages")
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
    if path.stat().st_size > LARGEST_RELEASE_BYTES:
        return {}
    signature = next((s for s in (path.with_name(f"{path.name}{e}") for e in (".gpg", ".asc")) if s.is_file()), None)
    if path.suffix == ".InRelease":
        single = gnupg.is_single_message(path.read_bytes())
        key, text = _signer(keys, "--output", "-", path) if single else (None, b"")
    elif signature is None:
        return {}
    else:
        (key, _), text = _signer(keys, signature, path), path.read_bytes()
    if key is None:
        return {}
    if path.suffix == ".xml":
        digests = _primary_digests(text)
    else:
        sections = re.finditer(rb"(?m)^SHA(?:256|512):[^\n]*\n((?: [^\n]*\n?)*)", text)
        rows = [row.split() for section in sections for row in section.group(1).splitlines()]
        digests = [row[0].decode("ascii", "replace") for row in rows if row]
    return dict.fromkeys(digests, key)


def _signer(keys: Path, *arguments: str | Path) -> tuple[str | None, bytes]:
    """(fingerprint of the primary key of a good signature, the signed text if it is asked for)."""
    try:
        done = gnupg.verify(keys, *arguments)
    except gnupg.NotInstalledError as error:
        raise BundleError(f"checking the signature of an index: {error}") from error
    return done.key, done.text


def _primary_digests(text: bytes) -> list[str]:
    from xml.etree import ElementTree

    found = []
    for row in ElementTree.fromstring(text).iter(SPACE % "repo" + "data"):  # noqa: S314 - a trusted key signed it
        checksum = row.find(SPACE % "repo" + "checksum")
        if row.get("type") == "primary" and checksum is not None and checksum.get("type") in ALGORITHMS:
            found.append((checksum.text or "").strip())
    return found


def _apt_rows(path: Path, key: str) -> Iterator[tuple[str, Published]]:
    fields: dict[str, str] = {}
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in (*file, "\n"):
            name, colon, value = line.partition(":")
            if colon and not line.startswith((" ", "\t")):
                fields[name] = value.strip()
            elif not line.strip():
                if {"Package", "Version", "Architecture", "SHA256"} <= set(fields):
                    row = (fields["Package"], fields["Version"], fields["Architecture"])
                    yield fields["SHA256"], Published(name=row[0], version=row[1], arch=row[2], key=key)
                fields = {}


def _dnf_rows(path: Path, key: str) -> Iterator[tuple[str, Published]]:
    from xml.etree import ElementTree

    opener = OPENERS.get(path.suffix)
    if opener is None:
        raise BundleError(f"{path}: unknown compression of an index ({', '.join(OPENERS)})")
    common = SPACE % "common"
    with opener(path, "rb") as file:
        for _, row in ElementTree.iterparse(_Bounded(file)):  # noqa: S314 - a trusted key vouches for it
            if row.tag != common + "package":
                continue
            version, checksum = row.find(common + "version"), row.find(common + "checksum")
            if version is not None and checksum is not None and checksum.get("type") in ALGORITHMS:
                epoch = version.get("epoch") or "0"
                text = f"{'' if epoch == '0' else epoch + ':'}{version.get('ver')}-{version.get('rel')}"
                name, arch = row.findtext(common + "name") or "", row.findtext(common + "arch") or ""
                yield (checksum.text or "").strip(), Published(name=name, version=text, arch=arch, key=key)
            row.clear()


class _Bounded:
    """A file of which no more than an index may have is read."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.left = file, LARGEST_INDEX_BYTES

    def read(self, size: int = -1) -> bytes:
        content = self.file.read(size)
        self.left -= len(content)
        if self.left < 0:
            raise BundleError(f"an index is larger than {LARGEST_INDEX_BYTES} bytes")
        return content
