"""The sources of a release and the date of their commit; archives whose bytes depend on their contents alone."""

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

from release.problem import ReleaseError

# At the top of a checkout that has no git, such as an unpacked sdist: what is made there.
MADE = {".git", ".venv", ".lab", ".cache", ".hypothesis", ".benchmarks", "build", "dist", "reports", "PKG-INFO"}


def epoch(top: Path) -> int:
    """Seconds since 1970: SOURCE_DATE_EPOCH, or the date of the commit. Every file of the release has it.

    Raises ReleaseError where there is neither.
    """
    given = os.environ.get("SOURCE_DATE_EPOCH") or _git(top, "log", "-1", "--format=%ct")
    advice = "Set SOURCE_DATE_EPOCH to the date of the release in seconds: SOURCE_DATE_EPOCH=$(date +%s)"
    if not given:
        raise ReleaseError(f"{top}: not a git checkout, so the date of the sources is unknown. {advice}")
    # Zip files, and so wheels, know no date before 1980.
    if not given.isdecimal() or not 315532800 <= int(given) < 2**32:
        raise ReleaseError(f"SOURCE_DATE_EPOCH={given}: not a number of seconds between 1980 and 2106. {advice}")
    return int(given)


def tracked(top: Path) -> list[str]:
    """Relative paths of every file of the project, ordered; links count as files."""
    listed = _git(top, "ls-files", "-z")
    if listed:
        return sorted(name for name in listed.split("\0") if name and os.path.lexists(top / name))
    found = []
    for folder, folders, files in os.walk(top):
        where = Path(folder).relative_to(top)
        links = [name for name in folders if Path(folder, name).is_symlink()]
        made = MADE if where == Path() else set()
        left_out = {*made, *links, "__pycache__", *(name for name in folders if name.endswith(("_cache", ".egg-info")))}
        folders[:] = [name for name in folders if name not in left_out]
        found += [(where / name).as_posix() for name in (*files, *links) if name not in made]
    return sorted(found)


def changed(top: Path) -> int:
    """How many tracked files differ from the commit."""
    return len((_git(top, "status", "--porcelain", "--untracked-files=no") or "").splitlines())


def copy(top: Path, names: list[str], target: Path) -> None:
    """Copy the files, with permissions that depend on no umask."""
    for name in names:
        here, there = top / name, target / name
        there.parent.mkdir(parents=True, exist_ok=True)
        if here.is_symlink():
            there.symlink_to(here.readlink())
            continue
        shutil.copyfile(here, there)
        there.chmod(0o755 if os.access(here, os.X_OK) else 0o644)


def _git(top: Path, *words: str) -> str:
    """What git says about this very folder; empty where it is not the top of a checkout."""
    if not (top / ".git").exists():
        return ""
    try:
        done = subprocess.run(["git", "-C", str(top), *words], check=False, capture_output=True, text=True)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def tar_gz(entries: list[tuple[str, Path | bytes]], date: int) -> bytes:
    """A .tar.gz of files, directories, links and contents. date: of every member, seconds since 1970."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, given in entries:
            member = tarfile.TarInfo(name)
            member.mtime, member.uname, member.gname = date, "root", "root"
            if isinstance(given, bytes):
                member.size, member.mode = len(given), 0o644
                archive.addfile(member, io.BytesIO(given))
            elif given.is_symlink():
                member.type, member.linkname, member.mode = tarfile.SYMTYPE, str(given.readlink()), 0o777
                archive.addfile(member)
            elif given.is_dir():
                member.type, member.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(member)
            else:
                content = given.read_bytes()
                member.size, member.mode = len(content), 0o755 if given.stat().st_mode & 0o100 else 0o644
                archive.addfile(member, io.BytesIO(content))
    return gzip.compress(packed.getvalue(), compresslevel=6, mtime=0)


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
