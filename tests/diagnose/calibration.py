"""How well probabilities and named causes of `gpucheck diagnose` hold on generated machines (all SIMULATED).

A statement is a finding with a cause and a probability, or one of its alternatives (about the same subject). It is
right by the rule in tests/diagnose/matching.py. Run: ``python -m tests.diagnose.calibration --seeds 10000 --jobs 2``.
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from gpucheck.diagnose import diagnose, read
from gpucheck.model import Finding, Verdict
from tests.diagnose.generator import Case, machine
from tests.diagnose.matching import is_true

BINS = 10
SEVERITY = {Verdict.FAIL: 3, Verdict.WARN: 2, Verdict.UNKNOWN: 1}


@dataclass
class Tally:
    """Statements of one group: how many, the sum of their probabilities, and how many were right."""

    count: int = 0
    probability: float = 0.0
    right: int = 0

    def add(self, probability: float, right: bool) -> None:
        self.count += 1
        self.probability += probability
        self.right += right

    def join(self, other: "Tally") -> None:
        self.count += other.count
        self.probability += other.probability
        self.right += other.right

    @property
    def mean(self) -> float:
        return self.probability / self.count if self.count else 0.0

    @property
    def share(self) -> float:
        return self.right / self.count if self.count else 0.0


@dataclass
class Calibration:
    """What was counted. bins: ten by probability. causes: by cause key. faults, top, named: by true cause or level.

    top: the true cause is that of the finding with the worst verdict (then the highest probability). named: the true
    cause is in some finding or alternative, whatever its subject. false_alarms: healthy machines with WARN or FAIL;
    wrong_alarms: those among them with such a finding whose cause is not true either (a true limit may deserve a WARN).
    """

    bins: list[Tally] = field(default_factory=lambda: [Tally() for _ in range(BINS)])
    causes: dict[str, Tally] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    top: Counter[str] = field(default_factory=Counter)
    named: Counter[str] = field(default_factory=Counter)
    healthy: Counter[str] = field(default_factory=Counter)
    false_alarms: Counter[str] = field(default_factory=Counter)
    wrong_alarms: Counter[str] = field(default_factory=Counter)
    alarm_causes: Counter[str] = field(default_factory=Counter)
    tempted: int = 0
    without_probability: int = 0
    machines: int = 0
    seconds: float = 0.0

    @property
    def expected_error(self) -> float:
        """Expected calibration error: mean difference of share right and mean probability of a bin, by its count."""
        total = sum(tally.count for tally in self.bins)
        return sum(tally.count * abs(tally.share - tally.mean) for tally in self.bins) / total if total else 0.0

    def join(self, other: "Calibration") -> None:
        """Add the counts of other seeds."""
        for mine, theirs in zip(self.bins, other.bins, strict=True):
            mine.join(theirs)
        for cause, tally in other.causes.items():
            self.causes.setdefault(cause, Tally()).join(tally)
        for name in ("faults", "top", "named", "healthy", "false_alarms", "wrong_alarms", "alarm_causes"):
            getattr(self, name).update(getattr(other, name))
        for name in ("tempted", "without_probability", "machines", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


def statements(finding: Finding) -> list[tuple[str, float | None]]:
    """Cause keys and probabilities that a finding states about its subject."""
    found = [(finding.cause, getattr(finding, "probability", None))] if finding.cause else []
    others = getattr(finding, "alternatives", None) or ()
    return found + [(other.cause, other.probability) for other in others if other.cause]


def measure(seeds: Iterable[int]) -> Calibration:
    """Diagnose the machines of these seeds and count. Only reading and diagnosing are timed."""
    result = Calibration()
    for seed in seeds:
        case = machine(seed)
        text = json.dumps(case.observations)
        started = time.perf_counter()
        findings = diagnose(read(text))
        result.seconds += time.perf_counter() - started
        result.machines += 1
        _count_statements(result, case, findings)
        _count_machine(result, case, findings)
    return result


def _count_statements(result: Calibration, case: Case, findings: tuple[Finding, ...]) -> None:
    tempted = False
    for finding in findings:
        for cause, probability in statements(finding):
            if probability is None:
                result.without_probability += 1
                continue
            right = is_true(case, cause, finding.subject)
            result.bins[min(BINS - 1, int(probability * BINS))].add(probability, right)
            result.causes.setdefault(cause, Tally()).add(probability, right)
            tempted = tempted or (probability >= 0.5 and cause in case.tempting)
    result.tempted += tempted


def _count_machine(result: Calibration, case: Case, findings: tuple[Finding, ...]) -> None:
    bad = [finding for finding in findings if finding.verdict in (Verdict.WARN, Verdict.FAIL)]
    if not case.faults:
        result.healthy[case.level] += 1
        result.false_alarms[case.level] += bool(bad)
        wrong = [finding for finding in bad if not finding.cause or not is_true(case, finding.cause, finding.subject)]
        result.wrong_alarms[case.level] += bool(wrong)
        result.alarm_causes.update({finding.cause or "no cause" for finding in wrong})
        return
    ranked = sorted(
        (finding for finding in findings if finding.cause and finding.verdict in SEVERITY),
        key=lambda finding: (SEVERITY[finding.verdict], getattr(finding, "probability", None) or 0.0),
    )
    top = ranked[-1].cause if ranked else None
    named = {cause for finding in findings for cause, _ in statements(finding)}
    groups = [case.level, *case.faults]
    result.faults.update(groups)
    if top in case.faults:
        result.top.update([case.level, top])
    if named & case.faults:
        result.named.update([case.level, *(named & case.faults)])


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure how well the probabilities of gpucheck diagnose hold.")
    parser.add_argument("--seeds", type=int, default=10_000, help="Number of machines.")
    parser.add_argument("--first", type=int, default=0, help="First seed.")
    parser.add_argument("--jobs", type=int, default=1, help="Processes.")
    parser.add_argument("--write", type=Path, metavar="FILE", help="Also write the page to this file.")
    options = parser.parse_args()
    page = _page(options.first, options.seeds, options.jobs)
    if options.write:
        options.write.write_text(page, encoding="utf-8")
    print(page, end="")


def _page(first: int, count: int, jobs: int) -> str:
    from tests.diagnose.calibration_page import markdown, real_machines  # It imports this module.

    parts = [range(first + at, first + count, jobs) for at in range(jobs)]
    if jobs == 1:
        return f"{markdown(measure(parts[0]), first, count)}\n{real_machines()}"
    result = Calibration()
    with ProcessPoolExecutor(jobs) as pool:
        for part in pool.map(measure, parts):
            result.join(part)
    return f"{markdown(result, first, count)}\n{real_machines()}"


if __name__ == "__main__":
    main()
