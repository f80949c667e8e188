"""Ending on a signal: what this process started and wrote is gone before it is."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# What a fault in native code ends a process with. Every other signal was sent from outside.
FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP, signal.SIGSYS)
# A program that forwards the terminal's Ctrl-C to its child makes one key press arrive twice.
SAME_PRESS_S = 0.1
CLEAN_LINE = b"\r\033[K\033[?25h"  # without the progress bar, with the cursor that it hides

PROC = Path("/proc")
# Signals belong to the process, and so do these. When the first came; the outermost of the blocks below forgets it.
_ended_at: float | None = None
_depth = 0
_spared: set[int] = set()
Report = TypeVar("Report")


class TerminatedError(SystemExit):
    """SIGTERM or SIGHUP came; code is 128 + its number."""


def in_a_hurry() -> bool:
    """Whether a signal ends this process: then nothing is waited for longer than a moment."""
    return _ended_at is not None


def signal_name(number: int) -> str:
    """Return ``SIGSEGV``, or ``signal 42`` for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Turn the first signal into an exception, so that every ``finally`` is still reached.

    Ctrl-C is KeyboardInterrupt; SIGTERM and SIGHUP are TerminatedError. A signal that the caller ignores (nohup) stays
    ignored. A second SIGTERM is ignored too: timeout(1) sends it to the process and to the process's group, and it
    would cut short what the first began. A second Ctrl-C ends the process at once.
    """

    def leave(number: int, _frame: FrameType | None) -> None:
        if _is_first(number):
            raise _exception(number)

    with _handling(leave):
        yield


@contextmanager
def undisturbed() -> Iterator[None]:
    """Hold the first signal back until what was started is gone. A second Ctrl-C still ends the process at once."""
    held: list[int] = []

    def hold(number: int, _frame: FrameType | None) -> None:
        if _is_first(number):
            held.append(number)

    with _handling(hold):
        yield
    if held:
        raise _exception(held[0])


class Cut:
    """A context manager around work that a signal may end: what was done is reported before the signal is raised.

    worth: whether there is anything to report; otherwise the signal goes on. signal: what ended the work.
    """

    def __init__(self, worth: Callable[[], bool] = lambda: True) -> None:
        self._worth = worth
        self.signal: BaseException | None = None

    def __enter__(self) -> "Cut":  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, KeyboardInterrupt | TerminatedError) and self._worth():
            self.signal = error
        return self.signal is not None

    def report(self, make: Callable[[], Report], keep: Callable[[Any], None]) -> Report:
        """Return the report, which keep gets as soon as it is made. Raises the signal."""
        with undisturbed():
            made = make()
            keep(made)
        if self.signal is not None:
            raise self.signal
        return made


def _exception(number: int) -> BaseException:
    return KeyboardInterrupt() if number == signal.SIGINT else TerminatedError(128 + number)


def _is_first(number: int) -> bool:
    global _ended_at
    now = time.monotonic()
    if _ended_at is None:
        _ended_at = now
        return True
    if number == signal.SIGINT and now - _ended_at > SAME_PRESS_S:
        _end_at_once()
    return False


def _end_at_once() -> None:
    end_children()
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        os.write(sys.stderr.fileno(), CLEAN_LINE)
    os._exit(128 + signal.SIGINT)


@contextmanager
def _handling(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Set the handler for a while. Only the main thread may; elsewhere the main thread decides what ends us."""
    global _depth, _ended_at
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heeded = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in heeded}
    _depth += 1
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
        _depth -= 1
        if _depth == 0:
            _ended_at = None


def spare(pid: int) -> None:
    """Exclude a child from end_children: it runs on when this process ends."""
    _spared.add(pid)


def end_children() -> None:
    """Send SIGKILL to every descendant, and to the whole group of one that leads its own. Nothing is waited for."""
    below: dict[int, list[tuple[int, int]]] = {}
    for pid, parent, group in _processes():
        below.setdefault(parent, []).append((pid, group))
    parents = [os.getpid()]
    while parents:
        for pid, group in below.get(parents.pop(), []):
            if pid in _spared:
                continue
            parents.append(pid)
            with suppress(ProcessLookupError, PermissionError):  # it has ended; or it runs as another user (sudo)
                if group == pid:
                    os.killpg(group, signal.SIGKILL)
                else:
                    os.kill(pid, signal.SIGKILL)


def _processes() -> list[tuple[int, int, int]]:
    found = []
    for name in os.listdir(PROC):  # noqa: PTH208 - thousands of names, of which no path is needed
        if not name.isdigit():
            continue
        try:
            stat = (PROC / name / "stat").read_bytes()
        except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            continue
        # The program's name is in parentheses, and may contain any character.
        fields = stat[stat.rindex(b")") + 1 :].split()
        found.append((int(name), int(fields[1]), int(fields[2])))
    return found
