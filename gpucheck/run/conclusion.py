"""What a run found, as every report states it: one fault is one finding, and what else shows it points there."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from gpucheck.knowledge import causes, root_causes
from gpucheck.knowledge.causes import with_actions
from gpucheck.model import Finding, Verdict, counted, follows, named, worst
from gpucheck.model.finding import FOUND, NamedGpu, bus_ids
from gpucheck.model.host.wiring import Wiring

SURE = ("certain", "likely", "possible", None)
# Of a link and of its ends a check reports one state; a host or a log has several things with one cause.
OF_LINKS = ("pcie", "nvlink")
LOG = "log"


class Conclusion(NamedTuple):
    """The findings of a report with what follows from all of them together."""

    findings: tuple[Finding, ...]
    verdict: Verdict
    counts: dict[str, int]


def conclude(findings: Iterable[Finding], gpus: Iterable[NamedGpu] = (), wiring: Wiring | None = None) -> Conclusion:
    """Return the findings with GPU indexes and actions, each fault led by one of them."""
    found = with_actions(joined(named(findings, gpus), wiring))
    return Conclusion(found, worst(one.verdict for one in found), counted(found))


def joined(findings: Iterable[Finding], wiring: Wiring | None = None) -> tuple[Finding, ...]:
    """Return the findings, of which each WARN and FAIL leads its fault or points to the one that does.

    The one whose evidence is nearest to the hardware leads, with the worst verdict and the best confidence of them.
    """
    found = [replace(one, because_of=None, because_of_subject=None) if follows(one) else one for one in findings]
    of = {at: _Candidate(one, wiring) for at, one in enumerate(found) if one.verdict in FOUND}
    order = sorted(of, key=lambda at: of[at].nearness)
    lead_of: dict[int, int] = {}
    # By cause and place: 72 GPUs have 2,556 pairs.
    leads: defaultdict[str | None, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for at in order:
        mine, places = leads[found[at].cause], of[at].places
        near = {lead for place in (mine if "host" in places else {*places, "host"}) for lead in mine.get(place, ())}
        lead = next(
            (lead for lead in sorted(near, key=lambda lead: (of[lead].nearness, lead)) if of[lead].is_same(of[at])),
            None,
        )
        if lead is not None:
            lead_of[at] = lead
        for place in places if lead is None else ():
            mine[place].append(at)
    rest = [at for at in order if at not in lead_of]
    twins: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for at in rest:
        twins[found[at].check, found[at].subject].append(at)
    followers = {key for keys in root_causes().explains.values() for key in keys}
    roots = [at for at in rest if of[at].followers]
    for at in rest:
        around = (*twins[found[at].check, found[at].subject], *(roots if of[at].key in followers else ()))
        lead = next((lead for lead in around if lead not in lead_of and of[lead].explains(of[at])), None)
        if lead is not None:
            lead_of[at] = lead
    for at in lead_of:
        lead = lead_of[at]
        while lead in lead_of:
            lead = lead_of[lead]
        found[at] = replace(found[at], because_of=found[lead].check, because_of_subject=found[lead].subject)
        found[lead] = _strengthened(found[lead], found[at])
    return tuple(found)


class _Candidate:
    def __init__(self, finding: Finding, wiring: Wiring | None) -> None:
        table, known = root_causes(), causes().get(finding.cause or "")
        kinds = table.evidence
        kind = next((kind for kind, checks in kinds.items() if finding.check in checks), next(iter(kinds)))
        self.finding, self.key = finding, finding.cause or finding.check
        self.places = frozenset(_places(finding.subject, wiring)) or frozenset(("host",))
        self.apart = finding.check in table.apart
        self.twice = kind != LOG and known is not None and known.domain in OF_LINKS
        self.followers = table.explains.get(finding.cause or "", ())
        wide = {"host": 0, "gpu": 1}.get(finding.subject.partition(":")[0], 2)
        self.nearness = ([*kinds].index(kind), SURE.index(finding.confidence), FOUND.index(finding.verdict), wide)

    def is_same(self, other: "_Candidate") -> bool:
        """Whether the other, of the same cause, shows the same fault."""
        one, two = self.finding, other.finding
        return one.cause is not None and (one.check != two.check or self.twice) and self._overlaps(other)

    def explains(self, other: "_Candidate") -> bool:
        """Whether the other follows from this one, or is a weaker word of the same check on the same pair of GPUs."""
        one, two = self.finding, other.finding
        if one is two or one.cause == two.cause or one.confidence not in SURE[:2]:
            return False
        if one.check == two.check and one.subject == two.subject and one.subject.startswith("pair:"):
            return self.nearness < other.nearness
        return other.key in self.followers and self._overlaps(other)

    def _overlaps(self, other: "_Candidate") -> bool:
        one, two = self.finding.subject, other.finding.subject
        if self.apart or other.apart:
            return False
        if one == two or "host" in (one, two):
            return True
        if one.startswith("pair:") and two.startswith("pair:"):
            return self.places == other.places
        return bool(self.places & other.places)


def _places(subject: str, wiring: Wiring | None) -> Iterator[str]:
    yield from bus_ids(subject)
    if wiring is None or not subject.startswith("link:"):
        return
    (own,) = bus_ids(subject)
    # Between the two ends of a switch there is no link.
    for link in (one for one in wiring.functions if one.above and one.kind != "switch-downstream"):
        if own in (link.bus_id, link.above):
            yield from (link.bus_id, link.above or own)


def _strengthened(lead: Finding, part: Finding) -> Finding:
    """The leader with the worse verdict of the two, and with the better evidence if it is for the same cause."""
    verdict = min(lead.verdict, part.verdict, key=FOUND.index)
    if lead.cause != part.cause or SURE.index(lead.confidence) <= SURE.index(part.confidence):
        return replace(lead, verdict=verdict)
    others = () if part.confidence == "certain" else lead.alternatives
    return replace(lead, verdict=verdict, confidence=part.confidence, alternatives=others)
