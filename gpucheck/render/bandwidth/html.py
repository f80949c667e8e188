"""A bandwidth report as one self-contained page: findings and matrices."""

from gpucheck.model.bandwidth import BandwidthReport
from gpucheck.printable import of_printable
from gpucheck.render.copies import html as copies_html
from gpucheck.render.copies.measured import by_class, copies_of
from gpucheck.render.findings.html import findings_page
from gpucheck.render.words import list_versions, plural


@of_printable
def to_html(report: BandwidthReport) -> str:
    found = copies_of(report)
    return findings_page(
        "bandwidth.html.j2",
        report.findings,
        tuple(device.bus_id for device in report.devices if device.bus_id),
        verdict=report.verdict,
        data=copies_html.data(found),
        report=report,
        about=", ".join((plural(len(report.devices), "device"), *list_versions(report.versions))),
        copies=found if found.pairs or found.host_device else None,
        heats=copies_html.heats(found, report.findings),
        rates=by_class(found),
        access=copies_html.access(found),
    )
