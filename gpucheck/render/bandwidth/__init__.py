"""A bandwidth report as text, as JSON (``gpucheck.bandwidth/1``) and as a page."""

from collections.abc import Callable

from gpucheck.model.bandwidth import BandwidthReport
from gpucheck.render import imported_later
from gpucheck.render.bandwidth.text import to_text
from gpucheck.render.json import to_json

__all__ = ["to_html", "to_json", "to_text"]

to_html: Callable[[BandwidthReport], str] = imported_later("bandwidth.html", "to_html")
