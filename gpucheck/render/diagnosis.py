"""A diagnosis as text (worst first, each with why and what to do), as JSON, as a page and as Markdown."""

import click
import msgspec

from gpucheck.model.diagnosis import Diagnosis
from gpucheck.printable import of_printable
from gpucheck.render import ranking
from gpucheck.render._markdown import Change, unchanged
from gpucheck.render.findings import blocks
from gpucheck.render.words import counts_line, plural, verdict_word


def to_json(diagnosis: Diagnosis) -> str:
    """The outside contract ``gpucheck.diagnosis/1``, indented."""
    return msgspec.json.format(msgspec.json.encode(diagnosis), indent=2).decode()


def to_html(diagnosis: Diagnosis) -> str:
    """Return the page; Jinja2 is loaded here."""
    from gpucheck.render.diagnosis_html import to_html as write

    return write(diagnosis)


def to_markdown(diagnosis: Diagnosis, *, change: Change = unchanged) -> str:
    """Return the answer for an issue or a wiki. change: redaction."""
    from gpucheck.render.diagnosis_markdown import to_markdown as write

    return write(diagnosis, change=change)


@of_printable
def to_text(diagnosis: Diagnosis, *, verbose: int = 0) -> str:
    """The answer for a terminal.

    verbose: 1 adds all evidence, the ranking of the explanations and what the first two predicted; 2 all predictions.
    """
    source = f"{plural(diagnosis.gpus, 'GPU')}, from {', '.join(diagnosis.source)}"
    lines = [f"{click.style('gpucheck diagnose', bold=True)}  {source}"]
    weighed = ranking.to_text(diagnosis.judgement(), everything=verbose > 1) if verbose else ""
    lines += [
        "",
        *blocks(diagnosis.findings, verbose=verbose > 0, passes=True),
        "",
        *((weighed, "") if weighed else ()),
        f"{verdict_word(diagnosis.verdict, 0)}  {counts_line(diagnosis.counts)}",
    ]
    return "\n".join(lines) + "\n"
