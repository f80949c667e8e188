"""The cache of simulated machines and compiled libraries: how entries get there, and when they are removed.

An entry is a directory named by its key. It is published complete, by a rename. Its file LOCK holds its size in bytes;
the file's time of change is the last use, and a process that uses the entry keeps a shared lock on it.
"""

import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from gpucheck.processes.trust import others_may_change
from gpucheck.simulator.cache_place import cache_folder

KINDS = ("machines", "libraries")
KEY = re.compile(r"[0-9a-f]{24}")
# What a process that was killed while it published or removed an entry leaves behind.
LEFTOVER = re.compile(r"\.[0-9a-f]{24}\.\w+")
LOCK = "entry.lock"
LIMIT_MIB = 512
LIMIT_VARIABLE = "GPUCHECK_CACHE_MIB"
# Children of a process that ended may still read the machine, and hold no lock.
IN_USE_S = 60.0
# Entries without a lock file are from an earlier version, which may still run.
OUTDATED_S = 86400.0
OUTDATED_CLEAR_S = 3600.0
SMALL_BYTES = 4096


def whole(entry: Path) -> bool:
    """Whether the entry is complete, and no other user made or may change what code is loaded from."""
    try:
        if others_may_change(os.fspath(entry)) or not (entry / LOCK).is_file():
            return False
        folders = [entry, *(folder for folder in (entry / "lib",) if folder.is_dir())]
        paths = [item.path for folder in folders for item in os.scandir(folder)]
        return not any(others_may_change(path) for path in paths)
    except FileNotFoundError:
        return False


def publish(target: Path, make: Callable[[Path], object]) -> None:
    """Fill a new folder next to ``target``, then rename it: readers see all or nothing, and of two writers one wins."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        make(partial)
        (partial / LOCK).write_text(f"{_share_equal_files(partial)}\n")
        (partial / LOCK).chmod(0o644)
        partial.chmod(0o755)
        if target.is_dir() and not whole(target):
            _discard(target)  # of an earlier version, damaged, or of another user
        partial.rename(target)
    except OSError:
        if not whole(target):
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def use(entry: Path) -> int | None:
    """Note a use of the entry and return a descriptor that keeps it until it is closed; None without a whole entry.

    Programs that take the place of this process inherit the descriptor; children do not.
    """
    while True:
        try:
            held = os.open(entry / LOCK, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        with suppress(OSError):  # file systems without locks: the time of the last use protects it for a minute
            fcntl.flock(held, fcntl.LOCK_SH)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(held), (entry / LOCK).stat()):
                if not whole(entry):
                    os.close(held)
                    return None
                os.utime(held)
                os.set_inheritable(held, True)
                return held
        os.close(held)  # removed between the two: try again


def limit_bytes() -> int:
    """Return the size that the cache is kept to. Raises ValueError for a limit that is not a number."""
    text = os.environ.get(LIMIT_VARIABLE) or str(LIMIT_MIB)
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{LIMIT_VARIABLE}={text}: not a whole number of MiB. Example: {LIMIT_VARIABLE}={LIMIT_MIB}")
    return int(text) << 20


class Removed(NamedTuple):
    """What was removed from the cache, and how many entries were kept because a process uses them."""

    entries: int
    bytes: int
    in_use: int


class _Entry(NamedTuple):
    path: Path
    bytes: int
    used: float


def evict(limit: int, keep: Path) -> Removed:
    """Remove the entries that were not used for longest until the others fit the limit, and what killed writers left.

    Entries in use stay, whatever their size, and so does the entry ``keep``.
    """
    entries = sorted(_entries(OUTDATED_S), key=lambda entry: entry.used)
    whole, removed, freed, in_use = sum(entry.bytes for entry in entries), 0, 0, 0
    for entry in entries:
        if whole - freed <= limit:
            break
        if entry.path != keep and _remove(entry.path, IN_USE_S):
            removed, freed = removed + 1, freed + entry.bytes
        else:
            in_use += 1
    return Removed(removed, freed, in_use)


def clear() -> Removed:
    """Remove every entry that no process holds."""
    removed, freed, in_use = 0, 0, 0
    for entry in _entries(OUTDATED_CLEAR_S):
        if _remove(entry.path, 0.0):
            removed, freed = removed + 1, freed + entry.bytes
        else:
            in_use += 1
    return Removed(removed, freed, in_use)


def _entries(outdated_s: float) -> Iterator[_Entry]:
    """Every entry; older leftovers are removed on the way. What is not named as one of these is never touched."""
    now = time.time()
    for kind in KINDS:
        for found in list(os.scandir(cache_folder(kind))):
            if not found.is_dir(follow_symlinks=False):
                continue
            path = Path(found.path)
            with suppress(FileNotFoundError):  # another process removed it
                if KEY.fullmatch(found.name) and (path / LOCK).is_file():
                    yield _Entry(path, _size(path / LOCK), (path / LOCK).stat().st_mtime)
                elif (KEY.fullmatch(found.name) or LEFTOVER.fullmatch(found.name)) and (
                    now - found.stat(follow_symlinks=False).st_mtime > outdated_s
                ):
                    shutil.rmtree(path, ignore_errors=True)


def _size(lock: Path) -> int:
    text = lock.read_text(errors="replace").strip()
    return int(text) if text.isascii() and text.isdigit() else 0


def _remove(entry: Path, idle_s: float) -> bool:
    """Remove the entry, unless a process holds it or used it within so many seconds."""
    try:
        held = os.open(entry / LOCK, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:  # gone, or another user's
        return False
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if time.time() - os.fstat(held).st_mtime < idle_s:
            return False
        _discard(entry)
    except OSError:  # held, no locks on this file system, or removed by another process
        return False
    finally:
        os.close(held)
    return True


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
