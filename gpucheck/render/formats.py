"""Every form of a report, by its name."""

from collections.abc import Callable
from importlib import import_module

from gpucheck.model import Report
from gpucheck.render.blocks import Document
from gpucheck.render.json import in_short, to_json

# Of every report; those of a host's report are for programs too.
SHOWN = ("text", "json", "html", "markdown")
MACHINE = ("junit", "nagios", "slurm", "prometheus")
FORMATS = ("text", "json", *MACHINE, "html", "markdown")
Change = Callable[[str], str]


def show(
    document: Document, format_: str, *, verbose: bool = False, width: int | None = None, change: Change | None = None
) -> str:
    """The document as text, HTML or Markdown.

    verbose: passes and all evidence in the text. width: columns of the terminal. change: redaction of Markdown, which
    is made to be published; the other formats are never redacted.
    """
    if format_ == "text":
        from gpucheck.render.write import terminal

        return terminal.write(document, verbose=verbose, width=width)
    if format_ == "html":
        from gpucheck.render.write import html

        return html.write(document)
    from gpucheck.render.write import markdown

    return markdown.write(document, change or markdown.unchanged)


def render(
    report: Report,
    format_: str,
    *,
    recorded: str = "",
    verbose: bool = False,
    change: Change | None = None,
    fail_on: str = "warn",
) -> str:
    """A host's report in one format, a name of FORMATS. recorded: where a replayed report comes from.

    The formats for programs have no place for that. verbose: as for show(); JSON has the evidence of each PASS then.
    change: as for show(). fail_on: what JUnit reports as no success, a key of FAIL_ON.
    """
    if format_ == "json":
        return to_json(report if verbose else in_short(report))
    if format_ in MACHINE:
        # What these need (XML) is loaded when they are called.
        writer = getattr(import_module(f"gpucheck.render.machine.{format_}"), f"to_{format_}")
        text: str = writer(report, fail_on) if format_ == "junit" else writer(report)
        return text
    from gpucheck.render.subjects import report as subject

    document = subject.document(report, whole=format_ in ("html", "markdown"), state=verbose)
    if change is not None:
        document = document._replace(host="")  # a short name is not found in texts
    return show(document._replace(recorded=recorded), format_, verbose=verbose, change=change)
