"""What an image says of itself, as text and as JSON."""

from collections.abc import Iterator, Mapping
from typing import Any

import click
import msgspec

from gpucheck.model import Finding, Verdict
from gpucheck.render.words import WORST_FIRST, counts_line, printable, simulated_mark, value, verdict_word


def to_json(report: Mapping[str, Any]) -> str:
    """The outside contract, indented for people who read it with less."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()


def to_text(report: Mapping[str, Any]) -> str:
    """For a terminal: what the image is, the findings worst first, the verdict."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    mark = f"  {simulated_mark('hardware')}" if report["simulated"] else ""
    image = report["image"]
    name = image["variant"] if image else "no image of gpucheck's"
    yield click.style(f"gpucheck image  {printable(name)}", bold=True) + mark
    if image:
        stand_in = " (a stand-in: no registry answered when it was built)" if image["stand_in_base"] else ""
        yield printable(f"on {image['base']}{stand_in}, Python {image['python']}")
    yield ""
    for verdict in WORST_FIRST:
        for finding in report["findings"]:
            if finding.verdict is verdict:
                yield from _finding(finding)
    yield ""
    yield f"{verdict_word(report['verdict'], 0)}  {counts_line(report['counts'])}  in {report['seconds']:.1f} s{mark}"


def _finding(finding: Finding) -> Iterator[str]:
    subject = "" if finding.subject == "host" else f"{finding.subject}: "
    differs = finding.verdict not in (Verdict.PASS, Verdict.SKIP) and finding.wanted is not None
    wanted = f", wanted {value(finding, finding.wanted)}" if differs else ""
    yield f"{verdict_word(finding.verdict)} " + printable(f"{subject}{value(finding, finding.seen)}{wanted}")
    if finding.why:
        yield f"        why    {printable(finding.why)}"
    if finding.fix:
        yield f"        do     {printable(finding.fix)}"
    if finding.cause:
        yield f"        cause  {finding.cause} ({finding.confidence or 'possible'})"
    if finding.verdict in (Verdict.FAIL, Verdict.UNKNOWN):
        for line in finding.evidence:
            yield f"        saw    {printable(line)}"
