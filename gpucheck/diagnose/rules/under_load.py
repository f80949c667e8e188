"""What the GPUs reported while copies ran: brakes and new errors. Link states are in links.py."""

from collections.abc import Iterator

from gpucheck.diagnose._case import Case, Claim
from gpucheck.model.diagnosis.observations import UnderLoad
from gpucheck.model.finding import Finding
from gpucheck.model.finding.verdict import Verdict
from gpucheck.printable import counted

CHECK = "links-under-load"
BRAKES = ("hw-slowdown", "hw-thermal", "hw-power-brake")
AGAIN = "then: gpucheck bandwidth"
SLOW_LINK = ("pcie-width-reduced", "pcie-link-downgraded")


def rule(case: Case) -> Iterator[Finding]:
    """Findings of single GPUs, or one pass that claims what was read and no more."""
    rows = case.machine.measured.under_load
    found = [finding_ for row in rows for finding_ in _gpu(case, row)]
    yield from found
    virtual = bool(case.machine.host.virtual)
    if rows and virtual:
        yield Claim(CHECK, Verdict.SKIP).finding(
            seen="not applicable: PCIe generation and width in a virtual machine",
            why="the guest shows the card's maximum and the host's real link, or what the hypervisor makes up",
        )
    slow = any(f.cause in SLOW_LINK for f in case.findings)
    if rows and not found and not slow:
        yield _fine(rows, virtual=virtual)


def _gpu(case: Case, row: UnderLoad) -> Iterator[Finding]:
    subject = case.machine.gpu_label(row.gpu)
    brakes = sorted(set(row.throttled or ()) & set(BRAKES))
    if brakes:
        words = ", ".join(brakes)
        yield Claim(CHECK, Verdict.WARN, "throttled", "certain").finding(
            subject=subject,
            seen=f"throttled while copying: {words}",
            why="heat, power or an external signal slows the GPU down, so its numbers are lower than its links",
            fix=f"check airflow, fans, power supplies and cabling; {AGAIN}",
            evidence=(f"nvmlDeviceGetCurrentClocksEventReasons: {words}",),
        )
    if row.errors:
        names = ", ".join(f"{name} +{count}" for name, count in row.errors.items())
        pcie = any(name.startswith("PCIe") for name in row.errors)
        yield Claim(CHECK, Verdict.WARN, "pcie-errors" if pcie else "nvlink-errors", "certain").finding(
            subject=subject,
            seen=f"new errors while copying: {names}",
            why="the link repeats transfers: it works, and is about to get slower or fail",
            fix="reseat or clean card, bridge and cables, replace them if the counters go on rising",
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
        return Claim(CHECK, Verdict.PASS).finding(seen=f"{count} {', '.join(fine)}")
    return Claim(CHECK, Verdict.UNKNOWN).finding(
        seen="link state under load unknown: NVML does not report it",
        why="NVML reported neither link rate, throttle reasons nor error counters of these GPUs",
        fix="nvidia-smi -q -d PCIE,PERFORMANCE shows what the driver reports",
    )
