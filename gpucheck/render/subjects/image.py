"""The description of an image."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpucheck.printable import of_printable
from gpucheck.render.blocks import Document, Findings
from gpucheck.render.findings import worst_first


@of_printable
def document(report: Mapping[str, Any]) -> Document:
    """What the image is, and what was found."""
    image = report["image"]
    return Document(
        command="image",
        host=image["variant"] if image else "not a gpucheck image",
        verdict=report["verdict"],
        counts=report["counts"],
        schema=report["schema"],
        time=f"in {report['seconds']:.1f} s",
        simulated="hardware" if report["simulated"] else None,
        lines=[*_lines(image, report["purpose"])] if image else [],
        findings=Findings(worst_first(report["findings"]), check=False),
    )


def _lines(image: Mapping[str, Any], purpose: str) -> Iterator[str]:
    stand_in = " (substitute: no registry responded during the build)" if image["stand_in_base"] else ""
    yield f"on {image['base']}{stand_in}, Python {image['python']}"
    yield purpose
