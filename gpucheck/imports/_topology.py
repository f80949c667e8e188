"""A topology as a part of a text: its paths between GPUs, and what of it is damaged."""

from collections.abc import Iterator

from gpucheck.imports._problem import left_out
from gpucheck.imports._regex import regex
from gpucheck.model.diagnosis import UnreadRange
from gpucheck.model.facts import Facts
from gpucheck.model.finding import Verdict
from gpucheck.model.paste import Part
from gpucheck.model.topology import Topology

LINE = regex(r"\bline (\d{1,9})\b")


def of_topology(found: Topology) -> Part:
    count = len(found.gpus)
    about = (f"how {count} GPUs are connected",) if count > 1 else ()
    facts = Facts(observed=found.observations())
    return Part(facts=facts, topology=found, looked_at=about, unread=tuple(_damage(found)))


def _damage(found: Topology) -> Iterator[UnreadRange]:
    """Rows of a matrix that could not be used, and pairs that are missing in it."""
    for one in found.findings:
        if one.verdict is not Verdict.SKIP:
            lines = [int(match[1]) for text in one.evidence if (match := LINE.search(text))] or [1]
            why = f"{one.seen}, expected {one.wanted}: {one.why}"
            yield left_out(min(lines), max(lines), why, "; ".join(one.evidence))
