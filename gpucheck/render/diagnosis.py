"""A diagnosis as text (worst first, each with why and what to do) and as JSON."""

from collections.abc import Iterator

import click
import msgspec

from gpucheck.model.diagnosis import Diagnosis
from gpucheck.model.finding import Finding
from gpucheck.model.verdict import Verdict
from gpucheck.render.words import WORST_FIRST, counts_line, printable, value, verdict_word


def to_json(diagnosis: Diagnosis) -> str:
    """The outside contract ``gpucheck.diagnosis/1``, indented."""
    return msgspec.json.format(msgspec.json.encode(diagnosis), indent=2).decode()


def to_text(diagnosis: Diagnosis) -> str:
    """The answer for a terminal."""
    gpus = f"{diagnosis.gpus} GPU{'s' if diagnosis.gpus != 1 else ''}"
    lines = [
        f"{click.style('gpucheck diagnose', bold=True)}  {gpus}, from {', '.join(map(printable, diagnosis.source))}"
    ]
    for verdict in WORST_FIRST:
        for finding in diagnosis.findings:
            if finding.verdict is verdict:
                lines += ["", *_finding(finding)]
    lines += ["", f"{verdict_word(diagnosis.verdict, 0)}  {counts_line(diagnosis.counts)}"]
    return "\n".join(lines) + "\n"


def _finding(finding: Finding) -> Iterator[str]:
    wanted = f", wanted {value(finding, finding.wanted)}" if finding.wanted is not None else ""
    subject = "" if finding.subject == "host" else f"{finding.subject}: "
    seen = printable(f"{subject}{value(finding, finding.seen)}{wanted}")
    yield f"{verdict_word(finding.verdict)} {finding.check:<15} {seen}"
    indent = " " * 8
    yield f"{indent}why    {printable(finding.why)}"
    if finding.verdict is not Verdict.PASS and finding.fix:
        yield f"{indent}do     {printable(finding.fix)}"
    if finding.cause:
        yield f"{indent}cause  {finding.cause} ({finding.confidence or 'possible'})"
    if finding.verdict is not Verdict.PASS:
        yield from (f"{indent}saw    {printable(line)}" for line in finding.evidence)
