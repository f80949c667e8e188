"""The directory of a bundle compared with its manifest: changed, missing and additional files."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from gpucheck.bundle.errors import BundleDamaged, BundleError
from gpucheck.bundle.manifest import MANIFEST, SIGNATURE, BundledFile, Manifest, read_manifest
from gpucheck.bundle.signing import verified

UNLISTED = (MANIFEST, SIGNATURE)
PIECE_BYTES = 1 << 20
FEW = 3


def files_below(folder: Path) -> Iterator[str]:
    """Every entry below the directory that is not a directory, as paths with slashes, ordered."""
    for place, names, files in os.walk(folder):
        names.sort()
        links = [name for name in names if Path(place, name).is_symlink()]
        for name in sorted(files + links):
            yield Path(place, name).relative_to(folder).as_posix()


def described(path: Path) -> BundledFile:
    """Digest and size of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            digest.update(piece)
    return BundledFile(sha256=digest.hexdigest(), bytes=path.stat().st_size)


def inventory(folder: Path) -> dict[str, BundledFile]:
    """The manifest's entry of every file of a finished directory."""
    return {name: described(folder / name) for name in files_below(folder) if name not in UNLISTED}


def problems(folder: Path, listed: dict[str, BundledFile]) -> list[str]:
    """Describe each file that is changed, missing or not listed. Empty if there is none."""
    there = {name for name in files_below(folder) if name not in UNLISTED}
    found = [f"{name} is missing" for name in sorted(set(listed) - there)]
    found += [f"{name} is not part of it" for name in sorted(there - set(listed))]
    for name in sorted(there & set(listed)):
        path = folder / name
        if path.is_symlink() or not path.is_file():
            found.append(f"{name} is not a regular file")
        elif path.stat().st_size != listed[name].bytes or described(path) != listed[name]:
            found.append(f"{name} was changed")
    return found


def load(folder: Path) -> Manifest:
    """Return the manifest without verification. Raises BundleError."""
    path = folder / MANIFEST
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BundleError(
            f"{path}: cannot be read: {error.strerror}. Set BUNDLE to the directory that make bundle wrote."
        ) from error
    return read_manifest(content, str(path))


def verify(folder: Path, fingerprint: str = "") -> Manifest:
    """Return the manifest of a bundle that is as it was signed. Raises BundleDamaged with all differences.

    fingerprint: the only key that may have signed it; empty takes the one that came with the bundle.
    """
    manifest = load(folder)
    signer = verified(folder)
    wanted = fingerprint.replace(" ", "").upper() or signer
    if signer != wanted:
        raise BundleDamaged(
            f"{folder}: signed with key {signer}, expected {wanted}. It is not the expected bundle: do not use it."
        )
    if signer != manifest.key:
        raise BundleDamaged(f"{folder}: signed with key {signer}, made for {manifest.key}. Make a new bundle.")
    found = problems(folder, manifest.files)
    if found:
        more = f", and {len(found) - FEW} more" if len(found) > FEW else ""
        raise BundleDamaged(
            f"{folder}: differs from its signed manifest: {', '.join(found[:FEW])}{more}. Copy the bundle again "
            "from where it was made, or make a new one."
        )
    return manifest
