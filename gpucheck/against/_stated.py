"""Findings about expectations, each with the line of the file that states it."""

from gpucheck.against._expectations import Expectations
from gpucheck.model import Finding
from gpucheck.model.about import About, Confidence
from gpucheck.model.finding import Value

NAME = "expectations"
SITE = "site-expectation"
"""The cause where no other says it better."""


class Stated:
    """Says whether an expectation, named by its path in the file, is met."""

    def __init__(self, expected: Expectations) -> None:
        self.expected = expected

    def met(self, at: str, seen: Value, wanted: Value, *, unit: str | None = None) -> Finding:
        """As expected."""
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
        """Not as expected. also: evidence beside the line of the file."""
        return self._about(at, subject, unit, also).fails(seen, wanted, f"{at}: {why}", fix, cause, confidence)

    def not_told(self, at: str, wanted: Value, why: str, *, subject: str = "host") -> Finding:
        """Nobody says: no evidence is not a pass."""
        fix = "solve what the driver and inventory checks report first: gpucheck verify --level quick"
        return self._about(at, subject, None).unknown(f"{at}: {why}", fix, "not told", wanted=wanted)

    def not_measured(self, at: str, wanted: Value, why: str) -> Finding:
        """The run was not told to measure it."""
        return self._about(at, "host", None).skips(f"{at}: {why}", "not measured", wanted=wanted)

    def _about(self, at: str, subject: str, unit: str | None, also: tuple[str, ...] = ()) -> About:
        line = self.expected.lines.get(at)
        place = f"{self.expected.name}:{line}: {at}" if line else f"{self.expected.name}: {at}"
        return About(check=NAME, subject=subject, unit=unit, evidence=(place, *also))
