"""A diagnosis as text, as JSON (``gpucheck.diagnosis/1``), as a page and as Markdown."""

from collections.abc import Callable

from gpucheck.model.diagnosis import Diagnosis
from gpucheck.render import imported_later
from gpucheck.render.diagnosis.text import to_text
from gpucheck.render.json import to_json

__all__ = ["to_html", "to_json", "to_markdown", "to_text"]

to_html: Callable[[Diagnosis], str] = imported_later("diagnosis.html", "to_html")
to_markdown: Callable[..., str] = imported_later("diagnosis.markdown", "to_markdown")
