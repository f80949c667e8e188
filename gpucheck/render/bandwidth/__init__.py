"""A bandwidth report as text, as JSON (``gpucheck.bandwidth/1``) and as a page."""

from gpucheck.model.bandwidth import BandwidthReport
from gpucheck.render.bandwidth.text import to_text
from gpucheck.render.json import to_json

__all__ = ["to_html", "to_json", "to_text"]


def to_html(report: BandwidthReport) -> str:
    """Return the page. Jinja2 is imported here."""
    from gpucheck.render.bandwidth.html import to_html as write

    return write(report)
