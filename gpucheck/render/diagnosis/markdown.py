"""A diagnosis as Markdown: for an issue or a wiki."""

from collections.abc import Iterator
from pathlib import PurePath

from gpucheck.model import Verdict
from gpucheck.model.diagnosis import Diagnosis
from gpucheck.printable import of_printable
from gpucheck.render.diagnosis.text import MOST_SPANS, list_spans, machine_title, places_read, span
from gpucheck.render.findings.groups import Group
from gpucheck.render.findings.text import TROUBLE, deciding, how_sure, others, worst_first
from gpucheck.render.markdown import Change, Markdown, table, unchanged
from gpucheck.render.words import counts_line, plural


def to_markdown(diagnosis: Diagnosis, *, change: Change = unchanged) -> str:
    """Return the page. change: redaction of every text that may name a host or a user."""
    return _page(diagnosis, Markdown(change))


@of_printable
def _page(diagnosis: Diagnosis, page: Markdown) -> str:
    names = map(_name, diagnosis.source)
    source = f"{plural(diagnosis.gpus, 'GPU')}, from {', '.join(names)}"
    lines = [f"# {diagnosis.verdict.name}: gpucheck diagnose", ""]
    lines += [f"{page.text(source)}: {counts_line(diagnosis.counts)}"]
    lines += _findings(diagnosis, page)
    for host in diagnosis.machines:
        lines += ["", f"## {page.text(machine_title(host))}", *_findings(host, page)]
    lines += _read(diagnosis, page)
    return "\n".join(lines) + "\n"


def _findings(diagnosis: Diagnosis, page: Markdown) -> Iterator[str]:
    for verdict, groups, _ in worst_first(diagnosis.findings, diagnosis.gpu_names):
        for group in groups:
            yield from ("", *_finding(verdict, group, page))


def _finding(verdict: Verdict, group: Group, page: Markdown) -> Iterator[str]:
    yield f"**{verdict.name}** {page.text(', '.join(group.checks))}: {page.text(group.headline)}"
    cause, basis = group.first.cause, group.why
    if verdict not in TROUBLE and not cause:
        return
    yield ""
    if basis:
        yield f"- why: {page.text(basis)}"
    for step in group.steps:
        yield f"- fix: {page.code(step.command, in_table=False) if step.command else page.text(step.text or '')}"
    if cause:
        yield f"- cause: {page.text(cause)} ({how_sure(group)})"
    for one in others(group):
        yield f"- or: {page.text(one.cause)}: {page.text(one.would_show)}"
    command = deciding(group, rerun=False)
    if command:
        yield f"- confirm: {page.code(command, in_table=False)}"


def _read(diagnosis: Diagnosis, page: Markdown) -> list[str]:
    """What was read out of the inputs, as what, and what was not; nothing for a diagnosis that lists neither."""
    places = places_read(diagnosis).items()
    rows = [[page.text(kind), list_spans(spans), page.text(_name(source))] for (kind, source), spans in places]
    unread = diagnosis.unread
    rows += [
        [f"not understood{f': {page.text(one.why)}' if one.why else ''}", span(one), page.text(_name(one.source))]
        for one in unread[:MOST_SPANS]
    ]
    if len(unread) > MOST_SPANS:
        rows.append([f"not understood: {plural(len(unread) - MOST_SPANS, 'place')} more", "", ""])
    return ["", "## What was read", "", *table(("as", "lines", "of"), rows)] if rows else []


def _name(source: str) -> str:
    """The name of a file without its directory, which is of no use to others."""
    return PurePath(source).name or source
