"""How long a process waited for a processor: time in which it made no progress by no fault of its own."""

from collections.abc import Sequence
from pathlib import Path

PROC = Path("/proc")
LOOK_S = 1.0
# A process that hangs may spin, and then waits for a processor too: it is stuck after its limit and so many times more.
MOST_WAITING = 9.0


def waited_s(pid: int, proc: Path = PROC) -> float:
    """Return the seconds that the main thread of a process has waited for a processor so far, 0.0 if unknown.

    Source: the second number of /proc/PID/schedstat, in nanoseconds (Documentation/scheduler/sched-stats.rst). It is
    missing from kernels without CONFIG_SCHED_INFO and from sandboxes such as gVisor.
    """
    return _seconds(proc / str(pid), 1)


def ran_s(pid: int, proc: Path = PROC) -> float:
    """Return the seconds that the main thread has run so far: the first number of that file."""
    return _seconds(proc / str(pid), 0)


class Waiting:
    """The time in which the threads of processes waited for a processor, in seconds, looked at once a second.

    All threads count, because any of them can be the one that the others wait for.
    """

    def __init__(self, pids: Sequence[int], proc: Path = PROC) -> None:
        self._pids, self._proc = pids, proc
        self._seen: dict[str, float] = {}
        self._next = 0.0
        self.total_s = 0.0

    def look(self, now: float) -> float:
        """Return the time since the first look, at this time.monotonic(). What has ended has added its share."""
        if now >= self._next:
            tasks = [one for pid in self._pids for one in self._proc.glob(f"{pid}/task/*")]
            found = {one.name: _seconds(one, 1) for one in tasks}
            if self._next:
                self.total_s += sum(max(0.0, waited - self._seen.get(name, 0.0)) for name, waited in found.items())
            self._seen, self._next = found, now + LOOK_S
        return self.total_s


def _seconds(task: Path, place: int) -> float:
    try:
        return int((task / "schedstat").read_text(encoding="ascii").split()[place]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
