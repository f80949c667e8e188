"""Every form of one Report, by its name. What a form needs (XML, Jinja2) is loaded when it is asked for."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from gpucheck.model import Report
from gpucheck.render import report as _report
from gpucheck.render.markdown import Change, unchanged

if TYPE_CHECKING:
    from gpucheck.render.report.kubernetes import Conditions

# Format -> its file in a directory of all.
FILES = {
    "text": "report.txt",
    "json": "report.json",
    "junit": "report.xml",
    "ctrf": "report.ctrf.json",
    "nagios": "report.nagios",
    "slurm": "report.slurm",
    "kubernetes": "report.kubernetes",
    "prometheus": "report.prom",
    "html": "report.html",
    "markdown": "report.md",
}


def to_junit(report: Report) -> str:
    """A case a finding."""
    from gpucheck.render.report.junit import to_junit as write

    return write(report)


def to_ctrf(report: Report) -> str:
    """A test a finding, as CTRF JSON."""
    from gpucheck.render.report.ctrf import to_ctrf as write

    return write(report)


def to_slurm(report: Report) -> str:
    """A reason a finding, for the scripts of a node."""
    from gpucheck.render.report.slurm import to_slurm as write

    return write(report)


def to_nagios(report: Report) -> str:
    """One line."""
    from gpucheck.render.report.nagios import to_nagios as write

    return write(report)


def to_prometheus(report: Report) -> str:
    """For node_exporter's textfile collector."""
    from gpucheck.render.report.prometheus import to_prometheus as write

    return write(report)


WRITERS: dict[str, Callable[[Report], str]] = {
    "json": _report.to_json,
    "junit": to_junit,
    "ctrf": to_ctrf,
    "nagios": to_nagios,
    "slurm": to_slurm,
    "prometheus": to_prometheus,
}


def render(
    report: Report,
    format_: str,
    *,
    mark: str = "",
    verbose: bool = False,
    change: Change = unchanged,
    conditions: "Conditions | None" = None,
) -> str:
    """The report in one format, a name of FILES. mark: the line that a report about a recording starts with.

    The formats for programs have no place for the mark. verbose: passes and all evidence in the text.
    change: redaction of the Markdown, which is made to be published; the other formats are never redacted.
    conditions: of a Kubernetes node.
    """
    if format_ == "text":
        return mark + _report.to_text(report, verbose=verbose)
    if format_ == "html":
        from gpucheck.render.report.html import to_html

        return to_html(report, mark=mark.strip())
    if format_ == "markdown":
        from gpucheck.render.report.markdown import to_markdown

        return to_markdown(report, mark=mark, change=change)
    if format_ == "kubernetes":
        from gpucheck.render.report.kubernetes import to_kubernetes

        return to_kubernetes(report, conditions)
    return WRITERS[format_](report)


def render_all(
    report: Report,
    *,
    mark: str = "",
    verbose: bool = False,
    change: Change = unchanged,
    conditions: "Conditions | None" = None,
) -> dict[str, str]:
    """File name -> content, in every format, without terminal colours."""
    texts = {
        file: render(report, name, mark=mark, verbose=verbose, change=change, conditions=conditions)
        for name, file in FILES.items()
    }
    texts[FILES["text"]] = click.unstyle(texts[FILES["text"]])
    return {file: text if text.endswith("\n") else f"{text}\n" for file, text in texts.items()}
