"""A private copy of a bundle for one site: verified while it is copied, and all that is used afterwards."""

from pathlib import Path

import msgspec

from gpucheck.bundle.contents import host_files
from gpucheck.bundle.errors import BundleError
from gpucheck.bundle.folder import verify
from gpucheck.bundle.manifest import LOCK, PIP_LOCK, Manifest
from gpucheck.foreign import UnreadableInput, read_bytes
from gpucheck.processes.atomic import SHARED, write_atomic

# Below the directory of a site: what is used on this machine, copies of all files by digest, and what was taken before.
BUNDLE, FILES, TAKEN = "bundle", "files", "taken.json"
MOST_TAKEN = 1 << 20


def take(folder: Path, site: Path, fingerprint: str = "", *, accept_older: bool = False) -> Manifest:
    """Verify a bundle and copy it below the directory of a site. GROUP.json lists what the hosts of a group get.

    accept_older: also a bundle that was made before the one that was taken last.

    Raises BundleError, BundleDamaged, OSError.
    """
    copies = (site / FILES).absolute()
    copies.mkdir(mode=0o700, parents=True, exist_ok=True)
    manifest, proof = verify(folder, fingerprint, copies)
    newest = _newest(site / TAKEN, manifest, accept_older=accept_older)
    here = {Path(name).name: copies / manifest.files[name].sha256 for name in _used_here(manifest)}
    for name, content in {**proof, **{name: path.read_bytes() for name, path in here.items()}}.items():
        write_atomic(site / BUNDLE / name, content, mode=SHARED)
    for group in manifest.groups:
        files = {there: manifest.files[name] for there, name in host_files(manifest, group).items()}
        rows = {
            there: {"sha256": file.sha256, "bytes": file.bytes, "source": str(copies / file.sha256)}
            for there, file in files.items()
        }
        write_atomic(site / f"{group}.json", msgspec.json.format(msgspec.json.encode(rows), indent=2), mode=SHARED)
    write_atomic(site / TAKEN, msgspec.json.encode(newest), mode=SHARED)
    digests = {file.sha256 for file in manifest.files.values()}
    for path in copies.iterdir():
        if path.name not in digests:
            path.unlink()
    return manifest


def _used_here(manifest: Manifest) -> list[str]:
    """Files of the bundle that are used on this machine, by their paths in it."""
    wheels = [f"{system.wheels}/{manifest.wheel.name}" for system in manifest.systems.values()]
    return [name for name in (LOCK, PIP_LOCK, *wheels) if name in manifest.files]


def _newest(record: Path, manifest: Manifest, *, accept_older: bool) -> dict[str, str]:
    """Group -> when its newest bundle was made, this one included. Raises BundleError for an older bundle."""
    taken: dict[str, str] = {}
    try:
        if record.exists():
            taken = msgspec.json.decode(read_bytes(record, MOST_TAKEN), type=dict[str, str])
    except (UnreadableInput, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BundleError(f"{record}: not a record of bundles: {error}. Remove it.") from error
    later = {group: taken[group] for group in manifest.groups if taken.get(group, "") > manifest.made}
    if later and not accept_older:
        group, made = next(iter(later.items()))
        raise BundleError(
            f"the bundle was made {manifest.made}, and group {group} has had one that was made {made}. An older bundle "
            "can install packages with known vulnerabilities. Use a newer one, or set bundle_accept_older: true "
            "(--accept-older)."
        )
    return {**taken, **dict.fromkeys(manifest.groups, manifest.made)}
