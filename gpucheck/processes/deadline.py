"""Run a call in its own thread with a deadline: a sysfs read or step that hangs becomes a finding."""

import errno
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from gpucheck.processes.signals import end_children, in_a_hurry

Answer = TypeVar("Answer")
# What a step that is stopped may take to end the processes that it started: SIGTERM, SIGKILL, and files.
LEAVE_S = 10.0
# The same while a signal ends this process: the processes are killed first, so only files are left to remove.
HURRY_S = 0.3


class StuckError(Exception):
    """A call did not end in time. call: where it stands. stack: the way there, innermost last."""

    def __init__(self, seconds: float, stack: tuple[str, ...]) -> None:
        self.seconds = seconds
        self.stack = stack
        self.call = stack[-1] if stack else "an unknown call"
        super().__init__(f"no end within {seconds:g} s, in {self.call}")


class _LeaveError(BaseException):
    """Raised inside an abandoned call; no ``except Exception`` there may catch it."""


def in_time(name: str, call: Callable[[], Answer], seconds: float) -> Answer:
    """The call's answer. Raises what the call raises, and StuckError when it takes longer; its thread is left behind.

    Raises OSError immediately if the operating system cannot start the thread.

    It is a daemon, for a thread that waits in the kernel cannot be ended, and must not keep the process from ending.
    One that still runs Python is interrupted, so that it ends the processes that it started; so it is on Ctrl-C.
    """
    answers: list[Answer] = []
    errors: list[BaseException] = []
    # Not Thread.join and is_alive: a join that Ctrl-C interrupts takes a running thread for ended (CPython 3.11).
    ended = threading.Event()

    def work() -> None:
        try:
            # Not kept: its frames hold what the call had open.
            with suppress(_LeaveError):
                answers.append(call())
        except BaseException as error:
            errors.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=work, daemon=True, name=f"gpucheck {name}")
    try:
        try:
            thread.start()
        except RuntimeError as error:
            ended.set()  # it never ran: nothing is to be waited for
            raise OSError(errno.EAGAIN, str(error)) from error
        ended.wait(seconds)
    except BaseException:
        if not ended.is_set():
            _interrupt(thread)
            if in_a_hurry():
                # A thread that waits for a process sees the order to leave only when that process has ended.
                end_children()
            ended.wait(HURRY_S if in_a_hurry() else LEAVE_S)
        raise
    if answers:
        return answers[0]
    if not errors:
        frames = traceback.extract_stack(sys._current_frames().get(thread.ident or 0))[-6:]
        stuck = StuckError(seconds, tuple(f"{line.filename}:{line.lineno} in {line.name}" for line in frames))
        _interrupt(thread)
        raise stuck
    if isinstance(errors[0], Exception):
        raise errors[0]
    # What would have ended the whole program, such as SystemExit.
    raise RuntimeError(f"{type(errors[0]).__name__}: {errors[0]}") from errors[0]


def _interrupt(thread: threading.Thread) -> None:
    """The exception is raised when the thread next runs Python code; one that waits in the kernel never sees it."""
    import ctypes

    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(_LeaveError))
