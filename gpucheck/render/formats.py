"""Every form of a report, by its name; and JSON, the published contracts, with a line for each finding or GPU."""

from collections.abc import Callable
from importlib import import_module

import msgspec
from msgspec.structs import replace

from gpucheck.model import Report, Verdict
from gpucheck.printable import for_terminal
from gpucheck.render.blocks import Document

# Of formats for programs the module, which may need much (XML), and is loaded when it is asked for.
MACHINE = {"junit": "junit", "nagios": "lines", "slurm": "lines", "prometheus": "prometheus"}
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

    return markdown.write(document, change)


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
        # Without -v not the evidence of each PASS, which a recording of the host gives again.
        found = (replace(one, evidence=()) if one.verdict is Verdict.PASS else one for one in report.findings)
        return to_json(report if verbose else replace(report, findings=tuple(found)))
    if format_ in MACHINE:
        writer = getattr(import_module(f"gpucheck.render.machine.{MACHINE[format_]}"), f"to_{format_}")
        text: str = writer(report, fail_on) if format_ == "junit" else writer(report)
        return text
    from gpucheck.render.subjects import report as subject

    document = subject.document(report, whole=format_ in ("html", "markdown"), state=verbose)
    if change is not None:
        document = document._replace(host="")  # a short name is not found in texts
    return show(document._replace(recorded=recorded), format_, verbose=verbose, change=change)


DEPTH = 2
# Of a finding, where they are null or empty: most findings are about one GPU, pass, and are no part of another fault.
LEFT_OUT = ("peer_index", "peer_uuid", "because_of", "because_of_subject", "values", "steps")
NOTHING: tuple[object, ...] = (None, {}, [], ())


def to_json(report: object) -> str:
    """Return a struct or a mapping as JSON, without redaction. Strings are as they were once it is read.

    The entries of the two outermost levels have a line each: grep finds a finding, and a line has all of it.
    """
    return _laid_out(msgspec.to_builtins(report), DEPTH, "")


def _laid_out(value: object, depth: int, indent: str) -> str:
    inner = indent + "  "
    if depth and isinstance(value, dict) and value:
        entries = [f"{line(key)}: {_laid_out(entry, depth - 1, inner)}" for key, entry in value.items()]
        return "{\n" + ",\n".join(inner + entry for entry in entries) + f"\n{indent}}}"
    if depth and isinstance(value, list | tuple) and value and isinstance(value[0], dict | list | tuple):
        return "[\n" + ",\n".join(inner + line(entry) for entry in value) + f"\n{indent}]"
    return line(value)


def line(value: object) -> str:
    """Return a value as JSON in one line.

    What a terminal or an editor would act on, or not show, is escaped: a file may be printed with other programs.
    """
    if isinstance(value, dict) and "verdict" in value:
        value = {key: entry for key, entry in value.items() if key not in LEFT_OUT or entry not in NOTHING}
    text = msgspec.json.encode(value).decode()
    # Of ASCII, JSON leaves nothing but this one unescaped.
    return text if text.isascii() and "\x7f" not in text else for_terminal(text)
