"""How long a process waited for a processor: time in which it made no progress by no fault of its own."""

from pathlib import Path

PROC = Path("/proc")


def waited_s(pid: int, proc: Path = PROC) -> float:
    """Return the seconds that the main thread of a process has waited for a processor so far, 0.0 if unknown.

    Source: the second number of /proc/PID/schedstat, in nanoseconds (Documentation/scheduler/sched-stats.rst). It is
    missing from kernels without CONFIG_SCHED_INFO and from sandboxes such as gVisor.
    """
    return _seconds(pid, proc, 1)


def ran_s(pid: int, proc: Path = PROC) -> float:
    """Return the seconds that the main thread has run so far: the first number of that file."""
    return _seconds(pid, proc, 0)


def _seconds(pid: int, proc: Path, place: int) -> float:
    try:
        return int((proc / str(pid) / "schedstat").read_text(encoding="ascii").split()[place]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
