"""Copies between host memory and each GPU: memory of the wrong NUMA node, the link, or host memory itself."""

from collections.abc import Iterator

from gpucheck.checks._case import Case, Claim, percent, span
from gpucheck.checks._healthy import Level, host_copy, level
from gpucheck.checks._machine import FASTEST_SLOT, Machine
from gpucheck.checks.pcie.numa import ABOVE_PCIE, COPIES, placed
from gpucheck.checks.pcie.path import low_uplinks
from gpucheck.diagnose.rules.copies import fits_half
from gpucheck.diagnose.suspects import suspects
from gpucheck.model.finding import Confidence, Finding, Verdict
from gpucheck.printable import counted
from gpucheck.topology.expected import FAR

ALIKE = 0.70  # of the fastest GPU: all are slow for one reason
FAIL_BELOW = 0.60  # of the healthy median


def rule(case: Case) -> Iterator[Finding]:
    """Each GPU with host copies, but for those whose link another rule names."""
    m = case.machine
    blind: dict[int, float] = {}
    low: dict[int, Level] = {}
    fine: dict[int, Level] = {}
    blamed = {one.subject for one in case.findings if one.verdict in (Verdict.FAIL, Verdict.WARN)}
    wrong: set[int] = set()
    for i in range(m.count):
        rows = [row for row in m.measured.host_device if row.gpu == i and row.slower]
        mine = {pair for pair in m.pairs if i in pair}
        # Pairs that are slow for the same link are named already, and so is a way up that was read below its maximum.
        named = len(mine & case.slow) * 2 >= len(mine) > 0 or any(
            i in group and low_uplinks(m, group) for group in m.uplinks
        )
        if not rows or m.gpu_label(i) in blamed or named:
            continue
        if found := placed(m, i, rows):
            wrong.add(i)
            yield found
            continue
        best = max(rows, key=lambda row: row.slower)
        node = m.gpu(i).numa_node
        far = None if best.numa_node is None or node is None else best.numa_node != node
        row = level(best.slower, host_copy(m, i, far=far))
        if row is None and best.slower <= ABOVE_PCIE * FASTEST_SLOT:
            blind[i] = best.slower
        elif row is None:
            continue
        elif row.value <= ABOVE_PCIE * row.usual.line:
            (fine if row.is_healthy else low)[i] = row
        else:
            fine[i] = row._replace(
                usual=row.usual._replace(gb_s=row.value, basis="a faster way to host memory than PCIe")
            )
    if blind:
        yield Claim(COPIES, Verdict.UNKNOWN).finding(
            "access.host-link-unknown",
            seen=f"{span(blind.values())} GB/s between host memory and {counted(len(blind), 'GPU')}",
        )
    if fine and not low and not wrong:
        yield Claim(COPIES, Verdict.PASS).finding(
            "access.host-healthy",
            seen=f"{span(row.value for row in fine.values())} GB/s between host memory and {counted(len(fine), 'GPU')}"
            f", {percent(row.part for row in fine.values())} of expected",
            basis=next(iter(fine.values())).usual.basis,
        )
    coherent = {i: row for i, row in low.items() if (model := m.models[i]) and model.c2c}
    yield from _low_c2c(m, coherent)
    yield from _low(m, {i: low[i] for i in low.keys() - coherent.keys()}, len(low) + len(fine) + len(wrong))


def _low_c2c(m: Machine, low: dict[int, Level]) -> Iterator[Finding]:
    """Below what NVLink-C2C reaches: its links, or memory of the other Grace CPU."""
    for i, row in low.items():
        far = row.value < row.usual.far
        verdict = Verdict.UNKNOWN if m.host.virtual or (row.usual.vague and not far) else Verdict.WARN
        yield Claim(COPIES, Verdict.FAIL if far and not row.usual.vague else verdict).finding(
            "access.host-c2c-slow",
            subject=m.gpu_label(i),
            seen=row.value,
            wanted=row.usual.gb_s,
            evidence=(f"{percent([row.part])} of the healthy rate",),
            basis=row.usual.basis,
        )


def _low(m: Machine, low: dict[int, Level], count: int) -> Iterator[Finding]:
    values = [row.value for row in low.values()]
    if len(low) == count > 1 and min(values) > ALIKE * max(values):
        slots = fits_half(list(low.values())) and not all(map(m.is_slot_read, low))
        verdict = (
            Verdict.WARN
            if all(row.z < FAR and row.value < row.usual.far for row in low.values()) and not slots
            else Verdict.UNKNOWN
        )
        verdict = Verdict.UNKNOWN if m.host.virtual else verdict
        yield Claim(COPIES, verdict).finding(
            "access.host-all-slow",
            seen=f"{span(values)} GB/s between host memory and {counted(count, 'GPU')}",
            wanted=f"about {span(row.usual.gb_s for row in low.values())} GB/s",
        )
        return
    for i, row in low.items():
        pairs = [pair for pair in m.pairs if i in pair] or [(i, i)]
        found = [one.cause for one in suspects(m, "one-gpu", pairs)]
        far = row.z < FAR and row.value < row.usual.far
        failed = row.part < FAIL_BELOW and far and bool(found) and count > 1
        verdict = Verdict.FAIL if failed else Verdict.WARN if far else Verdict.UNKNOWN
        verdict = Verdict.UNKNOWN if m.host.virtual else verdict
        sure: Confidence | None = "possible" if found else None
        yield Claim(COPIES, verdict, found[0] if found else None, sure, tuple(found[1:])).finding(
            "access.host-one-slow" if found else "access.host-one-unexplained",
            subject=m.gpu_label(i),
            seen=row.value,
            wanted=row.usual.gb_s,
            evidence=(f"{percent([row.part])} of the healthy rate",),
            basis=row.usual.basis,
            suspect=found[0] if found else None,
        )
