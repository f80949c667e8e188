"""The parent's side: asks a child step by step, each with a deadline, and never waits for one that is stuck."""

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import TypeVar

import msgspec

from gpucheck.measure.values import Answer, Failure, FailureKind, Opened, Setup, Step
from gpucheck.processes.environment import copying_environment
from gpucheck.processes.group import Group, end
from gpucheck.processes.signals import FAULTS, signal_name
from gpucheck.processes.temporary import private_environment, temporary_folder

CHILD = (sys.executable, "-m", "gpucheck.measure.child")
OPEN_S = 120.0  # importing a framework from a cold disk and making contexts on eight GPUs takes this long at worst
SLACK = 10.0  # times the planned device time, before a step counts as stuck
# A killed child that sits in the driver (state D) cannot go before the driver lets it: it is left behind.
GRACE_S = 0.3
TAIL_BYTES = 2000
LARGEST_ANSWER = 1 << 21
Shape = TypeVar("Shape")


class Supervised:
    """A child with an engine; started on first use, and again after one was lost. Use as a context manager.

    patience_s: the least that any step is given. opened: what the first child could set up, None before.
    removed: ``NAME=value`` of each variable of the environment that the child does not get.
    """

    def __init__(self, setup: Setup, patience_s: float, command: Sequence[str] = CHILD) -> None:
        self.setup = setup
        self.patience_s = patience_s
        self.command = command
        self.opened: Opened | None = None
        self.environment, self.removed = copying_environment(os.environ)
        self._folders = ExitStack()
        self._child: _Child | None = None

    def __enter__(self) -> "Supervised":  # noqa: PYI034 - Self needs Python 3.11
        with suppress(OSError):  # no writable place at all: copies need none
            folder = self._folders.enter_context(temporary_folder("copies"))
            self.environment |= private_environment(folder, self.environment)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child is not None:
            self._child.end(patient=kind is None)
        self._folders.close()

    def open(self) -> Opened | Failure:
        """Start the child and let it set up its engine."""
        try:
            self._child = _Child(self.command, self.environment)
        except OSError as error:
            return Failure(kind="no-process", purpose="open", detail=f"no child process: {error}")
        # The second child finds a wedged device where the first one left it: it is not given two minutes again.
        limit = OPEN_S if self.opened is None else max(self.patience_s, OPEN_S / 4)
        answer = self._exchange(msgspec.json.encode(self.setup), limit, "open", Opened)
        if isinstance(answer, Opened):
            self.opened = self.opened or answer
        return answer

    def ask(self, step: Step) -> Answer | Failure:
        """Have one step done. A child that is stuck, dies or sends an invalid answer is gone afterwards."""
        if self._child is None:
            opened = self.open()
            if isinstance(opened, Failure):
                return msgspec.structs.replace(opened, flows=step.flows, purpose=step.purpose)
        limit = max(self.patience_s, SLACK * step.planned_s)
        answer = self._exchange(msgspec.json.encode(step), limit, step.purpose, Answer)
        if isinstance(answer, Failure) and answer.kind != "not-timed" and self._child is not None:
            # A CUDA error may have spoilt the context for good: the next step gets a child of its own.
            self._child.end(patient=False)
            self._child = None
        if isinstance(answer, Failure) and not answer.flows:
            return msgspec.structs.replace(answer, flows=step.flows)
        return answer

    def _exchange(self, request: bytes, limit_s: float, purpose: str, shape: type[Shape]) -> Shape | Failure:
        assert self._child is not None  # noqa: S101 - every caller has just started it
        line, in_time = self._child.exchange(request, time.monotonic() + limit_s)
        if line is not None:
            try:
                return msgspec.json.decode(line, type=shape | Failure)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                failure = Failure(kind="defect", purpose=purpose, detail=f"its answer cannot be read: {error}")
        elif in_time:
            kind, detail = self._child.how_it_ended()
            failure = Failure(kind=kind, purpose=purpose, detail=detail)
        else:
            failure = Failure(kind="stuck", purpose=purpose, detail=f"no progress for {limit_s:g} s")
        self._child.end(patient=False)
        self._child = None
        return failure


class _Child:
    """One process, its pipes, and the tail of what it says."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        receive, send = os.pipe()
        try:
            self.group = Group(
                [*command, str(send)],
                environment,
                pass_fds=(send,),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
        except OSError:
            os.close(receive)
            raise
        finally:
            os.close(send)
        self.process = self.group.process
        self.receive = receive
        self.buffer = b""
        self.errors = b""

    def exchange(self, request: bytes, deadline: float) -> tuple[bytes | None, bool]:
        """Send a line and wait for one. (None, True): the child closed its end; (None, False): it was not in time."""
        assert self.process.stdin is not None  # noqa: S101 - we asked for the pipe
        assert self.process.stderr is not None  # noqa: S101 - we asked for the pipe
        with suppress(BrokenPipeError):  # a child that died is told by its end of the pipe
            self.process.stdin.write(request + b"\n")
            self.process.stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(self.receive, selectors.EVENT_READ)
            selector.register(self.process.stderr.fileno(), selectors.EVENT_READ)
            while self.receive in selector.get_map():
                remaining = deadline - time.monotonic()
                ready = selector.select(remaining) if remaining > 0 else []
                if not ready:
                    return None, False
                for key, _ in ready:
                    data = os.read(key.fd, 65536)
                    if not data:
                        selector.unregister(key.fd)
                    elif key.fd == self.receive:
                        self.buffer += data
                    else:
                        self.errors = (self.errors + data)[-TAIL_BYTES:]
                line, end, rest = self.buffer.partition(b"\n")
                if end or len(self.buffer) > LARGEST_ANSWER:
                    self.buffer = rest
                    return line, True
        return None, True

    def how_it_ended(self) -> tuple[FailureKind, str]:
        """Return what it died of, and its last line. An exit status is Python's own end: no fault of a copy."""
        status = self.group.wait(GRACE_S)
        kind: FailureKind = "defect"
        how = "closed its answers" if status is None else f"ended with exit status {status}"
        if status is not None and status < 0:
            kind = "crashed" if -status in FAULTS else "killed"
            how = f"ended by {signal_name(-status)}"
        if self.process.stderr is not None and status is not None:
            os.set_blocking(self.process.stderr.fileno(), False)
            self.errors += self.process.stderr.read() or b""
        lines = self.errors.decode(errors="replace").strip().splitlines()
        return kind, how + (f"; its last line: {lines[-1][:300]}" if lines else "")

    def end(self, *, patient: bool) -> None:
        """Close its pipes; a patient end lets it give its buffers back first."""
        self.group.close()
        os.close(self.receive)
        if patient:
            self.group.wait(GRACE_S * 10)
        end([self.group], ((signal.SIGKILL, GRACE_S),))
