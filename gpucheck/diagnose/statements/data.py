"""Data that was compared and right, and a GPU whose own comparison cannot be trusted."""

from collections.abc import Iterator

from gpucheck.diagnose.readings import bad_pairs
from gpucheck.diagnose.statements._case import Case, Claim
from gpucheck.diagnose.words import group_label, listed
from gpucheck.model.finding import Finding
from gpucheck.model.finding.verdict import Verdict

CHECK = "p2p-integrity"
UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def state(case: Case) -> Iterator[Finding]:
    """Wrong data is weighed with everything else; this reports what was correct."""
    m = case.machine
    distrusted = sorted({pair for row in m.measured.damaged if row.host_only for pair in row.pairs})
    if distrusted:
        yield Claim(CHECK, Verdict.FAIL, "data-corruption", "likely").finding(
            subject=group_label(m, sorted({(min(p), max(p)) for p in distrusted})),
            seen=f"GPU {listed(distrusted)}: wrong on the host, right on the GPU",
            why="the GPU that compared, or its path to the host, corrupts data: its own result cannot be trusted",
            fix="dmesg | grep -e Xid -e AER; reset the GPU; if it returns, replace the card",
        )
    elif m.measured.bytes_compared and not bad_pairs(m):
        yield Claim(CHECK, Verdict.PASS).finding(seen=f"{_bytes(m.measured.bytes_compared)} compared, no wrong word")
    elif m.measured.integrity_bad_pairs == () and not m.measured.damage and not bad_pairs(m):
        yield Claim(CHECK, Verdict.PASS).finding(seen="every byte that was compared was right")


def _bytes(count: int) -> str:
    return next((f"{count / unit:.1f} {name}" for unit, name in UNITS if count >= unit), f"{count} B")
