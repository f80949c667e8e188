"""The cache of simulated machines and compiled libraries, where no other user can put a library that is then loaded.

An entry is a directory named by its key. It is published complete, by a rename. Its file STAMP holds its size in bytes;
the file's time of change is the last use.
"""

import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from gpucheck.processes.trust import distrust, others_may_change

SYSTEM_CACHE = Path("/var/cache")
KINDS = ("machines", "libraries")
KEY = re.compile(r"[0-9a-f]{24}")
# What a process that was killed while it published or removed an entry leaves behind.
LEFTOVER = re.compile(r"\.[0-9a-f]{24}\.\w+")
STAMP = "entry.size"
LIMIT_BYTES = 512 << 20
# A machine that was used since then may still be read.
IN_USE_S = 3600.0
SMALL_BYTES = 4096


def cache_folder(kind: str) -> Path:
    """Return ``gpucheck/<kind>`` in the first of these that code may be loaded from, made if needed.

    $XDG_CACHE_HOME; for root /var/cache, for others ~/.cache; without such a folder a private one in the temporary
    directory. A folder of another user, or one that others may write, is passed over with a line on stderr.
    Raises OSError when none can be used.
    """
    for base in _bases():
        folder = base / "gpucheck" / kind
        try:
            reason = _made(folder)
        except OSError:  # it cannot be made here
            continue
        if reason is not None:
            _say(f"gpucheck: the cache {base} is not used: {reason}\n")
        elif os.access(folder, os.W_OK):
            return folder
    folder = Path(tempfile.gettempdir()) / f"gpucheck-{os.geteuid()}" / kind
    reason = _made(folder)
    if reason is not None:
        raise OSError(f"{reason}, so nothing is loaded from it. Set XDG_CACHE_HOME to a writable folder of your own.")
    return folder


def use(entry: Path) -> bool:
    """Note a use of the entry. False if it is not complete, or another user made or may change what code it has."""
    try:
        if others_may_change(os.fspath(entry)) or not (entry / STAMP).is_file():
            return False
        folders = [entry, *(folder for folder in (entry / "lib",) if folder.is_dir())]
        if any(others_may_change(item.path) for folder in folders for item in os.scandir(folder)):
            return False
        os.utime(entry / STAMP)
    except FileNotFoundError:
        return False
    return True


def publish(target: Path, make: Callable[[Path], object]) -> None:
    """Fill a new folder next to ``target``, then rename it: readers see all or nothing, and of two writers one wins."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        make(partial)
        (partial / STAMP).write_text(f"{_share_equal_files(partial)}\n")
        (partial / STAMP).chmod(0o644)
        partial.chmod(0o755)
        if target.is_dir() and not use(target):
            _discard(target)  # of an earlier version, damaged, or of another user
        partial.rename(target)
    except OSError:
        if not use(target):
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def evict() -> None:
    """Remove what was not used for longest until the rest fits the limit, and what killed writers left.

    Entries that were used within the hour stay, whatever their size. What is not named as an entry is never touched.
    """
    entries: list[tuple[float, int, Path]] = []
    idle = time.time() - IN_USE_S
    for kind in KINDS:
        for found in list(os.scandir(cache_folder(kind))):
            path, own = Path(found.path), KEY.fullmatch(found.name)
            if not found.is_dir(follow_symlinks=False) or not (own or LEFTOVER.fullmatch(found.name)):
                continue
            with suppress(FileNotFoundError):  # another process removed it
                if own and (path / STAMP).is_file():
                    size = (path / STAMP).read_text(errors="replace").strip()
                    entries.append(((path / STAMP).stat().st_mtime, int(size) if size.isdecimal() else 0, path))
                elif found.stat(follow_symlinks=False).st_mtime < idle:
                    shutil.rmtree(path, ignore_errors=True)
    whole = sum(size for _, size, _ in entries)
    for used, taken, path in sorted(entries):
        if whole <= LIMIT_BYTES or used > idle:
            break
        with suppress(OSError):
            _discard(path)
            whole -= taken


def _discard(entry: Path) -> None:
    """Remove the directory, renamed first: no process may find half of it. Raises OSError if it cannot be renamed."""
    leftover = Path(tempfile.mkdtemp(prefix=f".{entry.name}.", dir=entry.parent))
    try:
        entry.rename(leftover)
    finally:
        shutil.rmtree(leftover, ignore_errors=True)  # what stays is a leftover, and removed as one


def _share_equal_files(folder: Path) -> int:
    """Make small files of equal content one file with several names; return what the folder takes on disk, in bytes.

    sysfs is thousands of files of a few bytes, each of which takes a block: a machine becomes three times smaller.
    """
    first: dict[tuple[int, bytes], str] = {}
    size = 0
    for above, _, files in os.walk(folder):
        own = os.lstat(above)
        size += own.st_blocks * 512
        if own.st_mode & 0o022:  # made under an umask that lets others write
            os.chmod(above, own.st_mode & 0o755)  # noqa: PTH101
        for name in files:
            path = os.path.join(above, name)  # noqa: PTH118 - thousands of files: strings are faster
            seen = os.lstat(path)
            if seen.st_mode & 0o022 and not os.path.islink(path):  # noqa: PTH114
                os.chmod(path, seen.st_mode & 0o755)  # noqa: PTH101
                seen = os.lstat(path)
            if not os.path.islink(path) and seen.st_size <= SMALL_BYTES:  # noqa: PTH114
                with open(path, "rb") as file:  # noqa: PTH123
                    other = first.setdefault((seen.st_mode, file.read()), path)
                if other != path and _link(other, path):
                    continue
            size += seen.st_blocks * 512
    return size


def _link(existing: str, path: str) -> bool:
    """Put a second name of a file in place of its copy; False where the file system has no more names for it."""
    spare = f"{path}.link"
    try:
        os.link(existing, spare)
    except OSError:
        return False
    os.replace(spare, path)  # noqa: PTH105
    return True


def _made(folder: Path) -> str | None:
    """Make the folder, for this user alone to write; return why no code may be loaded from it, None if it may be."""
    above = folder
    while not os.path.lexists(above):
        above = above.parent
    if above != folder:
        # Before anything is made: nothing of this user belongs into another user's home.
        reason = distrust(above, own=False)
        if reason is not None:
            return reason
        parts = (folder, *folder.parents)
        for part in reversed(parts[: parts.index(above)]):
            part.mkdir(mode=0o700, exist_ok=True)
    return distrust(folder)


@cache
def _say(line: str) -> None:
    """Once, however often the cache is looked for."""
    sys.stderr.write(line)


def _bases() -> Iterator[Path]:
    """The cache directory that the caller names, then the user's own: no home is ever made."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    if Path(named).is_absolute():
        yield Path(named)
    if _is_root():
        yield SYSTEM_CACHE
        return
    # Without HOME, as in a systemd unit, of the user database; a container may run as a user without an entry.
    home = os.path.expanduser("~")  # noqa: PTH111 - Path raises where there is none
    if Path(home).is_absolute() and home != "/" and Path(home).is_dir():
        yield Path(home) / ".cache"


def _is_root() -> bool:
    return os.geteuid() == 0
