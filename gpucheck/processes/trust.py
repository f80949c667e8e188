"""Files and directories that are believed: no other user than root and the one who runs could write there."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

MOST_LINKS = 40  # as the kernel has it
OVERFLOW = Path("/proc/sys/kernel/overflowuid")
WHOLE_MAP = "0 0 4294967295"


def distrust(path: Path, *, own: bool = True, also: int | None = None) -> str | None:
    """Return why no code may be loaded from this existing file or directory, None if it may be.

    Every directory and link on the way must belong to root or to the user who runs, and no other user may write there;
    a sticky directory such as /tmp is fine on the way. own: the last one must belong to the user who runs, not to root.
    also: a further user who is trusted. Raises OSError where a part of the path cannot be looked at.
    """
    owners = _trusted_owners() | ({also} if also is not None else set())
    place = Path("/")
    for place, seen in _way(path):
        if seen.st_uid not in owners:
            return f"{place} belongs to user {seen.st_uid}"
        if not stat.S_ISLNK(seen.st_mode) and seen.st_mode & 0o022 and not _sticky(seen):
            return f"{place} can be written by other users (mode {stat.S_IMODE(seen.st_mode):o})"
    seen = place.lstat()
    if own and (seen.st_uid != os.geteuid() or _sticky(seen)):
        return f"{place} belongs to user {seen.st_uid}" if seen.st_uid != os.geteuid() else f"{place} is sticky"
    return None


def programs_of_root(path: str) -> tuple[str, tuple[str, ...]]:
    """Return PATH without the directories in which others may put programs, and why each is left out."""
    kept, reasons = [], []
    for place in path.split(os.pathsep):
        reason = _not_for_programs(place)
        if reason is None:
            kept.append(place)
        elif reason:
            reasons.append(reason)
    return os.pathsep.join(kept), tuple(dict.fromkeys(reasons))


def _not_for_programs(place: str) -> str | None:
    """Why no program is run from this directory of PATH, None if it may be; empty for one that does not exist."""
    if not os.path.isabs(place):  # noqa: PTH117 - an empty one is the working directory too
        return f"{place or 'an empty part of PATH'} depends on the working directory"
    try:
        return distrust(Path(place), own=False) or (f"{place} is sticky" if _sticky(os.stat(place)) else None)  # noqa: PTH116
    except OSError:
        return ""


def others_may_change(path: str) -> bool:
    """Whether this very file, directory or link belongs to another user, or may be written by one."""
    seen = os.lstat(path)
    return seen.st_uid != os.geteuid() or (not stat.S_ISLNK(seen.st_mode) and bool(seen.st_mode & 0o022))


def _sticky(seen: os.stat_result) -> bool:
    """Whether other users may make files there and not touch each other's."""
    return stat.S_ISDIR(seen.st_mode) and bool(seen.st_mode & stat.S_ISVTX) and bool(seen.st_mode & 0o022)


def _way(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Every directory and link from / to the end of the path, links followed."""
    place = Path("/")
    yield place, place.lstat()
    parts = list(reversed(path.absolute().parts[1:]))
    links = 0
    while parts:
        part = parts.pop()
        if part == "..":
            place = place.parent
            continue
        found = place / part
        seen = found.lstat()
        yield found, seen
        if not stat.S_ISLNK(seen.st_mode):
            place = found
            continue
        links += 1
        if links > MOST_LINKS:
            raise OSError(f"{path}: too many links")
        target = found.readlink()
        place = Path("/") if target.is_absolute() else place
        parts += reversed(target.parts[1:] if target.is_absolute() else target.parts)


def _trusted_owners() -> set[int]:
    """Root and the user who runs. In a user namespace the host's root has no number but that of unknown users."""
    owners = {0, os.geteuid()}
    try:
        if " ".join(Path("/proc/self/uid_map").read_text().split()) != WHOLE_MAP:
            owners.add(int(OVERFLOW.read_text()))
    except (OSError, ValueError):
        return owners
    return owners
