"""A diagnosis as text (worst first, each with why and what to do) and as JSON."""

import click
import msgspec

from gpucheck.model.diagnosis import Diagnosis
from gpucheck.printable import of_printable
from gpucheck.render.findings import blocks
from gpucheck.render.words import counts_line, plural, verdict_word


def to_json(diagnosis: Diagnosis) -> str:
    """The outside contract ``gpucheck.diagnosis/1``, indented."""
    return msgspec.json.format(msgspec.json.encode(diagnosis), indent=2).decode()


@of_printable
def to_text(diagnosis: Diagnosis) -> str:
    """The answer for a terminal."""
    source = f"{plural(diagnosis.gpus, 'GPU')}, from {', '.join(diagnosis.source)}"
    lines = [f"{click.style('gpucheck diagnose', bold=True)}  {source}"]
    lines += [
        "",
        *blocks(diagnosis.findings, passes=True),
        "",
        f"{verdict_word(diagnosis.verdict, 0)}  {counts_line(diagnosis.counts)}",
    ]
    return "\n".join(lines) + "\n"
