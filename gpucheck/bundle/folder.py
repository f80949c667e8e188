"""The directory of a bundle compared with its manifest, and its private copy on the controller."""

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

import msgspec
from msgspec import to_builtins

from gpucheck.bundle import contents
from gpucheck.bundle.signing import verified
from gpucheck.foreign import UnreadableInput, read_bytes
from gpucheck.processes.atomic import SHARED, replacing, write_atomic

UNLISTED = (contents.MANIFEST, contents.SIGNATURE)
PIECE_BYTES = 1 << 20
# 20,000 files take 4 MiB.
MOST_MANIFEST, MOST_SIGNATURE = 64 << 20, 1 << 20
MOST_ENTRIES, DEEPEST = 200_000, 16
# Below the directory of a site: what is used on this machine, copies of all files by digest, and what was taken before.
# The last is not the name of a group.
BUNDLE, FILES, TAKEN = "bundle", "files", ".taken.json"
MOST_TAKEN = 1 << 20


class Signed(NamedTuple):
    """A manifest whose signature is valid. proof: bundle.json, its signature and the key, as they were read."""

    manifest: contents.Manifest
    proof: Mapping[str, bytes]


def files_below(folder: Path) -> Iterator[str]:
    """Every entry below the directory that is not a directory, as paths with slashes, ordered.

    Raises BundleDamaged for more, or deeper, than a bundle has.
    """
    places, count = [""], 0
    while places:
        place = places.pop()
        if place.count("/") > DEEPEST:
            raise contents.BundleDamaged(
                f"{folder}: has directories of more than {DEEPEST} levels, which no bundle has."
            )
        with os.scandir(folder / place) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        count += len(found)
        if count > MOST_ENTRIES:
            raise contents.BundleDamaged(f"{folder}: contains more than {MOST_ENTRIES} files, which no bundle does.")
        for entry in found:
            if not entry.is_dir(follow_symlinks=False):
                yield place + entry.name
        places += [f"{place}{entry.name}/" for entry in reversed(found) if entry.is_dir(follow_symlinks=False)]


def described(path: Path) -> contents.BundledFile:
    with path.open("rb") as file:
        return _digested(file, None)


def _digested(file: IO[bytes], copy: IO[bytes] | None, most: int | None = None) -> contents.BundledFile:
    """Digest and size of what is left of a file, which is read once. copy: gets the same bytes. most: to read."""
    digest, size = hashlib.sha256(), 0
    while piece := file.read(PIECE_BYTES):
        digest.update(piece)
        size += len(piece)
        if most is not None and size > most:
            break
        if copy is not None:
            copy.write(piece)
    return contents.BundledFile(sha256=digest.hexdigest(), bytes=size)


def inventory(folder: Path) -> dict[str, contents.BundledFile]:
    """The manifest's entry of every file of a finished directory."""
    return {name: described(folder / name) for name in files_below(folder) if name not in UNLISTED}


def problems(folder: Path, listed: dict[str, contents.BundledFile], copies: Path | None = None) -> list[str]:
    """Describe each file that is changed, missing or not listed. Empty if there is none.

    copies: a private directory for a copy of each listed file, named by its digest, of the bytes that were compared.
    """
    there = {name for name in files_below(folder) if name not in UNLISTED}
    found = [f"{name} is missing" for name in sorted(set(listed) - there)]
    found += [f"{name} is not part of it" for name in sorted(there - set(listed))]
    for name in sorted(there & set(listed)):
        problem = _compared(folder / name, listed[name], copies)
        if problem:
            found.append(f"{name} {problem}")
    return found


