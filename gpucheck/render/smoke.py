"""The training test for a terminal: what ran where, how fast, and every finding with its number."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import click

from gpucheck.model import Finding, Verdict
from gpucheck.render.words import counts_line, printable, simulated_mark, value, verdict_word


class Part(NamedTuple):
    """One run: its title (``torch ddp``), facts about it, and what was found."""

    title: str
    facts: tuple[str, ...]
    findings: tuple[Finding, ...]


def to_text(
    host: str, parts: Iterable[Part], verdict: Verdict, counts: dict[str, int], seconds: float, *, simulated: bool
) -> str:
    """The whole report, colours included."""
    mark = f"  {simulated_mark('hardware; the training itself is real')}" if simulated else ""
    lines = [click.style(f"gpucheck smoke  {printable(host)}", bold=True) + mark]
    for part in parts:
        lines += ["", click.style(part.title, bold=True)]
        lines += [f"  {printable(fact)}" for fact in part.facts]
        for finding in part.findings:
            lines += _finding(finding)
    lines += ["", f"{verdict_word(verdict, 0)}  {counts_line(counts)}  in {seconds:.1f} s{mark}"]
    return "\n".join(lines) + "\n"


def _finding(finding: Finding) -> Iterator[str]:
    wanted = f", wanted {value(finding, finding.wanted)}" if finding.wanted is not None else ""
    subject = f"{finding.subject}: " if finding.subject != "host" else ""
    yield f"{verdict_word(finding.verdict)} " + printable(f"{subject}{value(finding, finding.seen)}{wanted}")
    if finding.verdict is not Verdict.PASS:
        yield f"        why    {printable(finding.why)}"
    if finding.fix:
        yield f"        do     {printable(finding.fix)}"
    if finding.cause:
        yield f"        cause  {finding.cause} ({finding.confidence or 'possible'})"
    if finding.verdict in (Verdict.FAIL, Verdict.UNKNOWN, Verdict.WARN):
        for line in finding.evidence:
            yield f"        saw    {printable(line)}"
