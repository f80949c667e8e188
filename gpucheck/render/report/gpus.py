"""The GPUs of a report, one row each: what each is, its state at the time of the report, and the worst finding."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from gpucheck.model import Finding, Report, TopologyGpu, Verdict
from gpucheck.model.finding.naming import bus_ids
from gpucheck.model.record import RECORD, GpuRecord, HealthRecord
from gpucheck.render.topology.boxes import absent, describe_link
from gpucheck.render.words import number, plural

# More processes of one GPU than this are counted.
PROCESSES = 3
BAD = (Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN)


class Cell(NamedTuple):
    """kind: a verdict that colors it, or empty."""

    label: str
    text: str
    detail: str = ""
    kind: str = ""


class Row(NamedTuple):
    """One GPU. number: NVML's index, None if unknown. verdict: of the worst finding about it, None without one.

    absent: why it has no cells: the cause of a GPU that is not usable.
    """

    number: int | None
    name: str
    bus_id: str
    uuid: str
    serial: str
    verdict: Verdict | None
    cells: tuple[Cell, ...]
    absent: str = ""


def record(report: Report) -> HealthRecord:
    """Return what the report keeps of each GPU; an empty record where it keeps none or another form of it."""
    kept: Any = report.measurements.get(RECORD, {})
    try:
        return msgspec.convert(kept, HealthRecord, strict=False)
    except (msgspec.ValidationError, ValueError):
        return HealthRecord()


def rows(report: Report) -> list[Row]:
    """Return the GPUs by index, those that are not usable too; empty if the report names none."""
    kept = {gpu.bus_id: gpu for gpu in record(report).gpus}
    if report.topology is None or not report.topology.gpus:
        return []
    found = [_row(gpu, kept.get(gpu.pci_bus_id or ""), report.findings) for gpu in report.topology.gpus]
    found += [
        Row(gpu.number, "not usable", gpu.bus_id, "", "", gpu.fault.verdict, (), gpu.fault.cause)
        for gpu in absent(report.topology, report.findings)
    ]
    return sorted(found, key=lambda row: len(found) if row.number is None else row.number)


def _row(gpu: TopologyGpu, one: GpuRecord | None, findings: Iterable[Finding]) -> Row:
    bad = [f for f in findings if f.verdict in BAD and gpu.pci_bus_id in bus_ids(f.subject)]
    worst = min((f.verdict for f in bad), key=BAD.index, default=None)
    of_check = {f.check: f.verdict.value for f in sorted(bad, key=lambda f: -BAD.index(f.verdict))}

    def kind(*checks: str) -> str:
        found = (of_check[check] for check in checks if check in of_check)
        return min(found, key=[verdict.value for verdict in BAD].index, default="")

    hot = kind("throttle") if any(f.check == "throttle" and "thermal" in str(f.seen) for f in bad) else ""
    cells = () if one is None else tuple(_cells(one, kind, hot))
    name, serial = gpu.name or "unnamed GPU", (one.serial if one else None) or ""
    return Row(gpu.index, name, gpu.pci_bus_id or "", gpu.uuid or "", serial, worst, cells)


def _cells(one: GpuRecord, kind: Callable[..., str], hot: str) -> Iterator[Cell]:
    """The state of a GPU. kind: verdict of the checks that evaluate a cell. hot: that of clocks lowered by heat."""
    slowdown = "" if one.temperature_slowdown_c is None else f"slowdown at {one.temperature_slowdown_c}"
    yield Cell("temperature", _unit(one.temperature_c, "\u00b0C"), slowdown, hot)
    yield Cell("power", _unit(one.power_w, "W"), _of(one.power_limit_w, "W"), kind("power-limit"))
    yield Cell(
        "SM clock", _unit(one.sm_clock_mhz, "MHz"), _of(one.max_sm_clock_mhz, "MHz"), kind("throttle", "clock-limit")
    )
    yield Cell("memory used", _unit(one.memory_used_mib, "MiB"), _of(one.memory_mib, "MiB"))
    ecc = "no ECC" if one.ecc is None else "ECC on" if one.ecc else "ECC off"
    yield Cell("memory errors", memory_errors(one) or "\u2013", ecc, kind("memory-errors"))
    now, most = one.pcie.width, describe_link(one.pcie.max_generation, one.pcie.max_width)
    able = f"of {most}" if most else ""
    yield Cell("PCIe lanes", f"x{now}" if now else "\u2013", able, kind("pcie-link", "p2p-bandwidth"))
    up = f"{one.active_nvlinks} of {len(one.nvlinks)}" if one.nvlinks else "\u2013"
    yield Cell("NVLinks up", up, "", kind("nvlink", "nvlink-links", "nvlink-errors"))
    yield Cell("processes", *_processes(one), kind("processes"))


def _processes(one: GpuRecord) -> tuple[str, str]:
    if not one.processes:
        return ("\u2013" if one.processes is None else "0"), ""
    names = [f"{process.name or 'unknown'} ({process.pid})" for process in one.processes[:PROCESSES]]
    more = [plural(len(one.processes) - PROCESSES, "more process").replace("processs", "processes")]
    return str(len(one.processes)), ", ".join(names + (more if len(one.processes) > PROCESSES else []))


def _unit(value: float | None, unit: str) -> str:
    return "\u2013" if value is None else f"{number(round(value, 1))} {unit}"


def _of(value: float | None, unit: str) -> str:
    return "" if value is None else f"of {number(round(value, 1))} {unit}"


def memory_errors(one: GpuRecord | None) -> str:
    """Uncorrectable ECC errors, and what the GPU does about them."""
    if one is None:
        return ""
    counts = [n for n in (one.ecc_errors.volatile_uncorrected, one.ecc_errors.aggregate_uncorrected) if n is not None]
    parts = [f"{max(counts)} uncorrectable"] if counts else []
    remap, retired = one.row_remap, one.retired_pages
    if remap is not None:
        parts += ["remapping failed"] if remap.failed else ["remapping pending"] if remap.pending else []
    if retired is not None and retired.pending:
        parts.append("page retirement pending")
    return ", ".join(parts)
