"""A child process that responds with lines on a pipe: each line has a deadline, and the child is always ended.

The child gets the number of the pipe's descriptor as its first argument after the command. The end of what it prints is
kept for the report of its end and never mistaken for a response. Readers, engines and ranks are all such children.
"""

import fcntl
import os
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from gpucheck.processes.group import ELSEWHERE, Group, end
from gpucheck.processes.signals import FAULTS, signal_name

# A killed child that is inside the driver (state D) cannot end before the driver releases it: it is left behind.
GRACE_S = 0.3
TAIL_BYTES = 8192
LONGEST_LINE = 1 << 22  # bytes; a reading of 72 simulated GPUs has 1.2 MB. A longer one is returned as far as it came
PIPE_BYTES = 1 << 20  # the kernel's default limit for unprivileged users: /proc/sys/fs/pipe-max-size


class Ending(NamedTuple):
    """How a child ended by itself.

    how: ``running`` if it closed the pipe only, ``crashed`` if a fault in native code ended it, ``killed`` if any other
    signal did. status: its exit status, or the name of the signal. last_line: of what it printed.
    """

    how: Literal["running", "exited", "crashed", "killed"]
    status: str
    last_line: str


class Child:
    """Started at once, in a session of its own. Raises OSError if it cannot start."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *arguments: str,
        stdin: int = subprocess.DEVNULL,
        folder: Path = ELSEWHERE,
    ) -> None:
        self._receive, send = os.pipe()
        # Room for thousands of lines, so that the child need not wait until this process reads.
        with suppress(OSError):  # the limit for unprivileged users was lowered: then it waits
            fcntl.fcntl(send, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        try:
            self.group = Group(
                [*command, str(send), *arguments],
                environment,
                folder=folder,
                pass_fds=(send,),
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        except OSError:
            os.close(self._receive)
            raise
        finally:
            os.close(send)
        self.process = self.group.process
        assert self.process.stdout is not None  # noqa: S101 - a pipe was requested
        self._output = self.process.stdout
        self._lines: deque[bytes] = deque()
        self._unfinished = b""
        self._printed = b""

    def send(self, line: bytes) -> None:
        """Send a line to stdin. If the child has ended, its closed pipe shows it."""
        assert self.process.stdin is not None  # noqa: S101 - whoever sends has requested the pipe
        with suppress(BrokenPipeError):
            self.process.stdin.write(line + b"\n")
            self.process.stdin.flush()

    @property
    def has_line(self) -> bool:
        """Whether a line was read and not taken yet."""
        return bool(self._lines)

    def read_line(self, deadline: float) -> bytes | None:
        """Return the next line, None if the child closed the pipe. Raises TimeoutError at the deadline (monotonic)."""
        if not self._lines:
            self._listen(deadline)
        return self._lines.popleft() if self._lines else None

    def _listen(self, deadline: float) -> None:
        """Read until there is a line or the pipe is closed, and once after the deadline."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._receive, selectors.EVENT_READ)
            selector.register(self._output, selectors.EVENT_READ)
            while not self._lines and self._receive in selector.get_map():
                remaining = deadline - time.monotonic()
                for key, _ in selector.select(max(remaining, 0.0)):
                    data = os.read(key.fd, PIPE_BYTES)
                    if not data:
                        selector.unregister(key.fileobj)
                    elif key.fd == self._receive:
                        self._take(data)
                    else:
                        self._printed = (self._printed + data)[-TAIL_BYTES:]
                if remaining <= 0 and not self._lines and self._receive in selector.get_map():
                    raise TimeoutError

    def _take(self, data: bytes) -> None:
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        if len(self._unfinished) > LONGEST_LINE:
            lines.append(self._unfinished)
            self._unfinished = b""
        self._lines.extend(lines)

    def how_it_ended(self) -> Ending:
        """Wait a moment for the end of a child that closed the pipe. To be called before end."""
        status = self.group.wait(GRACE_S)
        lines = self.printed().strip().splitlines()
        last_line = lines[-1] if lines else ""
        if status is None:
            return Ending("running", "", last_line)
        if status >= 0:
            return Ending("exited", str(status), last_line)
        return Ending("crashed" if -status in FAULTS else "killed", signal_name(-status), last_line)

    def printed(self) -> str:
        """Return the end of what it printed so far."""
        os.set_blocking(self._output.fileno(), False)
        with suppress(BlockingIOError):
            self._printed = (self._printed + os.read(self._output.fileno(), PIPE_BYTES))[-TAIL_BYTES:]
        return self._printed.decode(errors="replace")

    def kill(self) -> None:
        """Send SIGKILL to the child and to all that it started; nothing is waited for."""
        self.group.signal(signal.SIGKILL)

    def end(self, *, patience_s: float = 0.0) -> None:
        """Close its pipes, let it end by itself for so long, then kill it and all that it started."""
        self.close()
        if patience_s:
            self.group.wait(patience_s)
        end([self.group], ((signal.SIGKILL, GRACE_S),))

    def close(self) -> None:
        """Close its pipes; it must be ended by other means."""
        self.group.close()
        os.close(self._receive)
