"""Findings as every view shows them: one text for a fault, whatever the checks and GPUs that have it."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from gpucheck.knowledge import causes
from gpucheck.knowledge.causes import fix_of
from gpucheck.knowledge.codes import of_several
from gpucheck.model import Finding, Report, Verdict, by_root, where
from gpucheck.model.finding import Alternative, Step, bus_ids
from gpucheck.printable import ranges
from gpucheck.render.words import WORST_FIRST, observed, plural

# Of more GPUs than this the bus ids are left out: they are in the JSON.
NAMED = 8
# So few GPUs that are well are named instead of the many that are not.
FEW = 3
# Findings of other checks about the same fault; -v shows all.
ALSO = 4
ALTERNATIVES = 3  # of the other causes that fit
KEY = re.compile(r"[a-z][a-z0-9-]*")
TROUBLE = (Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN)


class Group(NamedTuple):
    """Equal findings. where: the GPUs. seen: the first line, with what was expected. evidence: of all of them.

    also: what other checks found of the same fault. follow: checks that were not run because of it.
    """

    findings: tuple[Finding, ...]
    checks: tuple[str, ...]
    where: str
    seen: str
    why: str
    steps: tuple[Step, ...]
    evidence: tuple[str, ...]
    also: tuple["Group", ...] = ()
    follow: tuple[str, ...] = ()

    @property
    def first(self) -> Finding:
        """The one that stands for all: verdict, code, values, cause and confidence are the same."""
        return self.findings[0]

    @property
    def verdict(self) -> Verdict:
        return self.first.verdict

    @property
    def headline(self) -> str:
        """``GPU 2 (0000:4c:00.0): 17 NVLinks active, expected 18``."""
        return ": ".join(filter(None, (self.where, self.seen)))

    @property
    def every_check(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(check for group in (self, *self.also) for check in group.checks))

    @property
    def every_evidence(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(line for one in (self, *self.also) for line in one.evidence))

    @property
    def cause(self) -> str:
        """``nvlink-down (certain)``; empty without a known cause."""
        return f"{self.first.cause} ({self.sure})" if self.first.cause else ""

    @property
    def sure(self) -> str:
        """How sure the cause is: ``certain``, ``likely`` or ``possible``."""
        return self.first.confidence or "possible"

    @property
    def action(self) -> str:
        """What is asked for and of whom: ``reset-gpu (owner: node)``; empty where nothing follows.

        To contact support is the action of programs where the steps are those of a person: reseat a card, fix a fan.
        """
        one = self.first
        asks = one.verdict in TROUBLE and one.action not in (None, "none", "contact-support")
        return f"{one.action} (owner: {one.owner})" if asks else ""

    @property
    def others(self) -> list[Alternative]:
        """Other causes that fit, the first few."""
        found = {one.cause: one for finding in self.findings for one in finding.alternatives}
        return list(found.values())[:ALTERNATIVES]

    @property
    def not_run(self) -> str:
        return not_run(self.follow) if self.follow else ""


def _with_others(group: Group, others: Sequence[Group]) -> Group:
    """The group of a fault with what else was found of it. The same check of the same thing adds its evidence only."""
    own = (group.checks, group.where, group.verdict)
    again = [one for one in others if (one.checks, one.where, one.verdict) == own]
    evidence = dict.fromkeys(line for one in (group, *again) for line in one.evidence)
    return group._replace(evidence=tuple(evidence), also=tuple(one for one in others if one not in again))


def group_equal(findings: Iterable[Finding], gpus: Iterable[str] = ()) -> list[Group]:
    """Return the groups in the order of their first findings. gpus: bus ids of all GPUs of the host."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        # Two passed checks are two results, even if they are equal.
        check = finding.check if finding.verdict is Verdict.PASS else ""
        groups.setdefault((check, *identity(finding)), []).append(finding)
    everyone = frozenset(gpus)
    return [_group(members, everyone) for members in groups.values()]


def identity(finding: Finding) -> tuple[object, ...]:
    """Return what two findings must have in common to be one block. Without a code, that is also their text."""
    return (
        finding.verdict,
        finding.code or (finding.why, finding.fix),
        tuple(sorted(finding.values.items())),
        finding.cause,
        finding.confidence,
        finding.action,
        finding.owner,
        finding.unit,
        *((type(value), value) for value in (finding.seen, finding.wanted)),
    )


def _group(findings: list[Finding], everyone: frozenset[str]) -> Group:
    first = findings[0]
    is_all = len(everyone) > 1 and {f.subject for f in findings} == {f"gpu:{bus_id}" for bus_id in everyone}
    why, steps = words_of(findings, is_all=is_all)
    return Group(
        findings=tuple(findings),
        checks=tuple(dict.fromkeys(finding.check for finding in findings)),
        where=where_all(findings, everyone),
        seen=observed(first) if observed(first) != first.why else why,
        why=why if observed(first) != first.why else "",
        steps=steps,
        evidence=tuple(dict.fromkeys(line for finding in findings for line in finding.evidence)),
    )


