"""What a rule is, and how it words a finding."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from gpucheck.diagnose.machine import Machine, Pair
from gpucheck.diagnose.rates import Rates
from gpucheck.knowledge import causes
from gpucheck.model.finding import Finding, Value
from gpucheck.model.verdict import Verdict

Confidence = Literal["certain", "likely", "possible"]
COLLECTIVES = "collectives"
HANG = "hang"
NAMED = 6


class Diagnosis(NamedTuple):
    """A finding and what it explains: pairs, or the words COLLECTIVES and HANG. Later rules leave those alone."""

    finding: Finding
    explains: frozenset[Pair | str] = frozenset()


@dataclass(frozen=True)
class Case:
    """What a rule looks at. explained: what earlier rules found the reason of. earlier: their findings."""

    machine: Machine
    rates: Rates
    explained: frozenset[Pair | str] = frozenset()
    earlier: tuple[Finding, ...] = ()

    def open(self, pairs: Iterable[Pair]) -> list[Pair]:
        """Those of the pairs that nothing explains yet."""
        return [pair for pair in pairs if pair not in self.explained]


@dataclass(frozen=True)
class Rule:
    """One family of causes.

    order: lower comes first; what a rule explains, later ones leave alone. looks_at, formula: for people.
    sources: where the physics was read. cases: public reports that show it.
    """

    name: str
    order: int
    title: str
    looks_at: str
    formula: str
    sources: tuple[str, ...]
    judge: Callable[[Case], Iterator[Diagnosis]]
    cases: tuple[str, ...] = field(default=())


def finding(
    rule: str,
    verdict: Verdict,
    cause: str | None,
    confidence: Confidence | None,
    *,
    subject: str,
    seen: Value,
    wanted: Value = None,
    unit: str | None = None,
    why: str,
    fix: str = "",
    evidence: Iterable[str] = (),
) -> Finding:
    """A finding; the remedy of the cause stands behind the rule's own advice."""
    remedy = causes()[cause].remedy if cause else ""
    number = isinstance(seen, float) or isinstance(wanted, float)
    return Finding(
        check=rule,
        verdict=verdict,
        subject=subject,
        seen=round(seen, 2) if isinstance(seen, float) else seen,
        wanted=round(wanted, 2) if isinstance(wanted, float) else wanted,
        unit=unit or ("GB/s" if number else None),
        cause=cause,
        confidence=confidence,
        why=why,
        fix="; ".join(part for part in (fix, remedy if remedy != "none" else "") if part) or "nothing to do",
        evidence=tuple(evidence),
    )


def group_label(machine: Machine, pairs: Iterable[Pair]) -> str:
    """The subject for several pairs: the pair, the GPU they all share, else the host."""
    pairs = list(pairs)
    if len(pairs) == 1:
        return machine.pair_label(pairs[0])
    common = set.intersection(*(set(pair) for pair in pairs)) if pairs else set()
    return f"gpu:{machine.label(common.pop())}" if len(common) == 1 else "host"


def listed(pairs: Iterable[Pair]) -> str:
    """``0-1, 0-2 and 4 more``."""
    words = [f"{i}-{j}" for i, j in pairs]
    more = f" and {len(words) - NAMED} more" if len(words) > NAMED else ""
    return ", ".join(words[:NAMED]) + more


def span(values: Iterable[float]) -> str:
    """``9.5`` or ``9.5 to 12.1``."""
    ordered = sorted(values)
    if not ordered:
        return "nothing"
    low, high = f"{ordered[0]:.3g}", f"{ordered[-1]:.3g}"
    return low if low == high else f"{low} to {high}"


def middle(values: Iterable[float]) -> float:
    """The median. Raises ValueError for nothing."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no value to take the middle of")
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
