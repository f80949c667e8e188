"""Progress of a run of several steps, on a terminal only: which step of how many, and how long it takes."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

import click

from gpucheck.cli._shared.common import note
from gpucheck.printable import printable
from gpucheck.processes.streams import drawing

if TYPE_CHECKING:
    from gpucheck.measure.bandwidth import Planned
    from gpucheck.measure.values import CopyStep, Flow


# A shorter step needs no time.
SHOWN_FROM_S = 2.0
EVERY_S = 1.0
# Of many short items, so many seconds apart.
DRAWN_S = 0.1


class Progress:
    """Called with the name of each step as it starts. total: how many there will be.

    items: what they are called where they are many and short, such as the reports of a fleet: not each is drawn, and
    the time is that of all.
    """

    def __init__(self, total: int, items: str | None = None) -> None:
        self._total, self._number, self._name, self._began = total, 0, "", 0.0
        self._items, self._drawn = items, -DRAWN_S
        self._lock, self._ended = threading.Lock(), threading.Event()

    def __call__(self, name: str) -> None:
        """Draw the next step."""
        global _running
        if not draws(sys.stderr):
            return
        now = time.monotonic()
        with self._lock:
            first = self._number == 0
            self._number, self._name = min(self._number + 1, self._total), name
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
        return f"gpucheck: {self._items or 'step'} {self._number} of {self._total}: {self._name}{spent} ..."


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
    drawing(sys.stderr).write(f"\r\033[K{printable(text)}")
    sys.stderr.flush()


Shown = Callable[[str, int, int], None]


@contextmanager
def bar(stream: TextIO) -> Iterator[Shown]:
    """Yield what shows a step: text, number, and number of all. Drawn on a terminal only, gone at the end."""
    if not draws(stream):
        yield lambda _text, _number, _count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
    context = click.get_current_context(silent=True)
    plain = True if context is not None and context.color is False else None
    console = Console(file=drawing(stream), no_color=plain)
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as drawn:
        task = drawn.add_task("", total=None)
        yield lambda text, number, count: drawn.update(task, description=text, completed=number, total=count)


class Display:
    """A context manager around the run. The bar is drawn on a terminal only, and is gone when the run is."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self._stack = ExitStack()
        self._shown: Shown = lambda _text, _number, _count: None
        self._count = 0

    def __enter__(self) -> "Display":  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Take the bar away before a report is printed."""
        self._stack.close()

    def planned(self, planned: "Planned") -> None:
        """Print the planned time before the start."""
        rounds = f", one direction in {planned.rounds} rounds" if planned.rounds else ""
        note(
            f"gpucheck: {planned.devices} devices, {planned.steps} steps{rounds}: about {planned.seconds:.1f} s of "
            f"device time (engine {planned.engine})"
        )
        self._count = planned.steps
        self._shown = self._stack.enter_context(bar(self.stream))

    def step(self, step: "CopyStep", number: int) -> None:
        self._shown(f"{step.purpose}: {_pairs(step.flows)}", number, self._count)


def _pairs(flows: "tuple[Flow, ...]") -> str:
    def end(position: int) -> str:
        return "host" if position < 0 else str(position)

    shown = ", ".join(f"{end(flow.src)}>{end(flow.dst)}" for flow in flows[:4])
    return shown + (f" and {len(flows) - 4} more" if len(flows) > 4 else "")
