"""A diagnosis as text, as JSON (``gpucheck.diagnosis/1``), as a page and as Markdown."""

from gpucheck.model.diagnosis import Diagnosis
from gpucheck.render.diagnosis.text import to_text
from gpucheck.render.json import to_json
from gpucheck.render.markdown import Change, unchanged

__all__ = ["to_html", "to_json", "to_markdown", "to_text"]


def to_html(diagnosis: Diagnosis) -> str:
    """Return the page. Jinja2 is imported here."""
    from gpucheck.render.diagnosis.html import to_html as write

    return write(diagnosis)


def to_markdown(diagnosis: Diagnosis, *, change: Change = unchanged) -> str:
    """Return the answer for an issue or a wiki. change: redaction."""
    from gpucheck.render.diagnosis.markdown import to_markdown as write

    return write(diagnosis, change=change)
