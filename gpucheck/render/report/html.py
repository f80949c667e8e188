"""A host's report as one self-contained page: readable without scripts, which only filter, copy and point."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from markupsafe import Markup

from gpucheck.model import Report, Topology, Verdict, WiredFunction
from gpucheck.printable import of_printable
from gpucheck.render import collectives, html
from gpucheck.render.compute import html as compute_html
from gpucheck.render.copies import html as copies_html
from gpucheck.render.copies.measured import by_class, copies, trainings
from gpucheck.render.findings.html import SHAPE, anchors, blocks
from gpucheck.render.findings.text import TROUBLE
from gpucheck.render.report.gpus import rows as gpu_rows
from gpucheck.render.report.text import bus_ids
from gpucheck.render.topology.boxes import (
    describe_link,
    describe_switches,
    direct_links,
    heading,
    link_words,
    switch_links,
)
from gpucheck.render.topology.svg import to_svg
from gpucheck.render.topology.text import MEANING, between, kind_of, like_gpus
from gpucheck.render.words import WORST_FIRST, count_models, plural, ranges

STYLES = ("tokens.css", "parts.css", "drawing.css", "report.css")
SCRIPTS = ("page.js", "report.js")
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


class Hop(NamedTuple):
    """One function on a GPU's way to the CPU, and its link. span: how many hops the way has, at its first hop."""

    gpu: str
    span: int
    kind: str
    bus_id: str
    now: str
    able: str
    reduced: str


@of_printable
def to_html(report: Report, *, mark: str = "") -> str:
    """The page. mark: where a replayed report comes from."""
    found, topology = copies(report), report.topology
    of_verdict = blocks(report.findings, bus_ids(report))
    gpus = gpu_rows(report)
    problems = [block for verdict in TROUBLE for block in of_verdict.get(verdict, ())]
    return html.page(
        "report.html.j2",
        verdict=report.verdict,
        data=copies_html.data(found),
        styles=STYLES,
        scripts=SCRIPTS,
        report=report,
        mark=mark,
        shape=SHAPE,
        verdicts=WORST_FIRST,
        facts=list(_facts(report)),
        problems=problems,
        counted=plural(len(problems), "problem"),
        anchors=anchors(problems),
        gpus=gpus,
        columns=next((gpu.cells for gpu in gpus if gpu.cells), ()),
        one_model=heading(topology, report.findings) if topology and len({g.name for g in topology.gpus}) == 1 else "",
        signs={verdict.value: sign for verdict, sign in SHAPE.items()},
        skips=of_verdict.get(Verdict.SKIP, []),
        passes=of_verdict.get(Verdict.PASS, []),
        drawing=_drawing(report),
        topology=topology,
        classes=_classes(topology) if topology else None,
        hops=(hops := list(_hops(topology)) if topology else []),
        narrow=[hop for hop in hops if hop.reduced],
        nvlinks=(nvlinks := _nvlinks(topology) if topology else []),
        most_nvlinks=max((count for _, count, _ in nvlinks), default=0),
        copies=found if found and (found.pairs or found.host_device) else None,
        heats=copies_html.heats(found, report.findings),
        rates=by_class(found) if found else [],
        access=copies_html.access(found),
        trainings=trainings(report),
        computed=compute_html.view(report),
        ran=collectives.of_report(report),
    )


def _facts(report: Report) -> Iterator[tuple[str, str]]:
    system, versions = report.system, report.versions
    if report.topology is not None:
        yield "GPUs", ", ".join(count_models(report.topology.gpus)) or "none"
    yield "system", ", ".join(filter(None, (system.os_name, system.virtual, system.container)))
    yield "kernel", f"{system.kernel}, {system.arch}"
    yield from ((name, version) for name, version in versions.items() if version and name != "gpucheck")
    for name, found in report.attributes.items():
        if name != "uplink":  # the links have a table of their own
            yield name, ", ".join(found)


def _drawing(report: Report) -> Markup | None:
    """Our own SVG, whose strings are escaped where it is made."""
    topology, simulation = report.topology, report.simulation
    if topology is None or topology.wiring is None or not topology.gpus:
        return None
    about = " ".join((simulation.profile, *simulation.faults)) if simulation else ""
    return Markup(to_svg(topology, about=about, in_page=True, findings=report.findings))  # noqa: S704


def _classes(topology: Topology) -> dict[str, Any] | None:
    """The matrix of path classes with what they mean. Of many GPUs, those with equal paths share a row."""
    count = len(topology.gpus)
    if count < 2:
        return None
    used = {kind_of(cell) for row in topology.matrix for cell in row} - {"X"}
    groups = like_gpus(topology) if count > WHOLE else [[i] for i in range(count)]
    rows = [
        (_gpus([topology.gpus[i].index for i in group]), [_path(between(topology, group, other)) for other in groups])
        for group in groups
    ]
    return {
        "rows": rows,
        "folded": len(groups) < count,
        "meaning": [(kind, words) for kind, words in MEANING.items() if kind in used],
    }


def _path(cell: str) -> tuple[str, str]:
    return cell, kind_of(cell).lower().rstrip("#")


def _gpus(indexes: list[int]) -> str:
    return f"GPU{ranges(indexes)}"


def _hops(topology: Topology) -> Iterator[Hop]:
    """The GPU itself, then the bridges above it up to the root port."""
    functions = topology.wiring.functions if topology.wiring and topology.wiring.told else ()
    by_bus_id = {function.bus_id: function for function in functions}
    for gpu in (function for function in functions if function.kind == "gpu"):
        way = [gpu]
        while way[-1].above in by_bus_id and len(way) <= len(by_bus_id):
            way.append(by_bus_id[str(way[-1].above)])
        for place, function in enumerate(way):
            yield _hop(gpu.label, 0 if place else len(way), function)


def _hop(gpu: str, span: int, function: WiredFunction) -> Hop:
    link = function.link
    words, reduced = link_words(link, uplink=function.kind == "switch-upstream")
    return Hop(
        gpu=gpu,
        span=span,
        kind=KIND[function.kind],
        bus_id=function.bus_id,
        now=describe_link(link.generation, link.width) or "-",
        able=describe_link(link.max_generation, link.max_width) or "-",
        reduced=words if reduced else "",
    )


def _nvlinks(topology: Topology) -> list[tuple[str, int, str]]:
    """GPUs, how many of their links are up, and where they lead. Of many GPUs, those with equal links share a row."""
    rows = list(_nvlinks_of_each(topology))
    if len(rows) <= WHOLE:
        return [(_gpus([index]), count, words) for index, count, words in rows]
    equal: dict[tuple[int, str], list[int]] = {}
    for index, count, words in rows:
        equal.setdefault((count, words), []).append(index)
    return [(_gpus(indexes), *links) for links, indexes in equal.items()]


def _nvlinks_of_each(topology: Topology) -> Iterator[tuple[int, int, str]]:
    if topology.wiring is None or not topology.wiring.nvlinks:
        return
    to_switch = switch_links(topology.wiring)
    for index in (gpu.index for gpu in topology.gpus):
        label = f"GPU{index}"
        ends = [(b.b if b.a == label else b.a, b.links) for b in direct_links(topology.wiring) if label in (b.a, b.b)]
        words = [f"{links} to {end}" for end, links in ends]
        if to_switch.get(label):
            words.append(f"{to_switch[label]} to {describe_switches(topology.wiring)}")
        yield index, sum(links for _, links in ends) + to_switch.get(label, 0), ", ".join(words) or "none is up"
