"""A diagnosis as Markdown: for an issue or a wiki."""

import re
from collections.abc import Iterator

from gpucheck.model import Verdict
from gpucheck.model.diagnosis import Diagnosis
from gpucheck.model.ranking import Explanation
from gpucheck.printable import folded, of_printable
from gpucheck.render._predicted import Block, blocks, percent, span
from gpucheck.render.findings import TROUBLE, how_sure, others, worst_first
from gpucheck.render.groups import Group
from gpucheck.render.ranking import FAULTLESS, SHOWN, cause_names
from gpucheck.render.words import counts_line, plural

# What Markdown, or HTML inside it, would read as more than text.
SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&!@$])")


@of_printable
def to_markdown(diagnosis: Diagnosis) -> str:
    """Return the page: findings worst first, the ranking, and what the first two explanations predicted."""
    source = f"{plural(diagnosis.gpus, 'GPU')}, from {', '.join(diagnosis.source)}"
    lines = [f"# {diagnosis.verdict.name}: gpucheck diagnose", "", f"{_text(source)}: {counts_line(diagnosis.counts)}"]
    for verdict, groups, _ in worst_first(diagnosis.findings, diagnosis.gpu_names):
        for group in groups:
            lines += ["", *_finding(verdict, group)]
    if diagnosis.ranking:
        lines += ["", "## Explanations, the most probable first", "", *_ranking(diagnosis)]
    if diagnosis.decided:
        lines += ["", f"What decided between the first two: {_text(diagnosis.decided)}"]
    for one in diagnosis.ranking[:SHOWN]:
        lines += _details(one)
    return "\n".join(lines) + "\n"


def _finding(verdict: Verdict, group: Group) -> Iterator[str]:
    yield f"**{verdict.name}** {_text(', '.join(group.checks))}: {_text(group.headline)}"
    if verdict not in TROUBLE:
        return
    yield ""
    yield from (f"- {label}: {_text(text)}" for label, text in (("why", group.why), ("fix", group.fix)) if text)
    if group.first.cause:
        yield f"- cause: {_text(group.first.cause)} ({how_sure(group.findings)})"
    for one in others(group):
        yield f"- or: {_text(one.cause)} ({percent(one.probability)}): {_text(one.would_show)}"


def _ranking(diagnosis: Diagnosis) -> Iterator[str]:
    yield "| probability | explanation | causes |"
    yield "|---:|---|---|"
    for one in diagnosis.ranking:
        causes = "; ".join(cause_names(one, diagnosis.gpu_names)) or FAULTLESS
        yield f"| {percent(one.probability)} | {_text(one.words)} | {_text(causes)} |"


def _details(one: Explanation) -> list[str]:
    found = blocks(one)
    if not found and not one.readings:
        return []
    lines = ["", f"## Predicted and measured, if: {_text(one.words)}", ""]
    for block in found:
        lines += [*_table(block), ""]
    return [*lines, *(f"- read: {_text(line)}" for line in one.readings)]


def _table(block: Block) -> Iterator[str]:
    yield f"| {block.title}, {block.unit} | predicted | measured | fits | basis |"
    yield "|---|---|---|---|---|"
    for row in block.rows:
        measured = span(row.values[0], row.values[-1])
        yield f"| {row.where} | {span(row.low, row.high)} | {measured} | {row.fit} | {_text(row.basis)} |"


def _text(text: str) -> str:
    """The text on one line, nothing in it of a meaning to Markdown."""
    return SPECIAL.sub(r"\\\1", folded(text))
