"""Where the cache of simulated machines is: a folder into which no other user can put a library that is then loaded."""

import os
import pwd
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from gpucheck.processes.trust import distrust

SYSTEM_CACHE = Path("/var/cache")


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
    for home in _homes():
        if Path(home).is_absolute() and home != "/" and Path(home).is_dir():
            yield Path(home) / ".cache"


def _is_root() -> bool:
    return os.geteuid() == 0


def _homes() -> Iterator[str]:
    """Of the environment, then of the user database: a systemd unit has no HOME."""
    yield os.environ.get("HOME", "")
    with suppress(KeyError):  # a container may run as a user without an entry
        yield pwd.getpwuid(os.geteuid()).pw_dir
