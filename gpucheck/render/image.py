"""The description of an image, as text and as JSON."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpucheck.printable import of_printable
from gpucheck.render.findings.text import blocks
from gpucheck.render.json import to_json
from gpucheck.render.words import first_line, last_line, simulated_mark

__all__ = ["to_json", "to_text"]


@of_printable
def to_text(report: Mapping[str, Any]) -> str:
    """For a terminal: what the image is, the findings worst first, the verdict."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    mark = simulated_mark("hardware") if report["simulated"] else ""
    image = report["image"]
    name = image["variant"] if image else "not a gpucheck image"
    yield first_line("image", name, mark)
    if image:
        stand_in = " (substitute: no registry responded during the build)" if image["stand_in_base"] else ""
        yield f"on {image['base']}{stand_in}, Python {image['python']}"
        yield report["purpose"]
    yield ""
    yield from blocks(report["findings"], passes=True, check=False)
    yield ""
    yield last_line(report["verdict"], report["counts"], f"in {report['seconds']:.1f} s", mark)
