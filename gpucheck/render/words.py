"""Words, colours and columns shared by the text views."""

import unicodedata
from collections.abc import Iterable, Sequence

import click

from gpucheck.model import Finding, Verdict

COLOUR = {
    Verdict.PASS: "green",
    Verdict.WARN: "yellow",
    Verdict.FAIL: "red",
    Verdict.UNKNOWN: "magenta",
    Verdict.SKIP: "bright_black",
}
WORST_FIRST = (Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN, Verdict.SKIP, Verdict.PASS)


def printable(text: str) -> str:
    """The text without control characters: a host's strings must not drive the reader's terminal."""
    return "".join(c if c in "\n\t" or unicodedata.category(c)[0] != "C" else "�" for c in text)


def verdict_word(verdict: Verdict, width: int = 7) -> str:
    """The verdict in capitals and colour, padded to `width`: told by word, not by colour alone."""
    return click.style(verdict.name.ljust(width), fg=COLOUR[verdict], bold=verdict is not Verdict.SKIP)


def simulated_mark(detail: str = "") -> str:
    """The mark that no simulated result may lack."""
    return click.style("SIMULATED", fg="cyan", bold=True) + (f" {detail}" if detail else "")


def value(finding: Finding, which: object) -> str:
    """A seen or wanted value with its unit."""
    unit = f" {finding.unit}" if finding.unit and isinstance(which, int | float) else ""
    return f"{which}{unit}"


def counts_line(counts: dict[str, int]) -> str:
    """``1 fail, 3 pass``: worst first, zeros left out."""
    return ", ".join(f"{counts[v.value]} {v.value}" for v in WORST_FIRST if counts.get(v.value)) or "nothing judged"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Left-aligned columns, two spaces apart; widths ignore colour codes."""
    lines = [list(header), *(list(row) for row in rows)]
    widths = [max(len(click.unstyle(line[i])) for line in lines) for i in range(len(header))]
    return [
        "  ".join(
            cell + " " * (width - len(click.unstyle(cell))) for cell, width in zip(line, widths, strict=True)
        ).rstrip()
        for line in lines
    ]


def one_line(text: str) -> str:
    """Printable, and on one line: a host's string must not look like a line of ours."""
    return printable(" ".join(text.split()) if "\n" in text or "\t" in text or "\r" in text else text)
