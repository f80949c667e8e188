"""Findings for a terminal, as every command prints them: worst first, a root cause with what follows from it."""

import re
from collections.abc import Iterable, Iterator

import click

from gpucheck.knowledge import causes
from gpucheck.model import Finding, Verdict, by_root
from gpucheck.model.finding import Alternative, Step
from gpucheck.printable import indented
from gpucheck.render.findings.groups import Group, group_faults
from gpucheck.render.words import WORST_FIRST, plural, verdict_word

INDENT = " " * 8
LABEL = 10
COMMAND = "  "
# Lines of evidence of one block; -v shows all.
EVIDENCE = 12
# Findings of other checks about the same fault; -v shows all.
ALSO = 4
ALTERNATIVES = 3  # of the other causes that fit
KEY = re.compile(r"[a-z][a-z0-9-]*")
# What the programs of the check would do again.
LINKS = re.compile(r"p2p|host-copies|links-under-load|simultaneous-copies|shared-uplink|cross-socket|pcie-lanes")
TROUBLE = (Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN)


def blocks(
    findings: Iterable[Finding],
    gpus: Iterable[str] = (),
    *,
    verbose: bool = False,
    passes: bool = False,
    check: bool = True,
) -> Iterator[str]:
    """Yield the lines of all findings.

    gpus: bus ids of all GPUs of the host. verbose: passes, skips and all evidence too. passes: what each pass saw.
    check: the name of the check in every line.
    """
    gpus = tuple(gpus)
    for verdict, groups, follow in worst_first(findings, gpus):
        if verdict is Verdict.PASS and not (verbose or passes):
            yield from _passes([finding for group in groups for finding in group.findings])
            continue
        for group in groups:
            if verdict is Verdict.SKIP and not (verbose or (passes and group.why)):
                yield _skip(group, check=check)
            else:
                yield from block(group, verbose=verbose, check=check)
            for name in group.every_check:
                yield from _following(follow.pop(name, []))


def worst_first(
    findings: Iterable[Finding], gpus: Iterable[str] = ()
) -> Iterator[tuple[Verdict, list[Group], dict[str, list[str]]]]:
    """Yield the groups of each verdict, a root cause before the others, and the checks that follow, by root cause.

    One fault is one group, whatever the number of checks that found it.
    """
    own, follow = by_root(findings)
    found = group_faults(own, gpus)
    for verdict in WORST_FIRST:
        groups = [group for group in found if group.first.verdict is verdict]
        groups.sort(key=lambda group: not any(check in follow for check in group.every_check))
        if groups:
            yield verdict, groups, follow


def count_problems(findings: Iterable[Finding], gpus: Iterable[str] = ()) -> str:
    """Return how many blocks the findings are: ``4 problems``; empty without any problem."""
    count = sum(len(groups) for verdict, groups, _ in worst_first(findings, gpus) if verdict in TROUBLE)
    return plural(count, "problem") if count else ""


def block(group: Group, *, verbose: bool = False, check: bool = True) -> Iterator[str]:
    """Yield the lines of one group. check: the name of the check too."""
    finding = group.first
    checks = f"{', '.join(group.checks)}  " if check else ""
    yield f"{verdict_word(finding.verdict)} {checks}{indented(group.headline, 8)}"
    if group.why:
        yield _line("why", group.why)
    if group.steps and finding.verdict in TROUBLE:
        yield _line("fix", "\n".join(map(_step, group.steps)))
    if action := action_text(group):
        yield _line("action", action)
    if finding.cause:
        yield _line("cause", f"{finding.cause} ({how_sure(group)})")
        yield from (_line("or", f"{one.cause}: {one.would_show}") for one in others(group))
    yield from (_line("also", line) for line in also(group, verbose=verbose))
    if verbose:
        yield from (_line("evidence", line) for line in every_evidence(group))
    elif finding.verdict in TROUBLE:
        lines = every_evidence(group)
        yield from (_line("evidence", line) for line in lines[:EVIDENCE])
        if len(lines) > EVIDENCE:
            yield _line("evidence", f"and {plural(len(lines) - EVIDENCE, 'more line')}")


