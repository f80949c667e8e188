"""Progress of a measurement: the planned time always, a progress bar with the pair on a terminal."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

import click

from gpucheck.cli._shared.common import note
from gpucheck.cli._shared.progress import draws
from gpucheck.processes.streams import drawing

if TYPE_CHECKING:
    from gpucheck.measure.bandwidth import Planned
    from gpucheck.measure.values import CopyStep, Flow


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
