"""Pairs that are slow in one direction only, where the numbers are too few to weigh."""

from collections.abc import Iterator

from gpucheck.diagnose.hypotheses.unexplained import ONE_DIRECTION
from gpucheck.diagnose.statements._case import Case, Claim
from gpucheck.diagnose.words import group_label, listed, span
from gpucheck.model.finding import Finding
from gpucheck.model.finding.verdict import Verdict

UNEVEN, BELOW = 0.82, 0.90  # of the other direction, and of a healthy pair


def state(case: Case) -> Iterator[Finding]:
    """Healthy direct pairs differ by a few per cent; staged ones by a fifth, so they are not looked at."""
    m, matrix = case.machine, case.machine.measured.p2p_uni_gb_s
    if matrix is None:
        return
    slow, there, back = [], [], []
    for pair in m.pairs:
        usual = case.world.usual(pair)
        if pair in case.blamed or case.world.way(pair) not in ("direct", "nvlink") or usual is None:
            continue
        for i, j in (pair, pair[::-1]):
            one, other = matrix[i][j], matrix[j][i]
            if one and other and one < UNEVEN * other and one < BELOW * usual:
                slow.append((i, j))
                there.append(one)
                back.append(other)
    if slow:
        yield Claim("p2p-bandwidth", Verdict.WARN).finding(
            subject=group_label(m, sorted({(min(way), max(way)) for way in slow})),
            seen=f"{span(there)} GB/s",
            wanted=f"{span(back)} GB/s as the other way",
            why=ONE_DIRECTION,
            fix="watch replay and AER counters while copying that way; nvidia-smi nvlink -e",
            evidence=(f"slow ways: {listed(slow)}",),
        )
