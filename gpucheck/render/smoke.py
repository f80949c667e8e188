"""The training test for a terminal: what ran where, how fast, and every finding with its number."""

from collections.abc import Iterable
from typing import NamedTuple

import click

from gpucheck.model import Finding, Verdict
from gpucheck.model.smoke import SmokeReport
from gpucheck.printable import of_printable
from gpucheck.render.findings.text import blocks
from gpucheck.render.words import WORST_FIRST, first_line, last_line, simulated_mark, verdict_word


class Part(NamedTuple):
    """One run: its title (``torch ddp``), facts about it, and what was found."""

    title: str
    facts: tuple[str, ...]
    findings: tuple[Finding, ...]


@of_printable
def to_text(report: SmokeReport, parts: Iterable[Part]) -> str:
    """The whole report, colours included: the runs with the worst verdict first, what was not run in a line each."""
    mark = simulated_mark("hardware; the training itself is real") if report.simulated else ""
    lines = [first_line("smoke", report.host, mark)]
    parts = sorted(parts, key=lambda part: min((WORST_FIRST.index(f.verdict) for f in part.findings), default=0))
    for part in parts:
        if not _is_skipped(part):
            lines += ["", click.style(part.title, bold=True)]
            lines += [f"  {fact}" for fact in part.facts]
            lines += blocks(part.findings, passes=True, check=False)
    skipped = [part for part in parts if _is_skipped(part)]
    lines += ["", *(f"{verdict_word(Verdict.SKIP)} {_not_run(part)}" for part in skipped)] if skipped else []
    lines += ["", last_line(report.verdict, report.counts, f"in {report.seconds:.1f} s", mark)]
    return "\n".join(lines) + "\n"


def _is_skipped(part: Part) -> bool:
    return bool(part.findings) and all(finding.verdict is Verdict.SKIP for finding in part.findings)


def _not_run(part: Part) -> str:
    """``tensorflow mirrored: tensorflow is not installed``: the name of the run, without what it would prove."""
    reasons = dict.fromkeys(finding.why for finding in part.findings)
    return f"{part.title.partition(':')[0]}: {'; '.join(reasons)}"
