"""How a rule writes its finding: the verdict, the cause, how sure that is, and the other causes that fit."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

from gpucheck.knowledge import causes
from gpucheck.model.finding import Alternative, Finding, Value
from gpucheck.model.finding.verdict import Verdict

Confidence = Literal["certain", "likely", "possible"]


class Claim(NamedTuple):
    """The result of a rule. others: causes that fit as well, in order."""

    check: str
    verdict: Verdict
    cause: str | None = None
    confidence: Confidence | None = None
    others: tuple[str, ...] = ()

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
        """Return the finding; the remedy of the cause comes after the advice of the rule itself."""
        known = causes()
        remedy = known[self.cause].remedy if self.cause else ""
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
            alternatives=tuple(Alternative(cause=key, would_show=known[key].confirm) for key in self.others),
            why=why,
            fix="" if self.verdict in (Verdict.PASS, Verdict.SKIP) else advice,
            evidence=tuple(evidence),
        )
