"""A report in the format that was asked for."""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpucheck.cli._shared.common import measured_host, replaces, write_result
from gpucheck.cli._shared.progress import Progress, progress_end
from gpucheck.cli._shared.width import columns
from gpucheck.model.finding import exit_status
from gpucheck.printable import one_line
from gpucheck.processes.atomic import PRIVATE, SHARED
from gpucheck.processes.signals import ended_by_signals, undisturbed

if TYPE_CHECKING:
    from gpucheck.model.answer import Answer
    from gpucheck.model.facts import Source
    from gpucheck.render.blocks import Document
    from gpucheck.render.formats import Change


FORMATS = ("text", "json", "html", "markdown")
# Of metrics, which node_exporter reads, another user.
MODES = {"prometheus": SHARED}
CUT = "interrupted"  # how the codes of findings end that a signal ended the run
Made = TypeVar("Made")
Report = TypeVar("Report", bound="Answer")


def measured(measure: Callable[[Callable[[Made], None]], Made], write: Callable[[Made], None]) -> Made:
    """Measure, write the report and return it. A signal ends the measuring, and nothing else.

    measure: hands each report that it makes, of a part too, to its argument: the last one is written.
    """
    kept: list[Made] = []
    with undisturbed():
        try:
            with ended_by_signals():
                kept.append(measure(kept.append))
        finally:
            if kept:
                write(kept[-1])
    return kept[-1]


def reported(
    measure: "Callable[[Source, Progress, Callable[[Report], None]], Report]",
    build: "Callable[[Report], Document]",
    progress: Progress,
    *,
    fail_on: str,
    every_gpu: bool = False,
    **options: Any,
) -> int:
    """Measure this host, write the report and return the exit status.

    measure: as for measured(), of a host and with the progress. every_gpu: it was to measure all GPUs of the host.
    options: of write_report().
    """

    from gpucheck.run.absent import with_absent

    def of_host(keep: Callable[[Report], None]) -> Report:
        try:
            with measured_host() as host:
                made = measure(host, progress, keep)
                return with_absent(made, host) if every_gpu else made
        finally:
            progress_end()

    report: Any = measured(of_host, lambda one: write_report(one, lambda: build(one), **options))
    return exit_status((finding.verdict for finding in report.findings), fail_on)


def write_report(
    report: Any,
    build: "Callable[[], Document]",
    format_: str,
    output: Path | None,
    *,
    verbose: bool = False,
    redact: bool = True,
) -> None:
    """Print or write a report in one of FORMATS. build: makes its document. redact: the Markdown. Raises Problem."""

    def render(form: str, change: "Change | None") -> str:
        if form == "json":
            from gpucheck.render.formats import to_json

            return to_json(report)
        from gpucheck.render.formats import show

        return show(build(), form, verbose=verbose, width=columns(output), change=change)

    write_rendered(report, render, format_, output, redact=redact)


def write_rendered(
    report: Any,
    render: "Callable[[str, Change | None], str | Iterable[bytes]]",
    format_: str,
    output: Path | None,
    *,
    redact: bool = True,
) -> None:
    """Print or write a report. render: makes its text of a format and a redaction. redact: the Markdown.

    A part, of a run that a signal ended, does not replace a file that holds a whole report, which may be a baseline or
    what a monitor reads: it goes to stderr as text. Raises Problem.
    """
    cut = any((finding.code or "").endswith(CUT) for finding in getattr(report, "findings", ()))
    if getattr(report, "interrupted", cut) and output is not None and replaces(output):
        kept = one_line(f"{output}: not written, for the run was interrupted")
        click.echo(f"{render('text', None)}{kept}", err=True)
        return
    change = redaction_of(report) if format_ == "markdown" and redact else None
    write_result(render(format_, change), output, mode=MODES.get(format_, PRIVATE))


ACCOUNTS = ("USER", "LOGNAME", "SUDO_USER")
SERIALS = ("serial", "chassis_serial")
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
    serials = (text for text, name in texts if name in SERIALS)
    return Redaction(hosts, (text for text, _ in texts), users=users, serials=serials).text


def _texts(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield each text, and the key that it has."""
    if isinstance(value, str):
        yield value, name
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(item, key)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item, name)