def words_of(findings: Sequence[Finding], *, is_all: bool) -> tuple[str, tuple[Step, ...]]:
    """Return why and steps of equal findings. is_all: of all GPUs of each host."""
    first = findings[0]
    if len({finding.subject for finding in findings}) > 1:
        ids = dict.fromkeys(bus_ids(finding.subject)[0] for finding in findings if bus_ids(finding.subject))
        indexes = [str(finding.gpu_index) for finding in findings if finding.gpu_index is not None]
        listed = indexes if len(ids) > NAMED and len(indexes) == len(findings) else [*ids]
        return of_several(first, listed, every_gpu=is_all)
    return first.why, first.steps or ((Step(text=first.fix, changes=False),) if first.fix else ())


def where_all(findings: Sequence[Finding], everyone: frozenset[str] = frozenset()) -> str:
    """Return what the findings are about: ``GPU 2 (0000:4c:00.0)``, ``all 72 GPUs``, ``GPU 0-3,8-11``."""
    by_subject = {finding.subject: finding for finding in findings}
    kinds = {subject.partition(":")[0] for subject in by_subject} - {"host"}
    about = [finding for subject, finding in by_subject.items() if subject != "host"]
    if len(about) > 1 and kinds == {"gpu"}:
        return _gpus(about, everyone)
    if len(about) > 1 and kinds == {"pair"} and len(about) == len(everyone) * (len(everyone) - 1) // 2:
        return f"all {len(about)} GPU pairs"
    more = f" and {len(about) - NAMED} more" if len(about) > NAMED else ""
    return ", ".join(where(finding) for finding in about[:NAMED]) + more


def _gpus(findings: list[Finding], everyone: frozenset[str]) -> str:
    found = {bus_ids(finding.subject)[0]: finding for finding in findings}
    well = sorted(everyone - found.keys())
    if not well and len(found) == len(everyone):
        return f"all {len(found)} GPUs" if len(found) > 2 else "both GPUs"
    if len(found) <= NAMED:
        return ", ".join(map(where, found.values()))
    if everyone and len(well) <= FEW and found.keys() <= everyone:
        return f"{len(found)} of {len(everyone)} GPUs (all but {', '.join(well)})"
    indexes = [finding.gpu_index for finding in found.values() if finding.gpu_index is not None]
    if len(indexes) == len(found):
        return f"GPU {ranges(sorted(indexes))}"
    return ", ".join(list(found)[:NAMED]) + f" and {len(found) - NAMED} more"


def worst_first(findings: Iterable[Finding], gpus: Iterable[str] = ()) -> list[Group]:
    """Return the groups, the worst first, and of one verdict a root cause before the others.

    One fault is one group, whatever the number of checks that found it.
    """
    own, after = by_root(findings)
    everyone, also = frozenset(gpus), {id(fault.lead): fault.also for fault in own}
    faults = (
        _with_others(group, group_equal((one for lead in group.findings for one in also[id(lead)]), everyone))
        for group in group_equal((fault.lead for fault in own), everyone)
    )
    groups = [
        group._replace(follow=tuple(name for check in group.every_check for name in after.pop(check, ())))
        for group in sorted(faults, key=lambda group: WORST_FIRST.index(group.verdict))
    ]
    return sorted(groups, key=lambda group: (WORST_FIRST.index(group.verdict), not group.follow))


def host_gpus(report: Report) -> tuple[str, ...]:
    return tuple(gpu.pci_bus_id for gpu in report.topology.gpus if gpu.pci_bus_id) if report.topology else ()


def troubles(report: Report) -> list[Group]:
    return [group for group in worst_first(report.findings, host_gpus(report)) if group.verdict in TROUBLE]


def also(group: Group, *, verbose: bool = False) -> Iterator[str]:
    """Yield what other checks found of the same fault. verbose: all of them, with their reasons and fixes."""
    shown = group.also if verbose or len(group.also) <= ALSO else group.also[: ALSO - 1]
    for one in shown:
        verdict = "" if one.verdict is group.verdict else f" ({one.verdict.name})"
        where = f"{one.where}: " if one.where and one.where != group.where else ""
        reasons = [one.why, f"fix: {fix_of(one.steps)}" if one.steps else ""] if verbose else []
        yield "\n".join(filter(None, (f"{', '.join(one.checks)}{verdict}: {where}{one.seen}", *reasons)))
    if len(shown) < len(group.also):
        yield f"and {plural(len(group.also) - len(shown), 'more finding')}"


def deciding(group: Group) -> str:
    """Return the command that confirms a finding and changes nothing; empty if none is known.

    A report from elsewhere may hold any text as cause.
    """
    first = group.first
    known = causes().get(first.cause or "")
    own = next((step.command for step in group.steps if step.command and not step.changes), "")
    if own and not (own.startswith("gpucheck") and known and known.decide):
        return own
    if known and known.decide:
        return known.decide
    return f"gpucheck explain {first.cause}" if KEY.fullmatch(first.cause or "") else ""


def not_run(checks: Sequence[str]) -> str:
    return f"{plural(len(checks), 'check')} not run because of this: {', '.join(sorted(checks))}"
