"""What the GPUs reported while copies ran: brakes, new errors, and link states that no explanation holds."""

from collections.abc import Iterator

from gpucheck.diagnose.hypotheses._links import best_numbers
from gpucheck.diagnose.machine import rate_of
from gpucheck.diagnose.statements._case import Case, Claim
from gpucheck.model.diagnosis.observations import UnderLoad
from gpucheck.model.finding import Finding
from gpucheck.model.finding.verdict import Verdict
from gpucheck.printable import counted

CHECK = "links-under-load"
BRAKES = ("hw-slowdown", "hw-thermal", "hw-power-brake")
AGAIN = "then: gpucheck bandwidth"
SLOW_LINK = ("pcie-width-reduced", "pcie-link-downgraded")


def state(case: Case) -> Iterator[Finding]:
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
    yield from _link(case, row, subject)
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
        yield Claim(CHECK, Verdict.WARN, "pcie-errors" if pcie else "nvlink-errors", "likely").finding(
            subject=subject,
            seen=f"new errors while copying: {names}",
            why="the link repeats transfers: it works, and is about to get slower or fail",
            fix="reseat or clean card, bridge and cables, replace them if the counters go on rising",
            evidence=tuple(f"{name}: +{count} during the copies" for name, count in row.errors.items()),
        )


def _link(case: Case, row: UnderLoad, subject: str) -> Iterator[Finding]:
    """A link that was read below its maximum, while more passed it than such a link carries: it changes."""
    m = case.machine
    if m.host.virtual or m.is_narrow_by_design(row.gpu):
        return
    limit = m.link[row.gpu]
    links = (
        (SLOW_LINK[0], "x", row.width, row.max_width, limit.max_width),
        (SLOW_LINK[1], "Gen", row.gen, row.max_gen, limit.max_generation),
    )
    for cause, sign, now, card, path in links:
        most = min(card or 0, path or card or 0)
        if not now or now >= most or any(f.cause == cause and _about(f, subject) for f in case.findings):
            continue
        best = best_numbers(m).get(row.gpu, 0.0)
        raw = rate_of(row.gen or row.max_gen, row.width or row.max_width)
        more = f", and {best:.3g} GB/s passed it, more than such a link carries" if raw and best > raw else ""
        yield Claim(CHECK, Verdict.WARN, cause, "likely").finding(
            subject=subject,
            seen=f"{sign}{now}",
            wanted=f"{sign}{most}",
            why=f"read while copies ran{more}: the link changes its speed, and is slow some of the time",
            fix=f"nvidia-smi -q -d PCIE several times while copying; {AGAIN}",
            evidence=(f"Gen{row.gen or '?'} x{row.width or '?'} of Gen{row.max_gen or '?'} x{row.max_width or '?'}",),
        )


def _about(found: Finding, subject: str) -> bool:
    """Whether a finding is about this GPU, alone or among others."""
    return found.subject == "host" or subject.partition(":")[2] in found.subject


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
