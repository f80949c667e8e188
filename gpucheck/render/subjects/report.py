"""A host's report: for a terminal its findings, for a page all that was read and measured."""

from collections.abc import Iterator
from typing import Any

from gpucheck.model import Report, Topology, WiredFunction
from gpucheck.printable import of_printable
from gpucheck.render.blocks import (
    Beside,
    Block,
    Cell,
    Document,
    Drawing,
    Facts,
    Findings,
    Folded,
    Lines,
    Row,
    Section,
    Table,
    numbers,
    words,
)
from gpucheck.render.findings import host_gpus, troubles
from gpucheck.render.subjects import collectives, compute, copies, gpus, smoke
from gpucheck.render.topology.boxes import describe_link, describe_switches, direct_links, link_words, switch_links
from gpucheck.render.topology.text import MEANING, between, kind_of, like_gpus
from gpucheck.render.words import count_models, counts_line, plural, ranges

# Of more GPUs than this, equal rows are one.
WHOLE = 16
KIND = {
    "gpu": "GPU",
    "nic": "network card",
    "root-port": "root port",
    "switch-upstream": "switch, upstream port",
    "switch-downstream": "switch, downstream port",
    "bridge": "bridge",
}


@of_printable
def document(report: Report, *, command: str = "verify", whole: bool = False) -> Document:
    """The findings. command: what made the report. whole: with GPUs, measurements, topology and host."""
    problems, counts = len(troubles(report)), counts_line(report.counts)
    return Document(
        command=command,
        host=report.host,
        verdict=report.verdict,
        counts=report.counts,
        schema=report.schema,
        started=report.started,
        time=f"in {report.seconds:.1f} s",
        simulated=simulated(report),
        components=report.simulation.stand_ins if report.simulation else (),
        lines=() if whole else [*_lines(report)],
        unproven=report.not_proven,
        summary=f"{plural(problems, 'problem')}: {counts}" if problems else counts,
        findings=Findings(report.findings, host_gpus(report), each_pass=whole),
        body=[*_sections(report)] if whole else (),
    )


def simulated(report: Report) -> str | None:
    """Return which machine is simulated, with its faults; None for real hardware."""
    made = report.simulation
    if not report.simulated or made is None:
        return "hardware" if report.simulated else None
    return f"hardware: {made.profile}" + (f" with {', '.join(made.faults)}" if made.faults else "")


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
    found, topology = copies.copies(report), report.topology
    yield from gpus.section(report)
    if found and (found.pairs or found.host_device):
        yield copies.section(found, report.findings)
    yield from compute.section(report)
    yield from filter(None, (collectives.section(report), smoke.section(report)))
    if topology is not None:
        yield Section("topology", "Topology", [*_drawing(report), *_classes(topology)])
        links = [[*_hops(topology)], [*_nvlinks(topology)]]
        if any(links):
            yield Section("links", "Links", [Beside([part for part in links if part], "columns")])
    yield Section("host", "Host", [Facts([*_facts(report)])])


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


def _drawing(report: Report) -> Iterator[Block]:
    topology, simulation = report.topology, report.simulation
    if topology is not None and topology.wiring is not None and topology.gpus:
        from gpucheck.render.topology.svg import to_svg

        about = " ".join((simulation.profile, *simulation.faults)) if simulation else ""
        drawn = to_svg(topology, about=about, in_page=True, findings=report.findings)
        yield Drawing(drawn, "Drawing of the topology")


def _classes(topology: Topology) -> Iterator[Block]:
    """The matrix of path classes with what they mean. Of many GPUs, those with equal paths share a row."""
    count = len(topology.gpus)
    if count < 2:
        return
    used = {kind_of(cell) for row in topology.matrix for cell in row} - {"X"}
    groups = like_gpus(topology) if count > WHOLE else [[i] for i in range(count)]
    names = [_gpus([topology.gpus[i].index for i in group]) for group in groups]
    rows: list[Row] = [
        [name, *(_path(between(topology, group, other)) for other in groups)]
        for name, group in zip(names, groups, strict=True)
    ]
    about = "; ".join(f"{kind}: {meaning}" for kind, meaning in MEANING.items() if kind in used)
    if len(groups) < count:
        about = f"GPUs with equal paths share a row; a cell at its own column is the path between them. {about}"
    yield Table(words("", *names), rows, "Path between GPUs", about, "classes")


