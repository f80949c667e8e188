"""A child that answers requests: JSON lines in, one JSON line back for each, every answer with a deadline."""

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Literal

import msgspec

from gpucheck.processes.child import GRACE_S, Child, Ending
from gpucheck.processes.contention import MOST_WAITING, ran_s, waited_s
from gpucheck.processes.environment import copying_environment
from gpucheck.processes.exhausted import exhausted
from gpucheck.processes.signals import in_a_hurry
from gpucheck.processes.temporary import private_environment, temporary_folder

MOST_SIMULATED = 99.0  # only a defect of the simulator makes one compute for ever
LEAST_WAITING_S = 0.05
LostKind = Literal["stuck", "crashed", "killed", "no-resources", "defect"]


class Lost(Exception):
    """A child without an answer; it has been ended.

    kind: ``stuck`` if the deadline passed, ``crashed`` if a fault in native code ended it, ``killed`` if any other
    signal did, ``no-resources`` if the host had no room, ``defect`` if it exited or wrote something else.
    """

    def __init__(self, kind: LostKind, detail: str) -> None:
        super().__init__(detail)
        self.kind, self.detail = kind, detail


@contextmanager
def workplace(name: str) -> Iterator[tuple[dict[str, str], tuple[str, ...]]]:
    """Yield the environment of children that copy or compute, and ``NAME=value`` of each variable removed from it.

    What their libraries write is in a folder of the run, which is removed afterwards.
    """
    environment, removed = copying_environment(os.environ)
    with ExitStack() as stack:
        with suppress(OSError):  # no writable directory: they work without one
            environment |= private_environment(stack.enter_context(temporary_folder(name)), environment)
        yield environment, removed


class Worker:
    """Started at once. Raises OSError if it cannot start. simulated: its work is done by the processor, not a GPU."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], *, simulated: bool = False) -> None:
        self._simulated = simulated
        self._most = MOST_SIMULATED if simulated else MOST_WAITING
        self._child = Child(command, environment, stdin=subprocess.PIPE)
        self.pid, self._ended = self._child.process.pid, False

    def send(self, request: msgspec.Struct) -> None:
        """Send a request; of a child that has ended, the answer shows it."""
        self._child.send(msgspec.json.encode(request))

    def answer(self, shape: Any, limit_s: float, since: float | None = None) -> Any:
        """Return the next answer, of this shape. since: time.monotonic() from which the limit counts, by default now.

        The limit counts no time in which the child waited for a processor, within MOST_WAITING: on a host with many
        more running processes than processors it would be a statement about the host. Nor, within MOST_SIMULATED, that
        in which a simulated GPU computed: a processor of any speed moves its bytes, and a copy that hangs there sleeps.
        Raises Lost.
        """
        try:
            return msgspec.json.decode(self._line(time.monotonic() if since is None else since, limit_s), type=shape)
        except Lost:
            self.end()
            raise
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            self.end()
            raise Lost("defect", f"its output is invalid: {error}") from error

    def _line(self, since: float, limit_s: float) -> bytes:
        before, allowed = self._excused_s(), 0.0
        while True:
            with suppress(TimeoutError):
                line = self._child.read_line(since + limit_s + allowed)
                if line is not None:
                    return line
                raise _lost(self._child.how_it_ended())
            longer = min(self._excused_s() - before, self._most * limit_s)
            if longer - allowed < LEAST_WAITING_S:
                raise Lost("stuck", f"no progress for {limit_s:g} s")
            allowed = longer

    def _excused_s(self) -> float:
        return waited_s(self.pid) + (ran_s(self.pid) if self._simulated else 0.0)

    def close(self) -> None:
        """End it, unless that was done."""
        if not self._ended:
            self.end()

    def end(self, *, by_itself: bool = False) -> None:
        """End it. by_itself: it is idle, and may end by the end of its input; while a signal ends us it may not."""
        self._ended = True
        self._child.end(patience_s=10 * GRACE_S if by_itself and not in_a_hurry() else 0.0)


def _lost(ending: Ending) -> Lost:
    """Return how it ended, with its last line. An exit status is from Python, not from the work."""
    last = f"; its last line: {ending.last_line[:300]}" if ending.last_line else ""
    if ending.how in ("crashed", "killed"):
        return Lost("crashed" if ending.how == "crashed" else "killed", f"ended by {ending.status}{last}")
    how = "closed its output" if ending.how == "running" else f"ended with exit status {ending.status}"
    return Lost("no-resources" if exhausted(ending.last_line) else "defect", how + last)
