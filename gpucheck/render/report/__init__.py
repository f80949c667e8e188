"""A host's report as text and as JSON; gpucheck.render.formats has all forms of it."""

from gpucheck.render.report.text import to_json, to_text

__all__ = ["to_json", "to_text"]
