"""Render what was read in every form there is, and look at each of them."""

from collections.abc import Callable, Sequence

from gpucheck.model import Finding, Report, Topology, TopologyGpu, Verdict, named, worst
from gpucheck.model.diagnosis import Diagnosis
from gpucheck.render import formats as report_formats
from tests.fuzz import formats
from tests.fuzz.oracles import markup, no_better, no_defect, simulated, terminal

# What a person sees says so in words; a program finds it in a field.
MARKED = ("text", "nagios", "html", "junit")
LARGEST_DRAWING = 16
CHECKS: dict[str, Callable[[str, str], None]] = {
    "text": terminal,
    "json": formats.strict_json,
    "junit": formats.strict_xml,
    "xml": formats.strict_xml,
    "svg": formats.strict_xml,
    "nagios": formats.nagios,
    "prometheus": formats.strict_prometheus,
    "html": formats.html,
    "markdown": formats.markdown,
    "csv": formats.strict_csv,
    "slurm": formats.slurm,
    "kubernetes": formats.kubernetes,
}


def shown_report(report: Report) -> None:
    """Every format, and what a report says of itself."""
    no_better(report.verdict, report.findings, "a report")
    no_defect(report.findings)
    for name in report_formats.FORMATS:
        text = report_formats.render(report, name, verbose=name == "text")
        CHECKS[name](text, f"verify's {name}")
        if report.simulated and name in MARKED:
            simulated(text, f"verify's {name}")


def shown_diagnosis(findings: Sequence[Finding]) -> None:
    """diagnose's text and JSON."""
    from gpucheck.render.json import to_json
    from gpucheck.render.subjects.diagnosis import document

    gpus = [TopologyGpu(index=0, pci_bus_id="GPU0")]
    whole = Diagnosis(
        verdict=worst(finding.verdict for finding in findings),
        source=("pasted.txt",),
        gpus=1,
        findings=named(tuple(findings), gpus),
        counts={verdict.value: sum(f.verdict is verdict for f in findings) for verdict in Verdict},
    )
    for name in ("text", "html", "markdown"):
        CHECKS[name](report_formats.show(document(whole), name), f"diagnose's {name}")
    formats.strict_json(to_json(whole), "diagnose's JSON")


def shown_topology(topology: Topology) -> None:
    """The matrix, JSON, and the drawing of what is small enough to be drawn a thousand times."""
    from gpucheck.render.json import to_json
    from gpucheck.render.subjects.topology import document

    for width in (None, 80):
        text = report_formats.show(document(topology, width=width), "text", width=width)
        terminal(text, f"topo's text, {width} columns")
    for name in ("html", "markdown"):
        if len(topology.gpus) <= LARGEST_DRAWING:
            CHECKS[name](report_formats.show(document(topology, whole=True), name), f"topo's {name}")
    formats.strict_json(to_json(topology), "topo's JSON")
    if 0 < len(topology.gpus) <= LARGEST_DRAWING:
        from gpucheck.render.topology.svg import to_svg

        drawing = to_svg(topology)
        formats.strict_xml(drawing, "topo's drawing")
        markup(drawing, "topo's drawing")
