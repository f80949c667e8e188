"""One machine's observations to findings.

What was read decides: registers, status words, denied access, bytes that were compared. A number is only compared with
the healthy machine of that model; the pattern of those below gives the suspects, which readings strike or move up.
PASS needs the healthy range, or a reading that explains the number.
"""

from collections.abc import Callable, Iterable

from gpucheck.checks._case import Case, observed
from gpucheck.checks._machine import Machine
from gpucheck.checks.gpu import settings
from gpucheck.checks.host import environment
from gpucheck.checks.nvlink import errors as nvlink_errors
from gpucheck.checks.nvlink import links as nvlinks
from gpucheck.checks.p2p import status
from gpucheck.checks.pcie import acs, bar1, link, path
from gpucheck.checks.pcie import errors as pcie_errors
from gpucheck.diagnose.rules import collectives, copies, data, nics, other_copies, sharing
from gpucheck.model.diagnosis.observations import Observations
from gpucheck.model.finding import Finding, Verdict, identity

# Wrong data, registers and hangs come first: their causes explain slow copies too. Collectives come last.
RULES: tuple[Callable[[Case], Iterable[Finding]], ...] = (
    data.rule,
    link.rule,
    path.rule,
    nvlinks.rule,
    status.rule,
    data.hang_rule,
    data.failure_rule,
    copies.rule,
    other_copies.host_rule,
    other_copies.rule,
    settings.throttled_copying,
    pcie_errors.rule,
    nvlink_errors.rule,
    sharing.load_rule,
    other_copies.latency_rule,
    sharing.rule,
    other_copies.flow_rule,
    environment.rule,
    acs.iommu_rule,
    acs.rule,
    status.rule_unmeasured,
    bar1.rule,
    collectives.rule,
    nics.rule,
)
ORDER = (Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN, Verdict.PASS, Verdict.SKIP)
SURE = ("certain", "likely", "possible", None)


def diagnose(seen: Observations) -> tuple[Finding, ...]:
    """Return the findings about one machine, the worst first; the same cause about the same subject once."""
    case = Case(Machine(seen))
    for rule in RULES:
        case.findings += rule(case)
    if not case.findings and case.machine.count != 1:
        unmeasured = f"{case.machine.count} GPUs, copies not measured"
        case.findings.append(observed("p2p-bandwidth").unknown("copies.nothing-measured", unmeasured))
    best: dict[tuple[object, ...], Finding] = {}
    for one in sorted(case.findings, key=lambda f: (ORDER.index(f.verdict), SURE.index(f.confidence))):
        # Two numbers that pass are two results.
        number = one.seen if one.verdict is Verdict.PASS and not isinstance(one.seen, str) else None
        best.setdefault((one.cause, one.subject) if one.cause else (*identity(one), number), one)
    return tuple(best.values())