def every_evidence(group: Group) -> tuple[str, ...]:
    """Return all lines of evidence for a fault, each once."""
    return tuple(dict.fromkeys(line for one in (group, *group.also) for line in one.evidence))


def _step(step: Step) -> str:
    """A step on a line of its own; a command is indented, and so stays in one piece (cli._shared.width)."""
    return f"{COMMAND}{step.command}" if step.command else step.text or ""


def also(group: Group, *, verbose: bool = False) -> Iterator[str]:
    """Yield what other checks found of the same fault. verbose: all of them, with their reasons and fixes."""
    shown = group.also if verbose or len(group.also) <= ALSO else group.also[: ALSO - 1]
    for one in shown:
        verdict = "" if one.first.verdict is group.first.verdict else f" ({one.first.verdict.name})"
        where = f"{one.where}: " if one.where and one.where != group.where else ""
        reasons = [one.why, one.fix and f"fix: {one.fix}"] if verbose else []
        yield "\n".join(filter(None, (f"{', '.join(one.checks)}{verdict}: {where}{one.seen}", *reasons)))
    if len(shown) < len(group.also):
        yield f"and {plural(len(group.also) - len(shown), 'more finding')}"


def how_sure(group: Group) -> str:
    """Return how sure the cause of a fault is: ``certain``, ``likely`` or ``possible``."""
    return group.first.confidence or "possible"


def action_text(group: Group) -> str:
    """Return what the findings ask for and of whom: ``reset-gpu (owner: node)``; empty where nothing follows."""
    finding = group.first
    if finding.verdict not in TROUBLE or finding.action in (None, "none"):
        return ""
    return f"{finding.action} (owner: {finding.owner})"


def others(group: Group) -> list[Alternative]:
    """Return the other causes that a block names: the first few."""
    found = {one.cause: one for finding in group.findings for one in finding.alternatives}
    return list(found.values())[:ALTERNATIVES]


def deciding(group: Group, *, rerun: bool = True) -> str:
    """Return the command that confirms a finding and changes nothing; empty if none is known.

    rerun: gpucheck ran on the same host. A report from elsewhere may hold any text as cause or check.
    """
    first = group.first
    known = causes().get(first.cause or "")
    own = next((step.command for step in group.steps if step.command and not step.changes), "")
    if own and not (own.startswith("gpucheck") and known and known.decide):
        return own
    if known and known.decide:
        return known.decide
    if KEY.fullmatch(first.cause or ""):
        return f"gpucheck explain {first.cause}"
    if not rerun or not KEY.fullmatch(first.check):
        return ""
    return "gpucheck bandwidth -v" if LINKS.match(first.check) else f"gpucheck verify --only {first.check} -v"


def not_run(checks: list[str]) -> str:
    """Name the checks that add nothing to a root cause."""
    return f"{plural(len(checks), 'check')} not run because of this: {', '.join(sorted(checks))}"


def _following(checks: list[str]) -> Iterator[str]:
    if checks:
        yield f"{verdict_word(Verdict.UNKNOWN)} {click.style(not_run(checks), dim=True)}"


def _line(label: str, text: str) -> str:
    return f"{INDENT}{label:<{LABEL}}{indented(text, len(INDENT) + LABEL)}"


def _skip(group: Group, *, check: bool) -> str:
    """One line: what was not evaluated, and why."""
    some = f" ({len(group.findings)})" if len(group.findings) > 1 else ""
    checks = f"{', '.join(group.checks)}{some}: " if check else ""
    return f"{verdict_word(Verdict.SKIP)} {checks}{indented(group.why or group.seen, 8)}"


def _passes(findings: list[Finding]) -> Iterator[str]:
    names = [finding.check for finding in findings]
    counted = (f"{name} ({names.count(name)})" if names.count(name) > 1 else name for name in dict.fromkeys(names))
    yield f"{verdict_word(Verdict.PASS)} {', '.join(counted)}"
