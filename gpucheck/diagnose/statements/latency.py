"""Small copies: whether peer access is really used, and whether a pair is unlike the others."""

from collections.abc import Iterator
from math import exp
from statistics import median

from gpucheck.diagnose.statements._case import Case, Claim
from gpucheck.diagnose.words import group_label, listed, span
from gpucheck.model.finding import Finding
from gpucheck.model.finding.verdict import Verdict
from gpucheck.printable import counted

CHECK = "p2p-latency"
ODD = 2.0  # times the median of the pairs of its class


def state(case: Case) -> Iterator[Finding]:
    """One finding for pairs far above their like, or one pass; nothing where copies are staged or explained."""
    m = case.machine
    direct: dict[tuple[int, int], float] = {}
    for number, _ in case.fits:
        pair = number.pair
        if number.quantity == "p2p-latency" and case.world.way(pair) in ("direct", "nvlink"):
            direct[pair] = max(direct.get(pair, 0.0), exp(number.value))
    if not direct:
        return
    by_class: dict[str | None, list[float]] = {}
    for pair, us in direct.items():
        by_class.setdefault(m.classes[pair], []).append(us)
    most = {cls: ODD * median(values) for cls, values in by_class.items()}
    odd = [pair for pair, us in direct.items() if us > most[m.classes[pair]] and pair not in case.blamed]
    if odd:
        yield Claim(CHECK, Verdict.WARN).finding(
            subject=group_label(m, odd),
            seen=round(max(direct[pair] for pair in odd), 1),
            wanted=round(max(most[m.classes[pair]] for pair in odd), 1),
            unit="us",
            why=f"GPU {listed(odd)}: slower than the other pairs of the same class",
            fix="nvidia-smi topo -p2p r; compare with gpucheck topo; check power saving of CPU and PCIe in the BIOS",
        )
    elif not case.blamed & set(direct):
        yield Claim(CHECK, Verdict.PASS).finding(seen=f"{span(direct.values())} us, {counted(len(direct), 'GPU pair')}")
