"""The description of an image and of its scan, as text and as JSON."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpucheck.printable import of_printable
from gpucheck.render.findings.text import blocks
from gpucheck.render.json import to_json
from gpucheck.render.words import first_line, last_line, simulated_mark

__all__ = ["scan_to_text", "to_json", "to_text"]


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


@of_printable
def scan_to_text(report: Any) -> str:
    """For a terminal: each image with its findings, worst first, and where the scanner's result is."""
    return "\n".join(line for image in report.images for line in _scanned(image)) + "\n"


def _scanned(image: Any) -> Iterator[str]:
    scan = image.scan
    yield first_line("image scan", image.variant)
    by = f"scanned by {scan.scanner} {scan.version or ''}".rstrip() if scan else "not scanned"
    database = f", database of {scan.database:%Y-%m-%d}" if scan and scan.database else ""
    yield f"{image.tag}{f' ({scan.os})' if scan and scan.os else ''}, {by}{database}"
    yield from (f"result: {path}" for path in (scan.files if scan else ()))
    yield ""
    yield from blocks(image.findings, passes=True, check=False)
    yield ""
    yield last_line(image.verdict, image.counts, f"in {image.seconds:.1f} s")
