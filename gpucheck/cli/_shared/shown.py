"""A report in the format that was asked for."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpucheck.cli._shared.common import replaces, write_result
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

    change = redaction_of(report) if format_ == "markdown" and redact else None
    write_result(show(build(), format_, verbose=verbose, width=columns(output), change=change), output)


ACCOUNTS = ("USER", "LOGNAME", "SUDO_USER")
NO_REDACT = click.option(
    "--no-redact",
    is_flag=True,
    help="Do not redact names, serial numbers, UUIDs and addresses in Markdown.",
)


def redaction_of(report: Any) -> Callable[[str], str]:
    """Return the redaction of texts about a report, which may be of several hosts."""
    import msgspec

    from gpucheck.host.recording.redaction import Redaction

    parts = [report, *getattr(report, "machines", ()), *getattr(report, "hosts", ())]
    hosts = filter(None, (getattr(one, name, None) for one in parts for name in ("host", "machine")))
    users = filter(None, (os.environ.get(name) for name in ACCOUNTS))
    texts = dict.fromkeys(_texts(msgspec.to_builtins(report)))
    return Redaction(hosts, texts, users=users).text


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
