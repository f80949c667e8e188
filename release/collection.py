"""The Ansible collection, as ansible-galaxy builds it, in an order and with a date that do not change."""

import hashlib
import json
import os
import sys
import tarfile
import tempfile
from pathlib import Path

from release.problem import run
from release.source import tar_gz


def collection(source: Path, folder: Path, date: int) -> Path:
    """Build the archive of the collection in a copy of the sources. Raises ReleaseError."""
    with tempfile.TemporaryDirectory(prefix="gpucheck-release-") as temporary:
        # ansible-galaxy stands beside this Python.
        path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
        words: list[str | Path] = [source / "playbooks/collection/build", temporary]
        run(words, what="building the collection", environment={"PATH": path, "LC_ALL": "C.UTF-8"})
        (built,) = Path(temporary).glob("gpucheck-provision-*.tar.gz")
        made = folder / built.name
        made.write_bytes(ordered(built, date))
    return made


def ordered(archive: Path, date: int) -> bytes:
    """The same collection with its list of files, and its members, in the order of their names."""
    contents: dict[str, bytes | None] = {}
    modes: dict[str, int] = {}
    with tarfile.open(archive) as packed:
        for member in packed.getmembers():
            file = packed.extractfile(member) if member.isfile() else None
            contents[member.name] = file.read() if file else None
            modes[member.name] = member.mode
    listed = json.loads(contents["FILES.json"] or b"")
    listed["files"].sort(key=lambda row: str(row["name"]))
    files = json.dumps(listed, indent=True).encode()
    manifest = json.loads(contents["MANIFEST.json"] or b"")
    manifest["file_manifest_file"]["chksum_sha256"] = hashlib.sha256(files).hexdigest()
    contents |= {"FILES.json": files, "MANIFEST.json": json.dumps(manifest, indent=True).encode()}
    with tempfile.TemporaryDirectory(prefix="gpucheck-release-") as temporary:
        entries: list[tuple[str, Path | bytes]] = []
        for name in sorted(contents, key=lambda one: (one not in ("MANIFEST.json", "FILES.json"), one)):
            content, path = contents[name], Path(temporary, name)
            if content is None:
                path.mkdir(parents=True, exist_ok=True)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
                path.chmod(0o755 if modes[name] & 0o100 else 0o644)
            entries.append((name, path))
        return tar_gz(entries, date)
