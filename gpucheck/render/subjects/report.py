"""A host's report: for a terminal its findings, for a page all that was read and measured."""

from collections.abc import Iterator, Sequence

from gpucheck.model import Finding, Gpu, GpuProcess, Report, Verdict
from gpucheck.model.finding import bus_ids
from gpucheck.model.measurements import copies_of
from gpucheck.model.record import facts_of
from gpucheck.printable import of_printable
from gpucheck.render.blocks import (
    Cell,
    Column,
    Document,
    Findings,
    Properties,
    Row,
    Section,
    Table,
    document_of,
    numbers,
    words,
)
from gpucheck.render.findings import TROUBLE, host_gpus, worst_first
from gpucheck.render.subjects import collectives, compute, copies, smoke, topology
from gpucheck.render.topology import absent, heading
from gpucheck.render.words import count_models, counts_line, number, plural


@of_printable
def document(report: Report, *, command: str = "verify", whole: bool = False, state: bool = False) -> Document:
    """The findings. command: what made the report. whole: with GPUs, measurements, topology and host.

    state: with the state of each GPU.
    """
    groups, counts = worst_first(report.findings, host_gpus(report)), counts_line(report.counts)
    problems = sum(group.verdict in TROUBLE for group in groups)
    return document_of(
        report,
        command,
        components=report.simulation.stand_ins if report.simulation else (),
        lines=() if whole else [*_lines(report)],
        unproven=report.not_proven,
        summary=f"{plural(problems, 'problem')}: {counts}" if problems else counts,
        findings=Findings(groups, each_pass=whole),
        body=[*_sections(report)] if whole else [*gpu_section(report)] if state else (),
    )


def _lines(report: Report) -> Iterator[str]:
    system, versions = report.system, report.versions
    yield ", ".join(
        filter(None, (system.os_name, f"kernel {system.kernel}", system.arch, system.virtual, system.container))
    )
    parts = [f"driver {versions['driver']}" if versions.get("driver") else "no driver"]
    parts += [f"{name} {versions[name]}" for name in ("cuda", "torch") if versions.get(name)]
    parts += count_models(report.topology.gpus, unnamed="GPU") if report.topology else []
    yield ", ".join(parts)


def _sections(report: Report) -> Iterator[Section]:
    found = copies_of(report.measurements)
    yield from gpu_section(report)
    if found and (found.pairs or found.host_device):
        yield copies.section(found, report.findings)
    yield from compute.section(report)
    yield from filter(None, (collectives.section(report), smoke.section(report)))
    if report.topology is not None:
        made = report.simulation
        about = " ".join((made.profile, *made.faults)) if made else ""
        yield from topology.sections(report.topology, report.findings, about)
    yield Section("host", "Host", [Properties([*_facts(report)])])


def _facts(report: Report) -> Iterator[tuple[str, str]]:
    system, versions = report.system, report.versions
    if report.topology is not None:
        yield "GPUs", ", ".join(count_models(report.topology.gpus)) or "none"
    yield "system", ", ".join(filter(None, (system.os_name, system.virtual, system.container)))
    yield "kernel", f"{system.kernel}, {system.arch}"
    yield from ((name, version) for name, version in versions.items() if version)
    for name, found in report.attributes.items():
        if name != "uplink":  # the links have a table of their own
            yield name, ", ".join(found)


# More processes of one GPU than this are counted.
PROCESSES = 3
# For these findings of the check throttle the temperature is marked.
HEAT = ("gpu.hardware-thermal-slowdown", "gpu.software-thermal-slowdown")
TITLES = (
    "temperature", "power", "SM clock", "memory used", "memory errors", "PCIe lanes", "NVLinks up", "processes",
)  # fmt: skip
BAD = (Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN)


def stored_gpus(report: Report) -> dict[str, Gpu]:
    """Return what the report keeps of each GPU, by bus id; nothing where it keeps none or another form of it."""
    facts = facts_of(report.measurements)
    return {gpu.pci_bus_id: gpu for gpu in facts.gpus} if facts is not None else {}