def _path(cell: str) -> Cell:
    return Cell(cell, tone=f"path-{kind_of(cell).lower().rstrip('#')}")


def _gpus(indexes: list[int]) -> str:
    return f"GPU{ranges(indexes)}"


def _hops(topology: Topology) -> Iterator[Block]:
    """Each GPU itself, then the bridges above it up to the root port, each with its link."""
    functions = topology.wiring.functions if topology.wiring and topology.wiring.told else ()
    by_bus_id = {function.bus_id: function for function in functions}
    rows: list[Row] = []
    narrow: list[Row] = []
    for gpu in (function for function in functions if function.kind == "gpu"):
        way = [gpu]
        while way[-1].above in by_bus_id and len(way) <= len(by_bus_id):
            way.append(by_bus_id[str(way[-1].above)])
        for place, function in enumerate(way):
            cells, reduced = _hop(function)
            rows.append(["" if place else gpu.label, *cells])
            narrow += [[gpu.label, *cells]] if reduced else []
    if not rows:
        return
    columns = [*words("GPU"), *words("hop", kind="wordy"), *words("now", "able to")]
    title = "PCIe, from each GPU up to the CPU"
    yield Table(columns, narrow, title, kind="hops") if narrow else Lines(["No link has lost lanes."], title)
    about = "An idle GPU lowers the generation of its own link to save power; lanes that are missing are marked."
    yield Folded("hop", f"All {len(rows)} hops", Table(columns, rows, about=about, kind="hops"))


def _hop(function: WiredFunction) -> tuple[Row, bool]:
    link = function.link
    _, reduced = link_words(link, uplink=function.kind == "switch-upstream")
    now = describe_link(link.generation, link.width) or "-"
    return [
        Cell(KIND[function.kind], function.bus_id),
        Cell(f"{now} reduced", tone="off") if reduced else now,
        describe_link(link.max_generation, link.max_width) or "-",
    ], reduced


def _nvlinks(topology: Topology) -> Iterator[Block]:
    """GPUs, how many of their links are up, and where they lead. Of many GPUs, those with equal links share a row."""
    equal: dict[tuple[Any, ...], list[int]] = {}
    rows = list(_nvlinks_of_each(topology))
    for index, count, ends in rows:
        equal.setdefault((count, ends) if len(rows) > WHOLE else (count, ends, index), []).append(index)
    most = max((count for _, count, _ in rows), default=0)
    if rows:
        yield Table(
            [*words("GPU"), *numbers("links up"), *words("to", kind="wordy")],
            [
                [_gpus(indexes), Cell(f"{count} fewer", tone="off") if count < most else str(count), ends]
                for (count, ends, *_), indexes in equal.items()
            ],
            "NVLink",
        )


def _nvlinks_of_each(topology: Topology) -> Iterator[tuple[int, int, str]]:
    if topology.wiring is None or not topology.wiring.nvlinks:
        return
    to_switch = switch_links(topology.wiring)
    for index in (gpu.index for gpu in topology.gpus):
        label = f"GPU{index}"
        ends = [(b.b if b.a == label else b.a, b.links) for b in direct_links(topology.wiring) if label in (b.a, b.b)]
        told = [f"{links} to {end}" for end, links in ends]
        if to_switch.get(label):
            told.append(f"{to_switch[label]} to {describe_switches(topology.wiring)}")
        yield index, sum(links for _, links in ends) + to_switch.get(label, 0), ", ".join(told) or "none is up"
