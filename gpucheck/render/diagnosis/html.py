"""A diagnosis as one self-contained page: findings, the explanations that were weighed, predicted against measured."""

from gpucheck.model import Verdict, where
from gpucheck.model.diagnosis import Diagnosis
from gpucheck.printable import of_printable
from gpucheck.render import html
from gpucheck.render.findings.html import SHAPE, blocks
from gpucheck.render.findings.text import TROUBLE
from gpucheck.render.ranking import html as ranking_html
from gpucheck.render.words import observed, plural

STYLES = ("tokens.css", "parts.css", "report.css", *ranking_html.STYLES)
SCRIPTS = ("page.js", "report.js")


@of_printable
def to_html(diagnosis: Diagnosis) -> str:
    """The page."""
    found = blocks(diagnosis.findings, diagnosis.gpu_names)
    # Output that names no GPU can be about some.
    known = plural(diagnosis.gpus, "GPU") if diagnosis.gpus else ""
    return html.page(
        "diagnosis.html.j2",
        data={},
        styles=STYLES,
        scripts=SCRIPTS,
        diagnosis=diagnosis,
        about=", ".join(filter(None, (known, f"from {', '.join(diagnosis.source)}"))),
        shape=SHAPE,
        problems=[block for verdict in TROUBLE for block in found.get(verdict, ())],
        others=[one for one in diagnosis.findings if one.verdict in (Verdict.PASS, Verdict.SKIP)],
        observed=observed,
        where=where,
        ranking=ranking_html.view(diagnosis.judgement()),
    )
