"""A host's report: for a terminal its findings, for a page all that was read and measured."""

from collections.abc import Iterator

from gpucheck.model import Report
from gpucheck.model.measurements import copies_of
from gpucheck.model.record import facts_of
from gpucheck.printable import of_printable
from gpucheck.render.blocks import Document, Findings, Properties, Section, document_of
from gpucheck.render.findings import TROUBLE, host_gpus, worst_first
from gpucheck.render.subjects import collectives, compute, copies, smoke, topology
from gpucheck.render.words import count_models, counts_line, describe_simulation, plural


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
        yield from topology.sections(report.topology, report.findings, describe_simulation(report.simulation))
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


def gpu_section(report: Report) -> Iterator[Section]:
    if report.topology is not None and report.topology.gpus:
        facts = facts_of(report.measurements)  # None of an older report, or one with another form of them
        kept = {gpu.pci_bus_id: gpu for gpu in facts.gpus} if facts else {}
        yield topology.gpu_section(report.topology, report.findings, kept)
