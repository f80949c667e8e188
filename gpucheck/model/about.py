"""Findings about one subject, said in as few words as whoever judges needs."""

from typing import Literal

import msgspec

from gpucheck.model.finding import Finding
from gpucheck.model.verdict import Verdict

Confidence = Literal["certain", "likely", "possible"]
Value = str | int | float | bool | None


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What all findings of one check about one subject share."""

    check: str
    subject: str = "host"
    unit: str | None = None
    evidence: tuple[str, ...] = ()

    def passes(self, seen: Value, wanted: Value = None) -> Finding:
        """Seen and found good."""
        return self._finding(Verdict.PASS, seen=seen, wanted=wanted)

    def skips(self, why: str, seen: Value = None, *, wanted: Value = None, cause: str | None = None) -> Finding:
        """Does not apply here."""
        return self._finding(Verdict.SKIP, seen=seen, wanted=wanted, why=why, cause=cause)

    def unknown(
        self, why: str, fix: str, seen: Value = None, *, wanted: Value = None, because_of: str | None = None
    ) -> Finding:
        """Could not look."""
        return self._finding(Verdict.UNKNOWN, seen=seen, wanted=wanted, why=why, fix=fix, because_of=because_of)

    def warns(
        self, seen: Value, wanted: Value, why: str, fix: str, cause: str | None, confidence: Confidence = "certain"
    ) -> Finding:
        """Works, and will bite."""
        return self._finding(
            Verdict.WARN, seen=seen, wanted=wanted, why=why, fix=fix, cause=cause, confidence=confidence
        )

    def fails(
        self, seen: Value, wanted: Value, why: str, fix: str, cause: str | None, confidence: Confidence = "certain"
    ) -> Finding:
        """Is broken."""
        return self._finding(
            Verdict.FAIL, seen=seen, wanted=wanted, why=why, fix=fix, cause=cause, confidence=confidence
        )

    def _finding(
        self, verdict: Verdict, *, cause: str | None = None, confidence: Confidence | None = None, **words: Value
    ) -> Finding:
        return Finding(
            check=self.check,
            verdict=verdict,
            subject=self.subject,
            unit=self.unit,
            evidence=self.evidence,
            cause=cause,
            confidence=confidence if cause else None,
            **words,  # type: ignore[arg-type]
        )
