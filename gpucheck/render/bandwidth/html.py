"""A bandwidth report as one self-contained page: findings, matrices, and predicted against measured."""

from gpucheck.model import Verdict, where
from gpucheck.model.bandwidth import BandwidthReport
from gpucheck.printable import of_printable
from gpucheck.render import html
from gpucheck.render.copies import html as copies_html
from gpucheck.render.copies.measured import by_class, copies_of
from gpucheck.render.findings.html import SHAPE, blocks
from gpucheck.render.findings.text import TROUBLE
from gpucheck.render.ranking import html as ranking_html
from gpucheck.render.words import observed, plural

STYLES = ("tokens.css", "parts.css", "report.css", *ranking_html.STYLES)
SCRIPTS = ("page.js", "report.js")


@of_printable
def to_html(report: BandwidthReport) -> str:
    """The page."""
    found = copies_of(report)
    bus_ids = tuple(device.bus_id for device in report.devices if device.bus_id)
    of_verdict = blocks(report.findings, bus_ids)
    versions = [f"{name} {version}" for name, version in report.versions.items() if version]
    return html.page(
        "bandwidth.html.j2",
        data=copies_html.data(found),
        styles=STYLES,
        scripts=SCRIPTS,
        report=report,
        about=", ".join((plural(len(report.devices), "device"), *versions)),
        shape=SHAPE,
        problems=[block for verdict in TROUBLE for block in of_verdict.get(verdict, ())],
        others=[one for one in report.findings if one.verdict in (Verdict.PASS, Verdict.SKIP)],
        observed=observed,
        where=where,
        copies=found if found.pairs or found.host_device else None,
        heats=copies_html.heats(found, report.findings),
        rates=by_class(found),
        access=copies_html.access(found),
        ranking=ranking_html.view(found.judgement()),
    )
