"""What a report may say after one answer of NVML was spoilt: the rules, and who breaks them."""

from collections.abc import Iterator

from gpucheck.model import Finding, Verdict
from tests.boundary import (
    DEPRECATED,
    IDENTITY,
    LOST,
    LOUD,
    NEEDS_RESET,
    NOT_IN_LIBRARY,
    NOT_SUPPORTED,
    OF_PAIRS,
    RESTS_ON,
    START,
    USES,
    Case,
    Machine,
    of_gpu,
)

Broken = Iterator[tuple[str, str]]


def broken_rules(case: Case, machine: Machine, now: tuple[Finding, ...]) -> set[tuple[str, str]]:
    """The rules that a report breaks, each with the check that breaks it."""
    hit = machine.bus_ids if case.gpu is None else [machine.bus_ids[case.gpu]]
    affected = {f"gpu:{bus_id}" for bus_id in hit} | {"host"}
    return {
        *_accused(case, machine, now),
        *_passed(case, machine, now, affected),
        *_overlooked(case, machine, now),
        *(_changed(case, machine, now, affected) if case.call not in START else ()),
    }


def _accused(case: Case, machine: Machine, now: tuple[Finding, ...]) -> Broken:
    before = {(f.check, f.subject, f.verdict, f.cause) for f in machine.healthy}
    for finding in now:
        if finding.cause == "wedged-driver":
            yield finding.check, "wedged-driver without a hang or a signal"
        if finding.verdict in LOUD and (finding.check, finding.subject, finding.verdict, finding.cause) not in before:
            certain = finding.confidence == "certain"
            if not _has_evidence(case, finding, certain=certain):
                yield finding.check, "certain without evidence" if certain else "accuses without evidence"


def _passed(case: Case, machine: Machine, now: tuple[Finding, ...], affected: set[str]) -> Broken:
    """A refusal by which NVML says that there is no such thing may make a check not applicable; no other may."""
    # INVALID_ARGUMENT is what an older driver answers for a field that it does not know.
    absent = (NOT_SUPPORTED, NOT_IN_LIBRARY, DEPRECATED, *((2,) if case.call.startswith("NVML_FI") else ()))
    asked = case.call in machine.made and case.call not in machine.refuses
    counts = case.whole and case.how not in absent and asked
    for check in [check for check, calls in RESTS_ON.items() if counts and case.call in calls]:
        was, own = (
            {f.verdict for f in findings if f.check == check and f.subject in affected}
            for findings in (machine.healthy, now)
        )
        if Verdict.PASS in was and own == {Verdict.PASS}:
            yield check, "PASS although refused"
        if Verdict.PASS in was and own == {Verdict.SKIP} and not case.denies_links:
            yield check, "SKIP as not applicable although refused"


def _overlooked(case: Case, machine: Machine, now: tuple[Finding, ...]) -> Broken:
    was, seen = (
        {f.seen for f in findings if f.check == "topology" and f.verdict is Verdict.PASS}
        for findings in (machine.healthy, now)
    )
    if seen - was and case.call not in IDENTITY and not case.denies_links:
        yield "topology", "PASS with other classes than the machine has"
    lost = any(f.cause == "gpu-lost" and f.verdict is Verdict.FAIL for f in now)
    made = case.call in machine.made  # of an older function only where the newer one is not there
    if case.how == LOST and made and not lost and of_gpu(case.call) and case.call not in OF_PAIRS:
        yield "inventory", "a lost GPU is reported nowhere"


def _has_evidence(case: Case, finding: Finding, *, certain: bool) -> bool:
    """What a refusal by itself may be held to prove."""
    if case.how in (LOST, NEEDS_RESET):
        return finding.cause in ("gpu-lost", "gpu-reset-required")
    if case.call in START and isinstance(case.how, int):
        # NVML cannot be used, which is a failure; why, only this code says: the module is loaded on each machine here.
        named = {18: "driver-mismatch"}.get(case.how)
        return finding.check == "driver" and (finding.cause == named or not certain)
    if case.call in IDENTITY:
        return finding.check == "inventory" and not certain
    return case.denies_links and finding.check in ("nvlink", "topology") and not certain


def _changed(case: Case, machine: Machine, now: tuple[Finding, ...], affected: set[str]) -> Broken:
    """Checks that judge otherwise although they never ask, or about GPUs that answered."""
    whole = case.call in IDENTITY or case.how in (LOST, NEEDS_RESET)
    # That one compares all answers of equal GPUs.
    for check in {f.check for f in (*machine.healthy, *now)} - {"nvml-answers"}:
        asks = case.call in RESTS_ON.get(check, set()) | USES.get(check, set())
        free = affected if whole or asks else set()
        if asks and case.gpu is None:
            continue
        was, is_now = (_verdicts(check, findings, free) for findings in (machine.healthy, now))
        if was != is_now:
            yield check, "changes although it never asked" if not asks else "changes for a GPU that answered"


def _verdicts(check: str, findings: tuple[Finding, ...], free: set[str]) -> list[tuple[str, str, str | None]]:
    pairs = "host" in free  # a pair has an end that is affected, or stands for the host
    own = [f for f in findings if f.check == check and f.subject not in free]
    return sorted(
        (f.subject, f.verdict.value, str(f.cause)) for f in own if not (pairs and f.subject.startswith("pair:"))
    )
