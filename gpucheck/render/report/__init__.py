"""A host's report as text and as JSON (``gpucheck.report/1``); gpucheck.render.formats has all formats of it."""

from gpucheck.render.json import to_json
from gpucheck.render.report.text import to_text

__all__ = ["to_json", "to_text"]
