"""What this process has started, and what that has started, as /proc shows it: to end it all at once."""

import os
import signal
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
_spared: set[int] = set()


def spare(pid: int) -> None:
    """Exclude a child from end_children: it runs on when this process ends."""
    _spared.add(pid)


def end_children() -> None:
    """Send SIGKILL to every descendant, and to the whole group of one that leads its own. Nothing is waited for."""
    below: dict[int, list[tuple[int, int]]] = {}
    for pid, parent, group in _processes():
        below.setdefault(parent, []).append((pid, group))
    parents = [os.getpid()]
    while parents:
        for pid, group in below.get(parents.pop(), []):
            if pid in _spared:
                continue
            parents.append(pid)
            with suppress(ProcessLookupError, PermissionError):  # it has ended; or it runs as another user (sudo)
                if group == pid:
                    os.killpg(group, signal.SIGKILL)
                else:
                    os.kill(pid, signal.SIGKILL)


def _processes() -> list[tuple[int, int, int]]:
    """(pid, parent, process group) of every process."""
    found = []
    for name in os.listdir(PROC):  # noqa: PTH208 - thousands of names, of which no path is needed
        if not name.isdigit():
            continue
        try:
            stat = (PROC / name / "stat").read_bytes()
        except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            continue
        # The program's name is in parentheses, and may contain any character.
        fields = stat[stat.rindex(b")") + 1 :].split()
        found.append((int(name), int(fields[1]), int(fields[2])))
    return found
