"""A report in the format that was asked for."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gpucheck.cli._shared.output import write_result
from gpucheck.cli._shared.redaction import of
from gpucheck.cli._shared.width import columns

if TYPE_CHECKING:
    from gpucheck.render.blocks import Document

FORMATS = ("text", "json", "html", "markdown")


def write_report(
    report: object,
    build: "Callable[[], Document]",
    format_: str,
    output: Path | None,
    *,
    verbose: bool = False,
    redact: bool = True,
) -> None:
    """Print or write a report in one of FORMATS. build: makes its document. redact: the Markdown. Raises Problem."""
    if format_ == "json":
        from gpucheck.render.json import to_json

        write_result(to_json(report), output)
        return
    from gpucheck.render.formats import show

    change = of(report) if format_ == "markdown" and redact else None
    write_result(show(build(), format_, verbose=verbose, width=columns(output), change=change), output)
