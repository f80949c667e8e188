"""Progress of a run of several steps, on a terminal only: which step of how many, and how long it takes."""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from gpucheck.cli._shared.common import note
from gpucheck.printable import printable
from gpucheck.processes.streams import draw

# A shorter step needs no time.
SHOWN_FROM_S = 2.0
EVERY_S = 1.0
# Of many short items, so many seconds apart.
DRAWN_S = 0.1


class Progress:
    """Called with the name of each step as it starts. total: how many there will be, 0 if that is not known.

    items: what they are called where they are many and short, such as the reports of a fleet: not each is drawn, and
    the time is that of all.
    """

    def __init__(self, total: int, items: str | None = None) -> None:
        self._total, self._number, self._name, self._began = total, 0, "", 0.0
        self._items, self._drawn = items, -DRAWN_S
        self._lock, self._ended = threading.Lock(), threading.Event()

    def __call__(self, name: str, number: int | None = None, total: int | None = None) -> None:
        """Draw the next step. number, total: how many have ended, and of how many, if that is not counted here."""
        global _running
        if not draws(sys.stderr):
            return
        now = time.monotonic()
        with self._lock:
            first = self._number == 0
            self._total = self._total if total is None else total
            self._number, self._name = min((self._number if number is None else number) + 1, self._total), name
            if first or self._items is None:
                self._began = now
            if self._items is None or now - self._drawn >= DRAWN_S:
                self._drawn = now
                _replace_line(self._line())
        if _running is not self:
            if _running is not None:
                _running.end()
            _running = self
            threading.Thread(target=self._tick, name="progress", daemon=True).start()

    def note(self, text: str) -> None:
        """Print one line to stderr in the place of the progress line, which is drawn again below it."""
        with self._lock:
            if draws(sys.stderr):
                _replace_line("")
            note(text)

    def update(self, name: str) -> None:
        """Draw more about the present step."""
        with self._lock:
            self._name = name
            if draws(sys.stderr) and not self._ended.is_set() and time.monotonic() - self._drawn >= DRAWN_S:
                self._drawn = time.monotonic()
                _replace_line(self._line())

    def end(self) -> None:
        """Take the line away; nothing is drawn after this."""
        with self._lock:
            self._ended.set()

    def _tick(self) -> None:
        while not self._ended.wait(EVERY_S):
            with self._lock:
                if not self._ended.is_set() and time.monotonic() - self._began >= SHOWN_FROM_S:
                    _replace_line(self._line())

    def _line(self) -> str:
        seconds = time.monotonic() - self._began
        spent = f", {seconds:.0f} s" if seconds >= SHOWN_FROM_S else ""
        count = f"{self._items or 'step'} {self._number} of {self._total}: " if self._total else ""
        return f"gpucheck: {count}{self._name}{spent} ..."


_running: Progress | None = None


@contextmanager
def steps(total: int, items: str | None = None) -> Iterator[Progress]:
    """Yield a Progress, whose line is removed at the end."""
    try:
        yield Progress(total, items)
    finally:
        progress_end()


def progress_end() -> None:
    """Take the progress line away."""
    global _running
    if _running is not None:
        _running.end()
        _running = None
    if draws(sys.stderr):
        _replace_line("")


def draws(stream: TextIO) -> bool:
    """Return whether the stream is a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def _replace_line(text: str) -> None:
    """Not click.echo: with NO_COLOR it would remove what clears the line."""
    draw(sys.stderr, f"\r\033[K{printable(text)}")
