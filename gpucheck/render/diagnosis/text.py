"""A diagnosis as text: worst findings first, each with its reason and its fix."""

from collections.abc import Iterator, Sequence

import click

from gpucheck.model.diagnosis import Diagnosis, ReadRange, UnreadRange
from gpucheck.printable import folded, of_printable
from gpucheck.render.findings.text import blocks
from gpucheck.render.words import counts_line, plural, verdict_word

MOST_SPANS, MOST_UNREAD = 6, 5


@of_printable
def to_text(diagnosis: Diagnosis, *, verbose: int = 0) -> str:
    """The answer for a terminal. verbose: 1 adds all evidence."""
    source = f"{plural(diagnosis.gpus, 'GPU')}, from {', '.join(diagnosis.source)}"
    lines = [f"{click.style('gpucheck diagnose', bold=True)}  {source}"]
    lines += _read(diagnosis)
    lines += [
        "",
        *_findings(diagnosis, verbose=verbose > 0),
        "",
        *_unread(diagnosis, everything=verbose > 0),
        *_scope(diagnosis),
        f"{verdict_word(diagnosis.verdict, 0)}  {counts_line(diagnosis.counts)}",
    ]
    return "\n".join(lines) + "\n"


def _findings(diagnosis: Diagnosis, *, verbose: bool) -> Iterator[str]:
    """Findings about the inputs, then those of each host if there are several."""
    yield from blocks(diagnosis.findings, verbose=verbose, passes=True)
    for one in diagnosis.machines:
        yield from ("", click.style(machine_title(one), bold=True))
        yield from blocks(one.findings, verbose=verbose, passes=True)


def machine_title(one: Diagnosis) -> str:
    """Return ``node07, 8 GPUs: FAIL``, or the lines that it is from where they name no host."""
    places = ", ".join(f"{source} lines {list_spans(spans)}" for (_, source), spans in places_read(one).items())
    return f"{one.machine or places or 'observations'}, {plural(one.gpus, 'GPU')}: {one.verdict.name}"


def _read(diagnosis: Diagnosis) -> list[str]:
    """What was understood: kinds with their lines."""
    several = len(diagnosis.source) > 1
    lines = []
    for (kind, source), spans in places_read(diagnosis).items():
        of = f" of {source}" if several else ""
        word = "lines" if len(spans) > 1 or "-" in spans[0] else "line"
        lines.append(f"  read as {kind}: {word} {list_spans(spans)}{of}")
    return lines


def places_read(diagnosis: Diagnosis) -> dict[tuple[str, str], list[str]]:
    """Return the lines that were understood, by kind and input."""
    places: dict[tuple[str, str], list[str]] = {}
    for one in diagnosis.read:
        places.setdefault((one.kind, one.source), []).append(span(one))
    return places


def span(one: ReadRange | UnreadRange) -> str:
    """Return ``3-8``, or ``3`` for one line."""
    return f"{one.first_line}-{one.last_line}" if one.last_line > one.first_line else f"{one.first_line}"


def list_spans(spans: Sequence[str]) -> str:
    """Join the first of them and count the others."""
    more = f" and {len(spans) - MOST_SPANS} more" if len(spans) > MOST_SPANS else ""
    return f"{', '.join(spans[:MOST_SPANS])}{more}"


def _unread(diagnosis: Diagnosis, *, everything: bool) -> list[str]:
    """Lines that were not understood; without `everything` the first few."""
    if not diagnosis.unread:
        return []
    several = len(diagnosis.source) > 1
    shown = diagnosis.unread if everything else diagnosis.unread[:MOST_UNREAD]
    lines = ["not understood:"]
    for one in shown:
        word = "lines" if one.last_line > one.first_line else "line"
        of = f" of {one.source}" if several else ""
        why = f"{one.why}: " if one.why else ""
        lines.append(f"  {word} {span(one)}{of}: {folded(why + one.text)}")
    if len(shown) < len(diagnosis.unread):
        lines.append(f"  and {plural(len(diagnosis.unread) - len(shown), 'more place')} (-v lists them)")
    return [*lines, ""]


def _scope(diagnosis: Diagnosis) -> list[str]:
    """Return what was checked, and what the inputs do not cover."""
    lines = [f"looked at   {folded('; '.join(diagnosis.looked_at))}"] if diagnosis.looked_at else []
    lines += [f"not proven  {'; '.join(diagnosis.unproven)}"] if diagnosis.unproven and diagnosis.read else []
    return [*lines, ""] if lines else []
