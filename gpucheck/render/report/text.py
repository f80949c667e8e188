"""A host's report as text: worst findings first, passes in one line."""

from collections.abc import Iterator

from gpucheck.model import Report
from gpucheck.printable import of_printable
from gpucheck.render.findings.text import blocks, count_problems
from gpucheck.render.words import count_models, counts_line, first_line, simulated_mark, verdict_word


@of_printable
def to_text(report: Report, *, verbose: bool = False, command: str = "verify") -> str:
    """The report for a terminal. With verbose, passes are spelled out and every finding shows its evidence.

    command: what made the report.
    """
    lines = [*_head(report, command), ""]
    lines += [*blocks(report.findings, bus_ids(report), verbose=verbose), "", _last(report)]
    return "\n".join(lines) + "\n"


def bus_ids(report: Report) -> tuple[str, ...]:
    """Return the bus ids of the GPUs of the host."""
    return tuple(gpu.pci_bus_id for gpu in report.topology.gpus if gpu.pci_bus_id) if report.topology else ()


def _head(report: Report, command: str) -> Iterator[str]:
    yield first_line(command, report.host, simulated_mark(_simulation(report)) if report.simulated else "")
    system, versions = report.system, report.versions
    yield (
        f"{system.os_name}, kernel {system.kernel}, {system.arch}"
        + "".join(f", {kind}" for kind in (system.virtual, system.container) if kind)
    )
    parts = [f"driver {versions['driver']}" if versions.get("driver") else "no driver"]
    parts += [f"{name} {versions[name]}" for name in ("cuda", "torch") if versions.get(name)]
    parts += count_models(report.topology.gpus, unnamed="GPU") if report.topology else []
    yield ", ".join(parts)
    if report.simulation is not None:
        for stand_in in report.simulation.stand_ins:
            yield f"{simulated_mark()} component: {stand_in}"


def _simulation(report: Report) -> str:
    if report.simulation is None:
        return ""
    faults = f" with {', '.join(report.simulation.faults)}" if report.simulation.faults else ""
    return f"hardware: {report.simulation.profile}{faults}"


def _last(report: Report) -> str:
    mark = f"  {simulated_mark()}" if report.simulated else ""
    unproven = f" (not proven: {'; '.join(report.not_proven)})" if report.not_proven else ""
    problems = count_problems(report.findings, bus_ids(report))
    counts = f"{problems}: {counts_line(report.counts)}" if problems else counts_line(report.counts)
    return f"{verdict_word(report.verdict, 0)}{unproven}  {counts}  in {report.seconds:.1f} s{mark}"
