"""Builder for the findings of one check about one subject."""

from typing import Literal

import msgspec

from gpucheck.model.finding import Finding, Value
from gpucheck.model.finding.verdict import Verdict

Confidence = Literal["certain", "likely", "possible"]


class About(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that all findings of one check about one subject share."""

    check: str
    subject: str = "host"
    unit: str | None = None
    evidence: tuple[str, ...] = ()

    def with_evidence(self, *lines: str) -> "About":
        """Return the same check and subject with these lines of evidence."""
        return msgspec.structs.replace(self, evidence=lines)

    def passes(self, seen: Value, wanted: Value = None) -> Finding:
        """Return PASS."""
        return self.finding(Verdict.PASS, seen=seen, wanted=wanted)

    def skips(
        self, why: str, seen: Value = None, *, wanted: Value = None, cause: str | None = None, fix: str = ""
    ) -> Finding:
        """Return SKIP: it does not apply here, or was not run."""
        return self.finding(Verdict.SKIP, seen=seen, wanted=wanted, why=why, cause=cause, fix=fix)

    def unknown(
        self,
        why: str,
        fix: str,
        seen: Value = None,
        *,
        wanted: Value = None,
        because_of: str | None = None,
        cause: str | None = None,
    ) -> Finding:
        """Return UNKNOWN. because_of: the check whose finding is the reason. cause: of the missing value, certain."""
        return self.finding(
            Verdict.UNKNOWN,
            seen=seen,
            wanted=wanted,
            why=why,
            fix=fix,
            because_of=because_of,
            cause=cause,
            confidence="certain",
        )

    def warns(
        self, seen: Value, wanted: Value, why: str, fix: str, cause: str | None, confidence: Confidence = "certain"
    ) -> Finding:
        """Return WARN: it works, with a risk or a loss."""
        return self.finding(
            Verdict.WARN, seen=seen, wanted=wanted, why=why, fix=fix, cause=cause, confidence=confidence
        )

    def fails(
        self, seen: Value, wanted: Value, why: str, fix: str, cause: str | None, confidence: Confidence = "certain"
    ) -> Finding:
        return self.finding(
            Verdict.FAIL, seen=seen, wanted=wanted, why=why, fix=fix, cause=cause, confidence=confidence
        )

    def finding(
        self, verdict: Verdict, *, cause: str | None = None, confidence: Confidence | None = None, **fields: Value
    ) -> Finding:
        """Return a finding with a verdict that the caller looked up. fields: of Finding.

        confidence is that of the cause, and is dropped if no cause is known.
        """
        return Finding(
            check=self.check,
            verdict=verdict,
            subject=self.subject,
            unit=self.unit,
            evidence=self.evidence,
            cause=cause,
            confidence=confidence if cause else None,
            **fields,  # type: ignore[arg-type]
        )
