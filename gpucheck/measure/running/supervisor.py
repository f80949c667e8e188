"""The parent: requests steps from a child, each with a deadline, and terminates a child that hangs."""

import os
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import TypeVar

import msgspec

from gpucheck.measure.values import Answer, Failure, FailureKind, Opened, Setup, Step
from gpucheck.processes.child import GRACE_S, Child, Ending
from gpucheck.processes.contention import waited_s
from gpucheck.processes.environment import copying_environment
from gpucheck.processes.exhausted import exhausted
from gpucheck.processes.python import python_module
from gpucheck.processes.temporary import private_environment, temporary_folder

CHILD = python_module("gpucheck.measure.running.child")
OPEN_S = 120.0  # importing a framework from a cold disk and making contexts on eight GPUs takes at most this long
# A hung copy spins, and so waits for a processor as well: it is stuck after so many times the limit.
MOST_WAITING = 9.0
LEAST_WAITING_S = 0.05
SLACK = 10.0  # times the planned device time, after which a step is stuck
Shape = TypeVar("Shape")


class Supervised:
    """A child with an engine; started on first use, and again after one was lost. Use as a context manager.

    patience_s: minimum time limit of a step. opened: the setup of the first child, None before.
    removed: ``NAME=value`` of each environment variable that is removed for the child.
    """

    def __init__(self, setup: Setup, patience_s: float, command: Sequence[str] = CHILD) -> None:
        self.setup = setup
        self.patience_s = patience_s
        self.command = command
        self.opened: Opened | None = None
        self.environment, self.removed = copying_environment(os.environ)
        self._folders = ExitStack()
        self._child: Child | None = None

    def __enter__(self) -> "Supervised":  # noqa: PYI034 - Self needs Python 3.11
        with suppress(OSError):  # no writable directory: copies need none
            folder = self._folders.enter_context(temporary_folder("copies"))
            self.environment |= private_environment(folder, self.environment)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child is not None:
            self._child.end(patience_s=10 * GRACE_S if kind is None else 0.0)
        self._folders.close()

    def open(self) -> Opened | Failure:
        try:
            self._child = Child(self.command, self.environment, stdin=subprocess.PIPE)
        except OSError as error:
            return Failure(kind="no-process", purpose="open", detail=f"no child process: {error}")
        # A device that hangs for the first child also hangs for the second, so its limit is shorter.
        limit = OPEN_S if self.opened is None else max(self.patience_s, OPEN_S / 4)
        answer = self._exchange(msgspec.json.encode(self.setup), limit, "open", Opened)
        if isinstance(answer, Opened):
            self.opened = self.opened or answer
        return answer

    def run_step(self, step: Step) -> Answer | Failure:
        """Run one step. A child that hangs, exits or sends an invalid result is terminated."""
        if self._child is None:
            opened = self.open()
            if isinstance(opened, Failure):
                return msgspec.structs.replace(opened, flows=step.flows, purpose=step.purpose)
        limit = max(self.patience_s, SLACK * step.planned_s)
        answer = self._exchange(msgspec.json.encode(step), limit, step.purpose, Answer)
        if isinstance(answer, Failure) and answer.kind != "not-timed" and self._child is not None:
            # A CUDA error may have corrupted the context: the next step gets a new child.
            self._child.end()
            self._child = None
        if isinstance(answer, Failure) and not answer.flows:
            return msgspec.structs.replace(answer, flows=step.flows)
        return answer

    def _exchange(self, request: bytes, limit_s: float, purpose: str, shape: type[Shape]) -> Shape | Failure:
        assert self._child is not None  # noqa: S101 - every caller has just started it
        self._child.send(request)
        try:
            line = self._line(self._child, limit_s)
            if line is not None:
                return msgspec.json.decode(line, type=shape | Failure)
            failure = _ended(self._child.how_it_ended(), purpose)
        except TimeoutError:
            failure = Failure(kind="stuck", purpose=purpose, detail=f"no progress for {limit_s:g} s")
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            failure = Failure(kind="defect", purpose=purpose, detail=f"its output is invalid: {error}")
        self._child.end()
        self._child = None
        return failure

    @staticmethod
    def _line(child: Child, limit_s: float) -> bytes | None:
        """Return its answer. The limit counts no time in which the child waited for a processor, within MOST_WAITING.

        Raises TimeoutError. On a host with many more running processes than processors a healthy copy takes longer: the
        limit would then be a statement about the host, and not about the copy.
        """
        pid = child.process.pid
        started, before = time.monotonic(), waited_s(pid)
        allowed = 0.0
        while True:
            with suppress(TimeoutError):
                return child.read_line(started + limit_s + allowed)
            longer = min(waited_s(pid) - before, MOST_WAITING * limit_s)
            if longer - allowed < LEAST_WAITING_S:
                raise TimeoutError
            allowed = longer


def _ended(ending: Ending, purpose: str) -> Failure:
    """Return how the child ended, with its last line. An exit status is from Python, not from a copy."""
    kind: FailureKind = "defect"
    how = "closed its output" if ending.how == "running" else f"ended with exit status {ending.status}"
    if ending.how in ("crashed", "killed"):
        kind, how = ending.how, f"ended by {ending.status}"
    elif exhausted(ending.last_line):
        kind = "no-resources"
    last = f"; its last line: {ending.last_line[:300]}" if ending.last_line else ""
    return Failure(kind=kind, purpose=purpose, detail=how + last)
