"""A report in the format that was asked for."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpucheck.cli._shared.output import replaces, write_result
from gpucheck.cli._shared.redaction import of
from gpucheck.cli._shared.width import columns
from gpucheck.printable import one_line

if TYPE_CHECKING:
    from gpucheck.render.blocks import Document

FORMATS = ("text", "json", "html", "markdown")


def print_part(text: str, output: Path) -> None:
    """Print the report of an interrupted run to stderr: the file keeps its last whole report."""
    kept = one_line(f"{output}: not written, for the run was interrupted")
    click.echo(f"{text}{kept}", err=True)


def write_report(
    report: object,
    build: "Callable[[], Document]",
    format_: str,
    output: Path | None,
    *,
    verbose: bool = False,
    redact: bool = True,
    interrupted: bool = False,
) -> None:
    """Print or write a report in one of FORMATS. build: makes its document. redact: the Markdown. Raises Problem.

    interrupted: it is a part, which does not replace a file that holds a whole report; it goes to stderr as text then.
    """
    if interrupted and output is not None and replaces(output):
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
