"""A bundle's folder against its manifest: nothing changed, nothing missing, nothing beside."""

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
    """Every entry below the folder that is no folder, as paths with slashes, ordered."""
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
    """The manifest's entry of every file of a finished folder."""
    return {name: described(folder / name) for name in files_below(folder) if name not in UNLISTED}


def problems(folder: Path, listed: dict[str, BundledFile]) -> list[str]:
    """Words for every file that is not as listed, missing, or not listed; empty is good."""
    there = {name for name in files_below(folder) if name not in UNLISTED}
    found = [f"{name} is missing" for name in sorted(set(listed) - there)]
    found += [f"{name} is not part of it" for name in sorted(there - set(listed))]
    for name in sorted(there & set(listed)):
        path = folder / name
        if path.is_symlink() or not path.is_file():
            found.append(f"{name} is no regular file")
        elif path.stat().st_size != listed[name].bytes or described(path) != listed[name]:
            found.append(f"{name} was changed")
    return found


def load(folder: Path) -> Manifest:
    """The manifest as it stands, nothing verified. Raises BundleError."""
    path = folder / MANIFEST
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BundleError(
            f"{path}: cannot be read: {error.strerror}. BUNDLE names the folder that make bundle wrote."
        ) from error
    return read_manifest(content, str(path))


def verify(folder: Path, fingerprint: str = "") -> Manifest:
    """The manifest of a bundle that is as it was signed. Raises BundleDamaged with everything that is wrong.

    fingerprint: the only key that may have signed it; empty takes the one that came with the bundle.
    """
    manifest = load(folder)
    signer = verified(folder)
    wanted = fingerprint.replace(" ", "").upper() or signer
    if signer != wanted:
        raise BundleDamaged(
            f"{folder}: signed with key {signer}, and only {wanted} is trusted. "
            "It is another bundle than you were told of: do not use it."
        )
    if signer != manifest.key:
        raise BundleDamaged(f"{folder}: signed with key {signer}, made for {manifest.key}. Make the bundle anew.")
    found = problems(folder, manifest.files)
    if found:
        more = f", and {len(found) - FEW} more" if len(found) > FEW else ""
        raise BundleDamaged(
            f"{folder}: not as it was signed: {', '.join(found[:FEW])}{more}. Copy the bundle again from where it was "
            "made, or make it anew."
        )
    return manifest
