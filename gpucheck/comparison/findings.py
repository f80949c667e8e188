"""Findings about expectations, each with the line of the file that states it."""

from gpucheck.comparison.expectations import Expectations
from gpucheck.model import Finding
from gpucheck.model.finding import Value
from gpucheck.model.finding.about import About, Confidence

NAME = "expectations"
SITE = "site-expectation"
"""The cause if no other is more specific."""


class Stated:
    """Builds findings about expectations, each named by its path in the file."""

    def __init__(self, expected: Expectations) -> None:
        self.expected = expected

    def met(self, at: str, seen: Value, wanted: Value, *, unit: str | None = None) -> Finding:
        """Return PASS."""
        return self._about(at, "host", unit).passes(seen, wanted)

    def unmet(
        self,
        at: str,
        seen: Value,
        wanted: Value,
        why: str,
        fix: str,
        cause: str,
        *,
        subject: str = "host",
        unit: str | None = None,
        confidence: Confidence = "certain",
        also: tuple[str, ...] = (),
    ) -> Finding:
        """Return FAIL. also: evidence in addition to the line of the file."""
        return self._about(at, subject, unit, also).fails(seen, wanted, f"{at}: {why}", fix, cause, confidence)

    def not_reported(self, at: str, wanted: Value, why: str, *, subject: str = "host") -> Finding:
        """Return UNKNOWN: no evidence is not a PASS."""
        fix = "solve what the driver and inventory checks report first: gpucheck verify --level quick"
        return self._about(at, subject, None).unknown(f"{at}: {why}", fix, "not reported", wanted=wanted)

    def not_measured(self, at: str, wanted: Value, why: str) -> Finding:
        """Return SKIP: the run did not include this measurement."""
        return self._about(at, "host", None).skips(f"{at}: {why}", "not measured", wanted=wanted)

    def _about(self, at: str, subject: str, unit: str | None, also: tuple[str, ...] = ()) -> About:
        line = self.expected.lines.get(at)
        place = f"{self.expected.name}:{line}: {at}" if line else f"{self.expected.name}: {at}"
        return About(check=NAME, subject=subject, unit=unit, evidence=(place, *also))
