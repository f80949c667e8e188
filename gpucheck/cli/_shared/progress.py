"""Progress of a run of several steps, on a terminal only: which step of how many, and how long it takes."""

import os
import sys
import threading
import time

from gpucheck.printable import printable
from gpucheck.processes.streams import drawing

# A shorter step needs no time.
SHOWN_FROM_S = 2.0
EVERY_S = 1.0


class Progress:
    """Called with the name of each step as it starts. total: how many there will be."""

    def __init__(self, total: int) -> None:
        self._total, self._number, self._name, self._began = total, 0, "", 0.0
        self._lock, self._ended = threading.Lock(), threading.Event()

    def __call__(self, name: str) -> None:
        """Draw the next step."""
        global _running
        if not _draws():
            return
        with self._lock:
            self._number, self._name, self._began = self._number + 1, name, time.monotonic()
            _replace_line(self._line())
        if _running is not self:
            _running = self
            threading.Thread(target=self._tick, name="progress", daemon=True).start()

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
        return f"gpucheck: step {self._number} of {self._total}: {self._name}{spent} ..."


_running: Progress | None = None


def progress_end() -> None:
    """Take the progress line away."""
    global _running
    if _running is not None:
        _running.end()
        _running = None
    if _draws():
        _replace_line("")


def _draws() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _replace_line(text: str) -> None:
    """Not click.echo: with NO_COLOR it would remove what clears the line."""
    drawing(sys.stderr).write(f"\r\033[K{printable(text)}")
    sys.stderr.flush()