def _compared(path: Path, listed: contents.BundledFile, copies: Path | None) -> str:
    """What is wrong with a file; empty if it is as listed, and then its copy is there."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        return f"is not a regular file that can be read ({error.strerror})"
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return "is not a regular file"
        if status.st_size != listed.bytes:
            return "was changed"
        # An earlier run may have left a good copy; a loss of power leaves others too.
        copy = copies / listed.sha256 if copies else None
        if copy is None or (copy.exists() and described(copy) == listed):
            return "" if _digested(file, None, listed.bytes) == listed else "was changed"
        with suppress(_ChangedError), replacing(copy, durable=False) as partial:
            if _digested(file, partial, listed.bytes) == listed:
                return ""
            raise _ChangedError
    return "was changed"


class _ChangedError(Exception):
    """A copy is not what was signed, so it is not kept."""


def signed(folder: Path, fingerprint: str = "") -> Signed:
    """The manifest of a bundle, and the files that prove it, each read once. Raises BundleError, BundleDamaged.

    fingerprint: the only key that may have signed it; empty takes the one that came with the bundle. The other files of
    the bundle are not read.
    """
    try:
        content = read_bytes(folder / contents.MANIFEST, MOST_MANIFEST)
    except UnreadableInput as error:
        hint = "Give the directory that make bundle wrote (BUNDLE= of make)."
        raise contents.BundleError(f"{folder / contents.MANIFEST}: {error.what}. {hint}") from error
    proof = {contents.MANIFEST: content, **{name: _proof(folder, name) for name in (contents.SIGNATURE, contents.KEY)}}
    signer = verified(proof, str(folder))
    wanted = fingerprint.replace(" ", "").upper() or signer
    if signer != wanted:
        raise contents.BundleDamaged(
            f"{folder}: signed with key {signer}, expected {wanted}. It is not the expected bundle: do not use it."
        )
    manifest = contents.read_manifest(content, str(folder / contents.MANIFEST))
    if signer != manifest.key:
        raise contents.BundleDamaged(f"{folder}: signed with key {signer}, made for {manifest.key}. Make a new bundle.")
    return Signed(manifest, proof)


def _proof(folder: Path, name: str) -> bytes:
    try:
        return read_bytes(folder / name, MOST_SIGNATURE)
    except UnreadableInput as error:
        what = error.what if (folder / name).exists() else "is missing"
        hint = "so it is not signed. Copy the complete bundle again."
        raise contents.BundleDamaged(f"{folder}: {name} {what}, {hint}") from error


def verify(folder: Path, fingerprint: str = "", copies: Path | None = None) -> Signed:
    """The same for a bundle of which every file is as it was signed. Raises BundleDamaged with all differences.

    copies: see `problems`. The bundle may lie on a medium that changes while it is read: use the copies from here on.
    """
    found = signed(folder, fingerprint)
    differences = problems(folder, found.manifest.files, copies)
    if differences:
        raise contents.BundleDamaged(
            f"{folder}: differs from its signed manifest: {contents.few(differences)}. Copy the bundle again from "
            "where it was made, or make a new one."
        )
    return found


def take(folder: Path, site: Path, fingerprint: str = "", *, accept_older: bool = False) -> contents.Manifest:
    """Verify a bundle and copy it below the directory of a site. GROUP.json lists what the hosts of a group get.

    accept_older: also a bundle that was made before the one that was taken last.

    Raises BundleError, BundleDamaged, OSError.
    """
    copies = (site / FILES).absolute()
    copies.mkdir(mode=0o700, parents=True, exist_ok=True)
    _refuse_foreign(site, copies)
    manifest, proof = verify(folder, fingerprint, copies)
    newest = _newest(site / TAKEN, manifest, accept_older=accept_older)
    (site / BUNDLE).mkdir(exist_ok=True)
    _refuse_foreign(site / BUNDLE)
    wheels = (f"{system.wheels}/{manifest.wheel.name}" for system in manifest.systems.values())
    used = [name for name in (contents.LOCK, contents.PIP_LOCK, *wheels) if name in manifest.files]
    here = {Path(name).name: (copies / manifest.files[name].sha256).read_bytes() for name in used}
    for name, content in (*proof.items(), *here.items()):
        write_atomic(site / BUNDLE / name, content, mode=SHARED)
    for group in manifest.groups:
        files = ((there, manifest.files[name]) for there, name in contents.host_files(manifest, group).items())
        rows = {there: {**to_builtins(file), "source": str(copies / file.sha256)} for there, file in files}
        write_atomic(site / f"{group}.json", msgspec.json.format(msgspec.json.encode(rows), indent=2), mode=SHARED)
    write_atomic(site / TAKEN, msgspec.json.encode(newest), mode=SHARED)
    digests = {file.sha256 for file in manifest.files.values()}
    for path in copies.iterdir():
        if path.name not in digests:
            path.unlink()
    return manifest


def _refuse_foreign(*places: Path) -> None:
    """Raise BundleError for a directory in which another user could have left copies, or a link in its place."""
    for place in places:
        seen = place.lstat()
        if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid() or seen.st_mode & 0o002:
            raise contents.BundleError(
                f"{place}: is not a directory of this user that only this user or group may write, and verified files "
                "are kept there. Set another build_dir (--output)."
            )


def _newest(record: Path, manifest: contents.Manifest, *, accept_older: bool) -> dict[str, str]:
    """Group -> when its newest bundle was made, this one included. Raises BundleError for an older bundle."""
    try:
        content = read_bytes(record, MOST_TAKEN) if record.exists() else b"{}"
        taken = msgspec.json.decode(content, type=dict[str, str])
    except (UnreadableInput, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        what = error.what if isinstance(error, UnreadableInput) else error
        raise contents.BundleError(f"{record}: not a record of bundles: {what}. Remove it.") from error
    later = {group: taken[group] for group in manifest.groups if taken.get(group, "") > manifest.made}
    if later and not accept_older:
        group, made = next(iter(later.items()))
        raise contents.BundleError(
            f"the bundle was made {manifest.made}, and group {group} has had one that was made {made}. An older bundle "
            "can install packages with known vulnerabilities. Use a newer one, or set bundle_accept_older: true "
            "(--accept-older)."
        )
    return {**taken, **dict.fromkeys(manifest.groups, manifest.made)}
