"""What a statement looks at, and how it words a finding."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import exp
from typing import Literal, NamedTuple

from gpucheck.diagnose.machine import Machine
from gpucheck.diagnose.numbers import Number
from gpucheck.diagnose.paths import Pair
from gpucheck.diagnose.score import Prediction
from gpucheck.diagnose.world import World
from gpucheck.knowledge import causes
from gpucheck.model.finding import Finding, Value
from gpucheck.model.finding.verdict import Verdict

Confidence = Literal["certain", "likely", "possible"]


@dataclass(frozen=True)
class Case:
    """A machine and its most probable explanation. fits: each number with its prediction. findings: of causes."""

    machine: Machine
    world: World
    fits: tuple[tuple[Number, Prediction], ...]
    findings: tuple[Finding, ...]

    @cached_property
    def blamed(self) -> frozenset[Pair]:
        """Pairs that a fault explains, or that no explanation predicts."""
        faults = (i for i in self.world.instances if i.verdict in (Verdict.FAIL, Verdict.WARN))
        return frozenset(pair for instance in faults for pair in instance.pairs)

    @property
    def causes(self) -> frozenset[str]:
        """What is wrong or suspected."""
        return frozenset(f.cause for f in self.findings if f.cause and f.verdict is not Verdict.PASS)

    def failed(self) -> bool:
        """Whether a cause was found that explains slow collectives."""
        return any(f.verdict is Verdict.FAIL and f.cause for f in self.findings)

    def one_way(self, pair: Pair, quantity: str = "p2p-one-way") -> float | None:
        """The lower of a pair's directions, GB/s; half of the sum where only that was measured."""
        same = self._values.get((quantity, pair))
        if same:
            return min(same)
        sums = self._values.get((quantity.replace("one-way", "both-ways"), pair))
        return min(sums) / 2 if sums else None

    @cached_property
    def _values(self) -> dict[tuple[str, Pair], list[float]]:
        found: dict[tuple[str, Pair], list[float]] = {}
        for n, _ in self.fits:
            if n.b is not None:
                found.setdefault((n.quantity, n.pair), []).append(exp(n.value))
        return found

    def low(self, pair: Pair) -> bool:
        """Whether a number of the pair is below the range that the explanation predicts."""
        return any(
            exp(n.value) < predicted.low
            for n, predicted in self.fits
            if n.pair == pair and n.quantity in ("p2p-one-way", "p2p-both-ways")
        )


class Claim(NamedTuple):
    """The result of a check: its verdict, the cause, and the confidence."""

    check: str
    verdict: Verdict
    cause: str | None = None
    confidence: Confidence | None = None

    def finding(
        self,
        *,
        subject: str = "host",
        seen: Value,
        wanted: Value = None,
        unit: str | None = None,
        why: str = "",
        fix: str = "",
        evidence: Iterable[str] = (),
    ) -> Finding:
        """The claim with what was seen; the remedy of the cause comes after the statement's own advice."""
        remedy = causes()[self.cause].remedy if self.cause else ""
        number = isinstance(seen, float) or isinstance(wanted, float)
        advice = "; ".join(part for part in (fix, remedy if remedy != "none" else "") if part) or "nothing to do"
        return Finding(
            check=self.check,
            verdict=self.verdict,
            subject=subject,
            seen=round(seen, 2) if isinstance(seen, float) else seen,
            wanted=round(wanted, 2) if isinstance(wanted, float) else wanted,
            unit=unit or ("GB/s" if number else None),
            cause=self.cause,
            confidence=self.confidence,
            why=why,
            fix="" if self.verdict in (Verdict.PASS, Verdict.SKIP) else advice,
            evidence=tuple(evidence),
        )
