"""What the GPUs reported while copies ran: brakes and new errors. Link states are in links.py."""

from collections.abc import Iterator

from gpucheck.checks._case import Case, Claim
from gpucheck.knowledge.codes import Subject
from gpucheck.model.diagnosis.observations import UnderLoad
from gpucheck.model.finding import Finding
from gpucheck.model.finding.verdict import Verdict
from gpucheck.printable import counted

CHECK = "links-under-load"
BRAKES = ("hw-slowdown", "hw-thermal", "hw-power-brake")
SLOW_LINK = ("pcie-width-reduced", "pcie-link-downgraded")


def rule(case: Case) -> Iterator[Finding]:
    """Findings of single GPUs, or one pass that claims what was read and no more."""
    rows = case.machine.measured.under_load
    found = [finding_ for row in rows for finding_ in _gpu(case, row)]
    yield from found
    virtual = bool(case.machine.host.virtual)
    if rows and virtual:
        yield Claim(CHECK, Verdict.SKIP).finding(
            "links.guest-reading", seen="not applicable: PCIe generation and width in a virtual machine"
        )
    slow = any(f.cause in SLOW_LINK for f in case.findings)
    if rows and not found and not slow:
        yield _fine(rows, virtual=virtual)


def _gpu(case: Case, row: UnderLoad) -> Iterator[Finding]:
    subject = case.machine.gpu_label(row.gpu)
    brakes = sorted(set(row.throttled or ()) & set(BRAKES))
    if brakes:
        words = ", ".join(brakes)
        yield Claim(CHECK, Verdict.WARN).finding(
            "links.throttled-copying",
            subject=subject,
            seen=f"throttled while copying: {words}",
            evidence=(f"nvmlDeviceGetCurrentClocksEventReasons: {words}",),
        )
    if row.errors:
        names = ", ".join(f"{name} +{count}" for name, count in row.errors.items())
        pcie = any(name.startswith("PCIe") for name in row.errors)
        yield Claim(CHECK, Verdict.WARN).finding(
            "links.pcie-errors-new" if pcie else "links.nvlink-errors-new",
            subject=subject,
            seen=f"new errors while copying: {names}",
            evidence=tuple(f"{name}: +{count} during the copies" for name, count in row.errors.items()),
        )


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
        return Subject(check=CHECK).passes(f"{count} {', '.join(fine)}")
    return Claim(CHECK, Verdict.UNKNOWN).finding(
        "links.load-unread", seen="link state under load unknown: NVML does not report it"
    )
