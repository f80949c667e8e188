"""A diagnosis as text, as JSON, as a page and as Markdown."""

from gpucheck.render.diagnosis.text import to_html, to_json, to_markdown, to_text

__all__ = ["to_html", "to_json", "to_markdown", "to_text"]
