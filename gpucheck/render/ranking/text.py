"""The explanations that a diagnosis weighed, as text: the ranking, and what the first two predicted."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence

import click
from msgspec.structs import replace

from gpucheck.model import Finding, Verdict, where
from gpucheck.model.diagnosis.ranking import Explanation, Judgement
from gpucheck.model.finding.naming import bus_ids
from gpucheck.printable import of_printable
from gpucheck.render.ranking.predicted import MISFITS, Block, blocks, percent, readings, span
from gpucheck.render.words import plural, table

WIDTH = 80
INDENT = " " * 4
# Of the first so many it is shown what they predicted.
SHOWN = 2
ROWS = 8
CAUSES = 4
FAULTLESS = "no fault"
# Below this an explanation is not worth a line, beyond the first two.
UNLIKELY = 0.01
HEADER = ("", "predicted", "measured", "fits")
COLOUR = {"yes": "green", "nearly": "yellow"}


@of_printable
def to_text(judgement: Judgement, *, everything: bool = False) -> str:
    """Return the section, no line wider than 80 columns; empty if nothing was weighed.

    everything: the predictions of all explanations, and all rows.
    """
    if not everything:
        judgement = replace(judgement, ranking=likely(judgement.ranking))
    if not judgement.ranking:
        return ""
    parts = [list(_ranking(judgement))]
    shown = judgement.ranking if everything else judgement.ranking[:SHOWN]
    parts += (
        list(_details(number, one, everything=everything))
        for number, one in enumerate(shown, 1)
        if one.predictions or one.readings
    )
    if judgement.decided:
        parts.append(list(_wrapped("decided   ", judgement.decided)))
    return "\n\n".join("\n".join(part) for part in parts)


def likely(ranking: Sequence[Explanation]) -> tuple[Explanation, ...]:
    """Those worth reading; none where no number and no reading spoke for or against any of them."""
    if not any(one.predictions or one.readings for one in ranking):
        return ()
    return tuple(one for at, one in enumerate(ranking) if at < SHOWN or one.probability >= UNLIKELY)


def cause_names(explanation: Explanation, gpus: Iterable[str]) -> list[str]:
    """``pcie-width-reduced: GPU 3 (0000:13:00.0)``, one for each cause; the cause alone if it is of the host."""
    index = {name: number for number, name in enumerate(gpus)}
    return [": ".join(filter(None, (cause, _subject(subject, index)))) for cause, subject in explanation.causes]


def _subject(subject: str, index: dict[str, int]) -> str:
    numbers = [index.get(name) for name in bus_ids(subject)]
    gpu, peer = (*numbers, None, None)[:2]
    about = Finding(check="", verdict=Verdict.PASS, subject=subject, gpu_index=gpu, peer_index=peer)
    return where(about)


def _ranking(judgement: Judgement) -> Iterator[str]:
    yield click.style("Explanations, the most probable first", bold=True)
    for number, one in enumerate(judgement.ranking, 1):
        yield from _wrapped(f"{number:>3}  {percent(one.probability):>10}  ", one.words)
        names = cause_names(one, judgement.gpus)
        more = [f"and {len(names) - CAUSES} more"] if len(names) > CAUSES else []
        for name in (*names[:CAUSES], *more) if names else (FAULTLESS,):
            yield from (click.style(line, dim=True) for line in _wrapped(" " * 17, name))


def _details(number: int, one: Explanation, *, everything: bool) -> Iterator[str]:
    yield from (click.style(line, bold=True) for line in _wrapped(f"If explanation {number} holds: ", one.words))
    for block in blocks(one):
        yield from _block(block, everything=everything)
    for line in readings(one):
        yield from _wrapped("  read  ", line)


def _block(block: Block, *, everything: bool) -> Iterator[str]:
    yield from _wrapped("  ", f"{block.title}, {block.unit}")
    shown = block.rows if everything else block.rows[:ROWS]
    cells = [
        (row.where, span(row.low, row.high), span(row.values[0], row.values[-1]), _coloured(row.fit)) for row in shown
    ]
    header, *lines = table(HEADER, cells)
    yield f"{INDENT}{click.style(header, dim=True)}"
    shown_basis = ""
    for line, row in zip(lines, shown, strict=True):
        yield f"{INDENT}{line}"
        if row.basis and row.basis != shown_basis:
            yield from (click.style(text, dim=True) for text in _wrapped(f"{INDENT}  ", row.basis))
        shown_basis = row.basis
    if len(shown) < len(block.rows):
        yield f"{INDENT}and {plural(len(block.rows) - len(shown), 'more row')}: -vv"


def _coloured(fit: str) -> str:
    return click.style(fit, fg=COLOUR.get(fit, "red"), bold=fit in MISFITS)


def _wrapped(start: str, text: str) -> list[str]:
    """Lines of at most 80 columns; those after the first are indented as far as the text of the first."""
    indent = " " * (len(start) if len(start) < WIDTH // 3 else len(INDENT))
    return textwrap.wrap(text, WIDTH, initial_indent=start, subsequent_indent=indent) or [start.rstrip()]
