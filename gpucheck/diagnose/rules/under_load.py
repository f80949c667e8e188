"""What the GPUs reported while copies ran, where no check found a fault in it."""

from collections.abc import Iterator

from gpucheck.checks._case import UNDER_LOAD, Case, Claim
from gpucheck.knowledge.codes import Subject
from gpucheck.model.diagnosis.observations import UnderLoad
from gpucheck.model.finding import Finding, Verdict
from gpucheck.printable import counted

SLOW_LINK = ("pcie-width-reduced", "pcie-link-downgraded")


def rule(case: Case) -> Iterator[Finding]:
    """One pass that claims what was read and no more."""
    rows = case.machine.measured.under_load
    found = any(one.check == UNDER_LOAD for one in case.findings)
    virtual = bool(case.machine.host.virtual)
    if rows and virtual:
        yield Claim(UNDER_LOAD, Verdict.SKIP).finding(
            "links.guest-reading", seen="not applicable: PCIe generation and width in a virtual machine"
        )
    slow = any(f.cause in SLOW_LINK for f in case.findings)
    if rows and not found and not slow:
        yield _fine(rows, virtual=virtual)


def _fine(rows: tuple[UnderLoad, ...], *, virtual: bool) -> Finding:
    full = all(None not in (row.gen, row.max_gen, row.width, row.max_width) for row in rows)
    read = {
        "at full PCIe link rate": full and not virtual,
        "not throttled": all(row.throttled is not None for row in rows),
        "no new link error": all(row.errors is not None for row in rows),
    }
    fine = [words for words, known in read.items() if known]
    count = counted(len(rows), "GPU")
    if fine:
        return Subject(check=UNDER_LOAD).passes(f"{count} {', '.join(fine)}")
    return Claim(UNDER_LOAD, Verdict.UNKNOWN).finding(
        "links.load-unread", seen="link state under load unknown: NVML does not report it"
    )
