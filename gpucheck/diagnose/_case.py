"""A machine, and what the rules before the present one found."""

from dataclasses import dataclass, field

from gpucheck.diagnose.machine import Machine
from gpucheck.model.finding import Finding
from gpucheck.model.finding.verdict import Verdict

FAULTS = (Verdict.FAIL, Verdict.WARN)


@dataclass
class Case:
    """findings: so far, in the order of the rules. slow: pairs that a finding about slow copies names.

    every_low: each pair over PCIe is below the healthy range.
    """

    machine: Machine
    findings: list[Finding] = field(default_factory=list)
    slow: set[tuple[int, int]] = field(default_factory=set)
    every_low: bool = False

    @property
    def causes(self) -> set[str]:
        """Causes of what is wrong or suspected."""
        return {one.cause for one in self.findings if one.cause and one.verdict is not Verdict.PASS}

    @property
    def symptoms(self) -> list[str]:
        """Causes of wrong data and of hangs, the first suspects of slow copies too."""
        of_data = (one for one in self.findings if one.check in ("p2p-integrity", "p2p-copies"))
        return list(dict.fromkeys(one.cause for one in of_data if one.cause and one.verdict is Verdict.FAIL))

    @property
    def has_failed(self) -> bool:
        """Whether a cause was found that explains slow collectives."""
        return any(one.verdict is Verdict.FAIL and one.cause for one in self.findings)
