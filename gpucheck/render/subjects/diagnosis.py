"""A diagnosis: what was read out of pasted output, and what follows from it."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import PurePath

from gpucheck.model import Finding, Verdict
from gpucheck.model.diagnosis import Diagnosis, ReadRange, UnreadRange, is_output
from gpucheck.printable import folded, of_printable
from gpucheck.render.blocks import Block, Document, Findings, Lines, Properties, Section
from gpucheck.render.findings import TROUBLE, Group, worst_first
from gpucheck.render.words import WORST_FIRST, counts_line, plural

MOST_SPANS, MOST_UNREAD = 6, 5
READABLE = ("nvidia-smi", "lspci", "sudo lspci", "sudo dmesg", "cat /proc/cmdline", "ibstat")
CERTAINTY = ("certain", "likely", None, "possible")


@of_printable
def document(diagnosis: Diagnosis, *, everything: bool = False, published: bool = False) -> Document:
    """The findings about the inputs, then those of each host if there are several.

    everything: also what was read, as what, and each line that was not; else unread lines that look like a tool's.
    published: for others, to whom neither the directory of a file nor a line that was not understood is of use.
    """
    sources = [PurePath(one).name or one if published else one for one in diagnosis.source]
    groups = ordered(diagnosis.findings, diagnosis.gpu_names)
    of_hosts = [ordered(one.findings) for one in diagnosis.machines]
    problems = sum(group.verdict in TROUBLE for group in (*groups, *chain(*of_hosts)))
    counts = counts_line(diagnosis.counts)
    return Document(
        command="diagnose",
        # Output that names no GPU can be about some.
        host=", ".join([*([plural(diagnosis.gpus, "GPU")] if diagnosis.gpus else []), f"from {', '.join(sources)}"]),
        verdict=diagnosis.verdict,
        counts=diagnosis.counts,
        schema=diagnosis.schema,
        lines=[*_read(diagnosis)] if everything else (),
        unproven=diagnosis.unproven if diagnosis.verdict is Verdict.PASS else (),
        summary=f"{plural(problems, 'problem')}: {counts}" if problems else counts,
        findings=Findings(groups) if groups or not diagnosis.machines else None,
        body=[
            Section(f"host-{place}", machine_title(one), [Findings(of_host)])
            for place, (one, of_host) in enumerate(zip(diagnosis.machines, of_hosts, strict=True), 1)
        ],
        foot=[
            *_unread(diagnosis, everything=everything, published=published),
            *(_scope(diagnosis) if everything else ()),
        ],
    )


def ordered(findings: Iterable[Finding], gpus: Iterable[str] = ()) -> list[Group]:
    """Return the groups, the worst first, of one verdict the root causes, then by certainty; about the text last."""

    def place(group: Group) -> tuple[int, bool, bool, int]:
        about_text = group.first.check == "paste"
        return WORST_FIRST.index(group.verdict), about_text, not group.follow, CERTAINTY.index(group.first.confidence)

    return sorted(worst_first(findings, gpus), key=place)


def missing_output(diagnosis: Diagnosis) -> str:
    """Return the command whose output would decide what is not certain; empty if none is known."""
    doubtful = (
        one for one in ordered(diagnosis.findings) if one.verdict in TROUBLE and one.first.confidence != "certain"
    )
    commands = (step.command for group in doubtful for step in group.steps if step.command and not step.changes)
    return next((command for command in commands if command.startswith(READABLE)), "")


def machine_title(one: Diagnosis) -> str:
    """Return ``node07, 8 GPUs: FAIL``, or the lines that it is from where they name no host."""
    places = ", ".join(f"{source} lines {list_spans(spans)}" for (_, source), spans in places_read(one).items())
    return f"{one.machine or places or 'observations'}, {plural(one.gpus, 'GPU')}: {one.verdict.name}"


def _read(diagnosis: Diagnosis) -> Iterator[str]:
    for (kind, source), spans in places_read(diagnosis).items():
        yield f"read as {kind}: {_place(diagnosis, source, spans)}"


def _place(diagnosis: Diagnosis, source: str, spans: Sequence[str]) -> str:
    of = f" of {PurePath(source).name or source}" if len(diagnosis.source) > 1 else ""
    return f"{'lines' if len(spans) > 1 or '-' in spans[0] else 'line'} {list_spans(spans)}{of}"


def places_read(diagnosis: Diagnosis) -> dict[tuple[str, str], list[str]]:
    places: dict[tuple[str, str], list[str]] = {}
    for one in diagnosis.read:
        places.setdefault((one.kind, one.source), []).append(span(one))
    return places


def span(one: ReadRange | UnreadRange) -> str:
    """Return ``3-8``, or ``3`` for one line."""
    return f"{one.first_line}-{one.last_line}" if one.last_line > one.first_line else f"{one.first_line}"


def list_spans(spans: Sequence[str]) -> str:
    more = f" and {len(spans) - MOST_SPANS} more" if len(spans) > MOST_SPANS else ""
    return f"{', '.join(spans[:MOST_SPANS])}{more}"


def _unread(diagnosis: Diagnosis, *, everything: bool, published: bool) -> Iterator[Block]:
    """Lines that were not understood. Without `everything` the first few that look like output of a tool; damaged
    output has a finding of its own.
    """
    wanted = [one for one in diagnosis.unread if everything or (not one.why and is_output(one.text))]
    shown = wanted if everything else wanted[:MOST_UNREAD]
    lines = []
    for one in shown:
        text = folded(": ".join(filter(None, (one.why, "" if published else one.text))))
        lines.append(": ".join(filter(None, (_place(diagnosis, one.source, [span(one)]), text))))
    if len(shown) < len(wanted):
        lines.append(f"and {plural(len(wanted) - len(shown), 'more place')} (-v lists them)")
    if lines:
        yield Lines(lines, "not understood")


def _scope(diagnosis: Diagnosis) -> Iterator[Block]:
    known = [("looked at", "; ".join(diagnosis.looked_at)), ("not proven", "; ".join(diagnosis.unproven))]
    known = [(name, folded(text)) for name, text in known if text and (name == "looked at" or diagnosis.read)]
    if known:
        yield Properties(known)