def gpu_section(report: Report) -> Iterator[Section]:
    topology = report.topology
    if topology is None or not topology.gpus:
        return
    kept, one_model = stored_gpus(report), len({gpu.name for gpu in topology.gpus}) == 1
    rows: list[tuple[int | None, Row]] = []
    for gpu in topology.gpus:
        bad = [f for f in report.findings if f.verdict in BAD and gpu.pci_bus_id in bus_ids(f.subject)]
        one, bus_id = kept.get(gpu.pci_bus_id or ""), gpu.pci_bus_id or ""
        worst = min((f.verdict for f in bad), key=BAD.index, default=None)
        name = ", ".join(filter(None, ("" if one_model else gpu.name or "unnamed GPU", bus_id)))
        first = Cell(str(gpu.index), name, "", worst, bus_id)
        uuid = Cell(gpu.uuid or "\u2013", (one.health.serial if one else None) or "")
        rows.append((gpu.index, [first, uuid, *([] if one is None else _cells(one, bad))]))
    for lost in absent(topology, report.findings):
        number = "\u2013" if lost.number is None else str(lost.number)
        why = Cell(f"not usable: {lost.fault.cause}", tone=lost.fault.verdict.value)
        rows.append((lost.number, [Cell(number, lost.bus_id, "", lost.fault.verdict, lost.bus_id), why]))
    rows.sort(key=lambda row: len(rows) if row[0] is None else row[0])
    columns = [*words("GPU"), Column("UUID, serial", kind="mono uuid")]
    columns += numbers(*TITLES) if any(gpu.pci_bus_id in kept for gpu in topology.gpus) else []
    about = f"{heading(topology, report.findings)}; " if one_model else ""
    table = Table(columns, [row for _, row in rows], kind="gpus")
    yield Section("gpus", "GPUs", [table], f"{about}state at the time of the report")


def _cells(one: Gpu, bad: Sequence[Finding]) -> Iterator[Cell]:
    """The state of a GPU, by TITLES. bad: findings about it, which color the cells that they evaluate."""
    of_check = {f.check: f.verdict for f in sorted(bad, key=lambda f: -BAD.index(f.verdict))}

    def tone(*checks: str) -> str:
        found = [of_check[check] for check in checks if check in of_check]
        return min(found, key=BAD.index).value if found else ""

    hot, health = any(f.code in HEAT for f in bad), one.health
    slowdown = "" if health.temperature_slowdown_c is None else f"slowdown at {health.temperature_slowdown_c}"
    yield Cell(_unit(health.temperature_c, "\u00b0C"), slowdown, tone("throttle") if hot else "")
    yield Cell(_unit(health.power_w, "W"), _of(health.power_limit_w, "W"), tone("power-limit"))
    yield Cell(_unit(health.sm_clock_mhz, "MHz"), _of(health.max_sm_clock_mhz, "MHz"), tone("throttle", "clock-limit"))
    yield Cell(_unit(health.memory_used_mib, "MiB"), _of(one.memory_mib, "MiB"))
    ecc = "no ECC" if health.ecc is None else "ECC on" if health.ecc else "ECC off"
    yield Cell(memory_errors(one) or "\u2013", ecc, tone("memory-errors"))
    now, most = one.pcie.width, (one.pcie.max_generation, one.pcie.max_width)
    could = f"of Gen{most[0] or '?'} x{most[1] or '?'}" if any(most) else ""
    yield Cell(f"x{now}" if now else "\u2013", could, tone("pcie-link", "p2p-bandwidth"))
    up = f"{one.active_nvlinks} of {len(one.nvlinks)}" if one.nvlinks else "\u2013"
    yield Cell(up, "", tone("nvlink", "nvlink-links", "nvlink-errors"))
    yield Cell(*_processes(health.processes), tone("processes"))


def _processes(found: Sequence[GpuProcess] | None) -> tuple[str, str]:
    if not found:
        return ("\u2013" if found is None else "0"), ""
    names = [f"{process.name or 'unknown'} ({process.pid})" for process in found[:PROCESSES]]
    more = [plural(len(found) - PROCESSES, "more process").replace("processs", "processes")]
    return str(len(found)), ", ".join(names + (more if len(found) > PROCESSES else []))


def _unit(value: float | None, unit: str) -> str:
    return "\u2013" if value is None else f"{number(round(value, 1))} {unit}"


def _of(value: float | None, unit: str) -> str:
    return "" if value is None else f"of {number(round(value, 1))} {unit}"


def memory_errors(one: Gpu | None) -> str:
    if one is None:
        return ""
    ecc = one.health.ecc_counts
    counts = [n for n in (ecc.volatile_uncorrected, ecc.aggregate_uncorrected) if n is not None]
    parts = [f"{max(counts)} uncorrectable"] if counts else []
    remap, retired = one.health.row_remap, one.health.retired_pages
    if remap is not None:
        parts += ["remapping failed"] if remap.failed else ["remapping pending"] if remap.pending else []
    if retired is not None and retired.pending:
        parts.append("page retirement pending")
    return ", ".join(parts)
