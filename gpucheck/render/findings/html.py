"""Blocks of findings for a page, as finding.html.j2 shows them."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from gpucheck.model import Finding, Verdict, where
from gpucheck.model.finding import Alternative
from gpucheck.model.finding.naming import bus_ids
from gpucheck.render import html
from gpucheck.render.findings.groups import Group
from gpucheck.render.findings.text import (
    TROUBLE,
    action_text,
    also,
    every_evidence,
    how_sure,
    not_run,
    others,
    worst_first,
)
from gpucheck.render.words import observed

SHAPE = {Verdict.PASS: "\u00b7", Verdict.WARN: "!", Verdict.FAIL: "\u00d7", Verdict.UNKNOWN: "?", Verdict.SKIP: "-"}
# Evidence of all subjects of a block; one fault of 72 GPUs must not fill the page.
EVIDENCE = 40
MOST_OF_AN_ANCHOR = 60


class Block(NamedTuple):
    """A group of findings. left: lines of evidence that are not shown.

    follow: what was not run because of it. action: its action and owner. sure: how sure its cause is. others: other
    causes, in order. also: what other checks found of it; reasons: the same with why and fix.
    verdicts: of all its findings. anchor: its id on the page, the same in the next report.
    """

    group: Group
    evidence: tuple[str, ...]
    left: int
    follow: str
    action: str
    sure: str
    others: tuple[Alternative, ...]
    also: tuple[str, ...]
    reasons: tuple[str, ...]
    verdicts: str
    anchor: str


def blocks(
    findings: Iterable[Finding], gpus: Iterable[str] = (), taken: dict[str, int] | None = None
) -> dict[Verdict, list[Block]]:
    """Return the blocks of each verdict, worst first.

    gpus: bus ids of all GPUs of the host. taken: anchors that the page has, and how often; filled in.
    """
    taken = {} if taken is None else taken
    return {verdict: list(_blocks(groups, follow, taken)) for verdict, groups, follow in worst_first(findings, gpus)}


def findings_page(
    template: str,
    findings: Sequence[Finding],
    gpus: Iterable[str],
    hosts: Iterable[tuple[str, Sequence[Finding]]] = (),
    **values: Any,
) -> str:
    """Return a page of findings.

    gpus: bus ids of all GPUs of the host. hosts: findings of several hosts, each below its title.
    """
    taken: dict[str, int] = {}
    of_verdict = blocks(findings, gpus, taken)
    return html.page(
        template,
        styles=("tokens.css", "parts.css", "report.css"),
        scripts=("page.js", "report.js"),
        shape=SHAPE,
        problems=_problems(of_verdict),
        others=_others(findings),
        hosts=[(title, _problems(blocks(own, (), taken)), _others(own)) for title, own in hosts],
        observed=observed,
        where=where,
        **values,
    )


def anchors(found: Iterable[Block]) -> dict[str, str]:
    """Return the anchor of the first block about each GPU, by bus id."""
    anchors: dict[str, str] = {}
    for block in found:
        for group in (block.group, *block.group.also):
            for finding in group.findings:
                for bus_id in bus_ids(finding.subject):
                    anchors.setdefault(bus_id, block.anchor)
    return anchors


def _anchor(group: Group, taken: dict[str, int]) -> str:
    finding = group.first
    place = finding.subject if finding.gpu_index is None else f"gpu{finding.gpu_index}"
    name = re.sub(r"[^a-z0-9]+", "-", f"{finding.check}-{place}".lower())[:MOST_OF_AN_ANCHOR].strip("-")
    taken[name] = taken.get(name, 0) + 1
    return f"finding-{name}" + (f"-{taken[name]}" if taken[name] > 1 else "")


def _problems(of_verdict: dict[Verdict, list[Block]]) -> list[Block]:
    return [block for verdict in TROUBLE for block in of_verdict.get(verdict, ())]


def _others(findings: Iterable[Finding]) -> list[Finding]:
    return [one for one in findings if one.verdict in (Verdict.PASS, Verdict.SKIP)]


def _blocks(groups: list[Group], follow: dict[str, list[str]], taken: dict[str, int]) -> Iterator[Block]:
    for group in groups:
        checks = [name for check in group.every_check for name in follow.pop(check, [])]
        evidence = every_evidence(group)
        yield Block(
            group=group,
            evidence=evidence[:EVIDENCE],
            left=max(0, len(evidence) - EVIDENCE),
            follow=not_run(checks) if checks else "",
            action=action_text(group),
            sure=how_sure(group),
            others=tuple(others(group)),
            anchor=_anchor(group, taken),
            also=tuple(also(group)),
            reasons=tuple(also(group, verbose=True)) if group.also else (),
            verdicts=" ".join(dict.fromkeys(one.first.verdict.value for one in (group, *group.also))),
        )
