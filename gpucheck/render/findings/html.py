"""Blocks of findings for a page, as finding.html.j2 shows them."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gpucheck.model import Finding, Verdict
from gpucheck.model.finding import Alternative
from gpucheck.render.findings.commands import Part, parts
from gpucheck.render.findings.groups import Group
from gpucheck.render.findings.text import also, asks, every_evidence, how_sure, not_run, others, worst_first
from gpucheck.render.ranking.predicted import percent

SHAPE = {Verdict.PASS: "\u00b7", Verdict.WARN: "!", Verdict.FAIL: "\u00d7", Verdict.UNKNOWN: "?", Verdict.SKIP: "-"}
# Evidence of all subjects of a block; one fault of 72 GPUs must not fill the page.
EVIDENCE = 40


class Block(NamedTuple):
    """A group of findings. advice: its fix with commands marked. left: lines of evidence that are not shown.

    follow: what was not run because of it. asks: its action and owner. sure: how sure its cause is. others: other
    causes and their probabilities. also: what other checks found of it. verdicts: of all its findings.
    """

    group: Group
    advice: tuple[Part, ...]
    evidence: tuple[str, ...]
    left: int
    follow: str
    asks: str
    sure: str
    others: tuple[tuple[Alternative, str], ...]
    also: tuple[str, ...]
    verdicts: str


def blocks(findings: Iterable[Finding], gpus: Iterable[str] = ()) -> dict[Verdict, list[Block]]:
    """Return the blocks of each verdict, worst first. gpus: bus ids of all GPUs of the host."""
    return {verdict: list(_blocks(groups, follow)) for verdict, groups, follow in worst_first(findings, gpus)}


def _blocks(groups: list[Group], follow: dict[str, list[str]]) -> Iterator[Block]:
    for group in groups:
        checks = [name for check in group.every_check for name in follow.pop(check, [])]
        evidence = every_evidence(group)
        yield Block(
            group=group,
            advice=tuple(parts(group.fix)),
            evidence=evidence[:EVIDENCE],
            left=max(0, len(evidence) - EVIDENCE),
            follow=not_run(checks) if checks else "",
            asks=asks(group),
            sure=how_sure(group),
            others=tuple((one, percent(one.probability)) for one in others(group)),
            also=tuple(also(group)),
            verdicts=" ".join(dict.fromkeys(one.first.verdict.value for one in (group, *group.also))),
        )
