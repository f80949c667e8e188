"""Run a Python child to its end or to a deadline, and take what it printed; it ends with this process."""

import os
import signal
from collections.abc import Sequence
from typing import NamedTuple

from gpucheck.processes.environment import PLACES, ROOT
from gpucheck.processes.exhausted import exhausted
from gpucheck.processes.group import Group, end
from gpucheck.processes.signals import FAULTS, signal_name

# The child's own program, once the kernel ends it with its parent.
WITH_PARENT = PLACES + (
    "import runpy; from gpucheck.processes.lifeline import end_with_parent; "
    "end_with_parent(int(sys.argv[1])); how, program = sys.argv[2:4]; sys.argv[1:4] = []; "
    "exec(program) if how == '-c' else runpy.run_module(program, run_name='__main__', alter_sys=True)"
)
GRACE_S = 0.3  # a child that the driver holds (state D) is left behind


class HostResources(Exception):
    """The child did not start or did not end by itself: the host had no room for it, or something killed it."""


class Captured(NamedTuple):
    """status: exit status, negative for a signal, None for a child that did not end in time."""

    status: int | None
    stdout: bytes
    stderr: bytes


def capture(command: Sequence[str], seconds: float) -> Captured:
    """Run ``[python, "-m" or "-c", program, ...]``. Raises HostResources."""
    try:
        done = completed(command, seconds)
    except OSError as error:
        raise HostResources(f"{command[0]} could not be started: {error.strerror}") from error
    if done.status is not None and done.status < 0 and -done.status not in FAULTS:
        raise HostResources(f"the process was killed from outside ({signal_name(-done.status)})")
    last = (done.stderr.decode(errors="replace").strip().splitlines() or [""])[-1]
    if done.status and exhausted(last):
        raise HostResources(f"no resources for the process: {last}")
    return done


def completed(command: Sequence[str], seconds: float) -> Captured:
    """Run the same, however it ends. Raises OSError if it cannot start."""
    python, *rest = command
    # In memory, for a container may have no place that can be written.
    with os.fdopen(os.memfd_create("stdout"), "w+b") as out, os.fdopen(os.memfd_create("stderr"), "w+b") as err:
        group = Group([python, "-c", WITH_PARENT, ROOT, str(os.getpid()), *rest], os.environ, stdout=out, stderr=err)
        try:
            status = group.wait(seconds)
        finally:
            end([group], ((signal.SIGKILL, GRACE_S),))
        for file in (out, err):
            file.seek(0)
        return Captured(status, out.read(), err.read())
