"""Add hashes to a lock, also for wheels missing from the reachable indexes (images/known-wheels.txt)."""

import re
from pathlib import Path

from gpucheck.images.versions import VersionsError

FILE = "images/known-wheels.txt"
LINE = re.compile(r"([0-9a-f]{64})  (\S+\.whl)")


def known_wheels(root: Path) -> dict[str, str]:
    """Return wheel -> sha256 of the checkout's list; empty without a list. Raises VersionsError with file and line."""
    path = root / FILE
    if not path.exists():
        return {}
    found = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        match = LINE.fullmatch(line)
        if match is None:
            raise VersionsError(
                f"{path}:{number}: {line[:80]!r} is not an sha256sum line: 64 hex digits, two spaces, a wheel's name. "
                "Correct or remove it."
            )
        found[match[2]] = match[1]
    return found


def wheels_of(known: dict[str, str], name: str, version: str) -> dict[str, str]:
    """Return the known wheels of one exact version, with its local part."""
    return {
        wheel: digest for wheel, digest in known.items() if wheel.split("-")[:2] == [name.replace("-", "_"), version]
    }


def add_known(lock: str, known: dict[str, str]) -> str:
    """Return the lock's text with the known hashes added to those of uv, without duplicates, sorted as uv does."""
    blocks = re.split(r"\n(?=\S)", lock.rstrip("\n"))
    return "\n".join(_with_hashes(block, known) for block in blocks) + "\n" if lock.strip() else lock


def _with_hashes(block: str, known: dict[str, str]) -> str:
    requirement, *hashes = (line.rstrip("\\").strip() for line in block.splitlines())
    name, _, version = requirement.partition(";")[0].partition("==")
    more = {f"--hash=sha256:{digest}" for digest in wheels_of(known, name.strip(), version.strip()).values()}
    if not more - set(hashes):
        return block
    return " \\\n    ".join([requirement, *sorted({*hashes, *more})])


def without_hash(lock: str) -> list[str]:
    """Return requirements of a lock without a hash: pip would accept any file of that name."""
    blocks = re.split(r"\n(?=\S)", lock.strip("\n"))
    return [block.partition(" ")[0].strip() for block in blocks if "==" in block and "--hash=sha256:" not in block]
