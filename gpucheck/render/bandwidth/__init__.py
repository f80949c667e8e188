"""A bandwidth report as text, as JSON and as a page."""

from gpucheck.render.bandwidth.text import to_html, to_json, to_text

__all__ = ["to_html", "to_json", "to_text"]
