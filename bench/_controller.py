"""Run a controller; print as one table line what it and everything it started took: wall, CPU, memory.

CPU is user and system time of the whole tree, the ssh processes that ansible leaves in the background included: this
process adopts what is orphaned below it (PR_SET_CHILD_SUBREAPER), ends it when the run is over, and counts it.
Containers are the engine's children, so nothing of the hosts is in it. Memory is the most that the tree held at once,
in proportional set size (shared pages counted once).
usage: python bench/_controller.py LABEL HOSTS COMMAND...
"""

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import sys
import time

from _memory import family, held_kb

PR_SET_CHILD_SUBREAPER = 36
PAUSE_S = 2.0


def end_the_rest():
    """Terminate and reap what still runs below us: the connections that ssh keeps open for the next run."""
    for pid in list(family(os.getpid()))[1:]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def main():
    label, hosts, *command = sys.argv[1:]
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        sys.exit("prctl(PR_SET_CHILD_SUBREAPER) failed: processes in the background could not be counted")
    clock = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    most = 0
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PAUSE_S)
        if process.returncode is not None:
            break
        with contextlib.suppress(OSError):  # it ended between two looks
            most = max(most, held_kb(list(family(os.getpid()))[1:]))
    seconds = time.monotonic() - clock
    end_the_rest()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = used.ru_utime + used.ru_stime
    print(f"| {label} | {hosts} | {seconds:.1f} | {cpu:.1f} | {cpu / int(hosts):.2f} | {most / 1024:.0f} |", flush=True)
    if process.returncode:
        sys.exit(f"{' '.join(command)}: exit status {process.returncode}")


if __name__ == "__main__":
    main()
