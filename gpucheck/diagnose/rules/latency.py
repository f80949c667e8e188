"""Small copies: whether a pair is unlike the others of its path."""

from collections.abc import Iterator
from statistics import median

from gpucheck.checks._case import Case, Claim, listed, span
from gpucheck.knowledge.codes import Subject
from gpucheck.model.finding import Finding, Verdict
from gpucheck.printable import counted

CHECK = "p2p-latency"
ODD = 2.0  # times the median of the pairs of its class


def rule(case: Case) -> Iterator[Finding]:
    """One finding for pairs far above their like, or one pass; nothing if copies are staged or explained."""
    m, matrix = case.machine, case.machine.measured.p2p_latency_us
    direct = {}
    for i, j in m.pairs if matrix else ():
        times = [us for us in (matrix[i][j], matrix[j][i]) if us]  # type: ignore[index]
        if times and (m.access[i, j] or m.joined((i, j))):
            direct[i, j] = max(times)
    if not direct:
        return
    by_class: dict[str | None, list[float]] = {}
    for pair, us in direct.items():
        by_class.setdefault(m.classes[pair], []).append(us)
    most = {cls: ODD * median(values) for cls, values in by_class.items()}
    odd = [pair for pair, us in direct.items() if us > most[m.classes[pair]] and pair not in case.slow]
    if odd:
        yield Claim(CHECK, Verdict.WARN).finding(
            "copies.latency-odd",
            subject=m.subject(odd),
            seen=round(max(direct[pair] for pair in odd), 1),
            wanted=round(max(most[m.classes[pair]] for pair in odd), 1),
            unit="us",
            pairs=listed(odd),
        )
    elif not case.slow & set(direct):
        yield Subject(check=CHECK).passes(f"{span(direct.values())} us, {counted(len(direct), 'GPU pair')}")
