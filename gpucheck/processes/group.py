"""A process in a session of its own, and everything that it starts: asked, signalled and ended as one."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpucheck.processes.environment import independent
from gpucheck.processes.signals import in_a_hurry

ELSEWHERE = Path("/")
POLL_S = 0.001
GONE_S = 1.0  # what a process started and left behind is killed with it and vanishes when init has collected it
HURRY_S = 0.2  # the most for each of these, and for each signal, while a signal ends this process


class Group:
    """Started at once. Ctrl-C on the terminal reaches us and not the group. Raises OSError where it cannot start.

    folder: where it runs; never the caller's directory, in which another user may have left modules and libraries.
    streams: stdin, stdout, stderr and pass_fds as subprocess has them; stdin is empty by default.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        folder: Path = ELSEWHERE,
        **streams: Any,
    ) -> None:
        streams = {"stdin": subprocess.DEVNULL, **streams}
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            command, env=independent(environment), cwd=folder, start_new_session=True, **streams
        )

    def status(self) -> int | None:
        """Exit status, negative for a signal; None while it runs. A dead leader stays a zombie, so its id is kept."""
        if self.process.returncode is not None:
            return self.process.returncode
        ended = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def wait(self, seconds: float) -> int | None:
        """The status as soon as there is one, at the latest after so long."""
        until = time.monotonic() + seconds
        while self.status() is None and time.monotonic() < until:
            time.sleep(POLL_S)
        return self.status()

    def signal(self, number: signal.Signals) -> None:
        """To the leader and everything that it started."""
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            return

    def reap(self) -> None:
        """Collect a dead leader and close its pipes. One that not even SIGKILL ended is left to the kernel."""
        self.process.poll()
        self.close()

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                with suppress(BrokenPipeError):  # what was still to be written has no reader any more
                    pipe.close()

    def is_gone(self) -> bool:
        """Whether nothing that the leader started is left either; to be asked after reap."""
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return True
        return False


def end(
    groups: Sequence[Group],
    patience: Sequence[tuple[signal.Signals, float]],
    meanwhile: Callable[[], None] = lambda: None,
) -> tuple[Group, ...]:
    """Send each signal to all groups and give them its seconds; those whose leader is still there after the last.

    A process in an uninterruptible call outlives even SIGKILL: it is reported and not waited for.
    meanwhile: called repeatedly, so that no process blocks on a full pipe to gpucheck.
    While a signal ends this process, the seconds are cut to HURRY_S.
    """
    for number, seconds in patience:
        # Also to the groups of leaders that ended: what they started may still run.
        for group in groups:
            group.signal(number)
        began = time.monotonic()
        while any(group.status() is None for group in groups) and time.monotonic() < began + _cut(seconds):
            meanwhile()
            time.sleep(POLL_S)
    left = tuple(group for group in groups if group.status() is None)
    for group in groups:
        group.reap()
    began = time.monotonic()
    while not all(group.is_gone() for group in groups if group not in left):
        if time.monotonic() >= began + _cut(GONE_S):
            break
        time.sleep(POLL_S)
    return left


def _cut(seconds: float) -> float:
    return min(seconds, HURRY_S) if in_a_hurry() else seconds
