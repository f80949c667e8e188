"""A diagnosis as one self-contained page."""

from gpucheck.model.diagnosis import Diagnosis
from gpucheck.printable import of_printable
from gpucheck.render.diagnosis.text import machine_title
from gpucheck.render.findings.html import findings_page
from gpucheck.render.words import plural


@of_printable
def to_html(diagnosis: Diagnosis) -> str:
    # Output that names no GPU can be about some.
    known = plural(diagnosis.gpus, "GPU") if diagnosis.gpus else ""
    return findings_page(
        "diagnosis.html.j2",
        diagnosis.findings,
        diagnosis.gpu_names,
        [(machine_title(one), one.findings) for one in diagnosis.machines],
        verdict=diagnosis.verdict,
        data={},
        diagnosis=diagnosis,
        about=", ".join(filter(None, (known, f"from {', '.join(diagnosis.source)}"))),
    )
