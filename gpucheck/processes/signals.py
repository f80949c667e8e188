"""Told to end: what this process started and wrote goes before it does."""

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

TOLD_TO_END = (signal.SIGTERM, signal.SIGHUP)
# What a fault in native code ends a process with. Every other signal was sent from outside.
FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP, signal.SIGSYS)


def signal_name(number: int) -> str:
    """Return ``SIGSEGV``, or ``signal 42`` for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into SystemExit of 128 + its number, so that every ``finally`` is still reached.

    One that the caller ignores (nohup) stays ignored. After the first the others wait: timeout(1) sends its signal
    to the process and again to the process's group, and the second would cut short what the first began.
    """

    def leave(number: int, _frame: FrameType | None) -> None:
        for other in TOLD_TO_END:
            signal.signal(other, signal.SIG_IGN)
        raise SystemExit(128 + number)

    heeded = [number for number in TOLD_TO_END if signal.getsignal(number) is not signal.SIG_IGN]
    with _handling(dict.fromkeys(heeded, leave)):
        yield


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let a second Ctrl-C wait until what was started is gone."""
    with _handling(dict.fromkeys((signal.SIGINT, *TOLD_TO_END), signal.SIG_IGN)):
        yield


@contextmanager
def _handling(handlers: Mapping[signal.Signals, object]) -> Iterator[None]:
    """Set signal handlers for a while. Only the main thread may; elsewhere the main thread decides what ends us."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}  # type: ignore[arg-type]
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
