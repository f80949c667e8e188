"""A report in the format that was asked for."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpucheck.cli._shared.output import replaces, write_result
from gpucheck.cli._shared.redaction import of
from gpucheck.cli._shared.width import columns
from gpucheck.printable import one_line
from gpucheck.processes.signals import ended_by_signals, undisturbed

if TYPE_CHECKING:
    from gpucheck.render.blocks import Document

FORMATS = ("text", "json", "html", "markdown")
CUT = "interrupted"  # how the codes of findings end that a signal ended the run
Report = TypeVar("Report")


def measured(measure: Callable[[Callable[[Report], None]], Report], write: Callable[[Report], None]) -> Report:
    """Measure, write the report and return it. A signal ends the measuring, and nothing else.

    measure: hands each report that it makes, of a part too, to its argument: the last one is written.
    """
    kept: list[Report] = []
    with undisturbed():
        try:
            with ended_by_signals():
                kept.append(measure(kept.append))
        finally:
            if kept:
                write(kept[-1])
    return kept[-1]


def print_part(text: str, output: Path) -> None:
    """Print the report of an interrupted run to stderr: the file keeps its last whole report."""
    kept = one_line(f"{output}: not written, for the run was interrupted")
    click.echo(f"{text}{kept}", err=True)


def write_report(
    report: Any,
    build: "Callable[[], Document]",
    format_: str,
    output: Path | None,
    *,
    verbose: bool = False,
    redact: bool = True,
) -> None:
    """Print or write a report in one of FORMATS. build: makes its document. redact: the Markdown. Raises Problem.

    A part, of a run that a signal ended, does not replace a file that holds a whole report: it goes to stderr as text.
    """
    is_part = any((finding.code or "").endswith(CUT) for finding in getattr(report, "findings", ()))
    if is_part and output is not None and replaces(output):
        from gpucheck.render.formats import show

        print_part(show(build(), "text", verbose=verbose), output)
        return
    if format_ == "json":
        from gpucheck.render.json import to_json

        write_result(to_json(report), output)
        return
    from gpucheck.render.formats import show

    change = of(report) if format_ == "markdown" and redact else None
    write_result(show(build(), format_, verbose=verbose, width=columns(output), change=change), output)
