"""One direction of a pair slow, the other fine."""

from collections.abc import Iterator

from gpucheck.diagnose._rule import Case, Diagnosis, Rule, finding, listed, span
from gpucheck.diagnose.machine import Pair
from gpucheck.model.verdict import Verdict

# Healthy direct pairs differ by a few per cent; staged ones by a fifth (POWER8: 20 and 25), so they are not judged.
UNEVEN = 0.80


def judge(case: Case) -> Iterator[Diagnosis]:
    """Ordered pairs far below their way back and below what they should reach."""
    slow = [way for way in _slow_ways(case) if (min(way), max(way)) not in case.explained]
    if not slow:
        return
    m = case.machine
    common = _common(slow)
    matrix = m.measured.p2p_uni_gb_s or ()
    there, back = [matrix[i][j] or 0.0 for i, j in slow], [matrix[j][i] or 0.0 for i, j in slow]
    joined = all(m.is_nvlink((min(way), max(way))) for way in slow)
    subject, words = "host", "one direction is slow, the way back is not"
    if common is not None:
        i, role = common
        subject, words = f"gpu:{m.label(i)}", f"only what this GPU {role} is slow, the other way is not"
    elif len(slow) == 1:
        subject = m.pair_label((min(slow[0]), max(slow[0])))
    bad = min(a / b for a, b in zip(there, back, strict=True)) < 0.70
    yield Diagnosis(
        finding(
            RULE.name,
            Verdict.FAIL if bad else Verdict.WARN,
            "nvlink-errors" if joined else "pcie-link-downgraded",
            "possible",
            subject=subject,
            seen=f"{span(there)} GB/s",
            wanted=f"{span(back)} GB/s as the other way",
            why=f"{words}: lanes of one direction with errors and retries, or a port with too few credits",
            fix="nvidia-smi nvlink -e" if joined else "watch replay and AER counters while copying that way",
            evidence=[f"slow ways: {listed(slow)}"],
        ),
        frozenset((min(way), max(way)) for way in slow),
    )


def _slow_ways(case: Case) -> list[Pair]:
    m, matrix = case.machine, case.machine.measured.p2p_uni_gb_s
    if matrix is None:
        return []
    found = []
    for i, j in ((a, b) for pair in m.pairs if m.direct[pair] is not False for a, b in (pair, pair[::-1])):
        there, back = matrix[i][j], matrix[j][i]
        if there is None or back is None or there >= UNEVEN * back:
            continue
        goal = case.rates.goals[min(i, j), max(i, j)]
        # Where both directions are in the expected range their difference is the platform's.
        if goal is None or there < goal.warn:
            found.append((i, j))
    return found


def _common(slow: list[Pair]) -> tuple[int, str] | None:
    """The GPU that sends, or receives, all of several slow directions."""
    if len(slow) < 2:
        return None
    sources, targets = {i for i, _ in slow}, {j for _, j in slow}
    if len(sources) == 1:
        return sources.pop(), "sends"
    return (targets.pop(), "receives") if len(targets) == 1 else None


RULE = Rule(
    name="direction",
    order=38,
    title="One direction slow",
    looks_at="p2p_uni_gb_s of pairs with P2P, both ways",
    formula="one way below 0.80 x the way back and below its own warning limit; sums of both ways are never used, "
    "since "
    "healthy NVSwitch machines show two plateaus there",
    sources=("facts of measured machines", "DistServe#3 for the plateaus"),
    cases=("POWER8 with four P100 (staged 20 and 25: healthy)", "DistServe#3 (healthy)"),
    judge=judge,
)
