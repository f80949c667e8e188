"""Run a command; print as one table line: wall time, CPU seconds in user mode, and the most memory that it held.

Memory is the proportional set size of it and its children together (shared pages counted once), sampled from
/proc/PID/smaps_rollup every 50 ms, or every EVERY_MS milliseconds where the environment says so.
usage: python bench/_memory.py LABEL COMMAND...
"""

import contextlib
import os
import resource
import subprocess
import sys
import time
from pathlib import Path


def family(pid):
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            yield from family(int(child))


def held_kb(pids):
    total = 0
    for each in pids:
        try:
            lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue  # it ended between two looks
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total


def main():
    label, *command = sys.argv[1:]
    clock = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    most, pause_s = 0, float(os.environ.get("EVERY_MS", "50")) / 1000
    while process.poll() is None:
        with contextlib.suppress(OSError):  # it ended between two looks
            most = max(most, held_kb(family(process.pid)))
        time.sleep(pause_s)
    seconds = time.monotonic() - clock
    if process.returncode not in (0, 1, 2):  # the verdicts of a fleet
        sys.exit(f"{' '.join(command)}: exit status {process.returncode}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"| {label} | {seconds:.2f} | {used.ru_utime:.2f} | {most / 1024:.0f} |")


if __name__ == "__main__":
    main()
