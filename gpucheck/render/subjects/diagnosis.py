"""A diagnosis: what was read out of pasted output, and what follows from it."""

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from gpucheck.model.diagnosis import Diagnosis, ReadRange, UnreadRange
from gpucheck.printable import folded, of_printable
from gpucheck.render.blocks import Block, Document, Findings, Lines, Properties, Section
from gpucheck.render.findings import worst_first
from gpucheck.render.words import plural

MOST_SPANS, MOST_UNREAD = 6, 5


@of_printable
def document(diagnosis: Diagnosis, *, everything: bool = False, published: bool = False) -> Document:
    """What was read, the findings about the inputs, then those of each host if there are several.

    everything: all lines that were not understood. published: for others, to whom neither the directory of a file nor
    a line that was not understood is of use.
    """
    sources = [PurePath(one).name or one if published else one for one in diagnosis.source]
    return Document(
        command="diagnose",
        # Output that names no GPU can be about some.
        host=", ".join([*([plural(diagnosis.gpus, "GPU")] if diagnosis.gpus else []), f"from {', '.join(sources)}"]),
        verdict=diagnosis.verdict,
        counts=diagnosis.counts,
        schema=diagnosis.schema,
        lines=[*_read(diagnosis)],
        findings=Findings(worst_first(diagnosis.findings, diagnosis.gpu_names))
        if diagnosis.findings or not diagnosis.machines
        else None,
        body=[
            Section(f"host-{place}", machine_title(one), [Findings(worst_first(one.findings))])
            for place, one in enumerate(diagnosis.machines, 1)
        ],
        foot=[*_unread(diagnosis, everything=everything, published=published), *_scope(diagnosis)],
    )


def machine_title(one: Diagnosis) -> str:
    """Return ``node07, 8 GPUs: FAIL``, or the lines that it is from where they name no host."""
    places = ", ".join(f"{source} lines {list_spans(spans)}" for (_, source), spans in places_read(one).items())
    return f"{one.machine or places or 'observations'}, {plural(one.gpus, 'GPU')}: {one.verdict.name}"


def _read(diagnosis: Diagnosis) -> Iterator[str]:
    """What was understood: kinds with their lines."""
    for (kind, source), spans in places_read(diagnosis).items():
        of = f" of {PurePath(source).name or source}" if len(diagnosis.source) > 1 else ""
        yield f"read as {kind}: {'lines' if len(spans) > 1 or '-' in spans[0] else 'line'} {list_spans(spans)}{of}"


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


def _unread(diagnosis: Diagnosis, *, everything: bool, published: bool) -> Iterator[Block]:
    """Lines that were not understood; without `everything` the first few."""
    if not diagnosis.unread:
        return
    shown = diagnosis.unread if everything else diagnosis.unread[:MOST_UNREAD]
    lines = []
    for one in shown:
        word = "lines" if one.last_line > one.first_line else "line"
        of = f" of {PurePath(one.source).name or one.source}" if len(diagnosis.source) > 1 else ""
        text = ": ".join(filter(None, (one.why, "" if published else one.text)))
        lines.append(f"{word} {span(one)}{of}{': ' if text else ''}{folded(text)}")
    if len(shown) < len(diagnosis.unread):
        lines.append(f"and {plural(len(diagnosis.unread) - len(shown), 'more place')} (-v lists them)")
    yield Lines(lines, "not understood")


def _scope(diagnosis: Diagnosis) -> Iterator[Block]:
    """What was checked, and what the inputs do not cover."""
    known = [("looked at", "; ".join(diagnosis.looked_at)), ("not proven", "; ".join(diagnosis.unproven))]
    known = [(name, folded(text)) for name, text in known if text and (name == "looked at" or diagnosis.read)]
    if known:
        yield Properties(known)
