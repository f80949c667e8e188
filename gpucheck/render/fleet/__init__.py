"""A merged fleet report in every format. What a format needs (XML, Jinja2) is imported when it is requested."""

from collections.abc import Callable

from gpucheck.model import FleetReport
from gpucheck.render.fleet.json import json_pieces, to_json
from gpucheck.render.fleet.text import to_text

__all__ = ["WRITERS", "json_pieces", "to_csv", "to_html", "to_json", "to_junit", "to_prometheus", "to_text"]


def to_csv(fleet: FleetReport) -> str:
    """Return one line per host."""
    from gpucheck.render.fleet.table import to_csv as write

    return write(fleet)


def to_prometheus(fleet: FleetReport) -> str:
    """Return metrics for node_exporter's textfile collector."""
    from gpucheck.render.fleet.prometheus import to_prometheus as write

    return write(fleet)


def to_junit(fleet: FleetReport) -> str:
    """Return one test suite per host."""
    from gpucheck.render.fleet.junit import to_junit as write

    return write(fleet)


def to_html(fleet: FleetReport) -> str:
    """Return one self-contained page."""
    from gpucheck.render.fleet.html import to_html as write

    return write(fleet)


WRITERS: dict[str, Callable[[FleetReport], str]] = {
    "json": to_json,
    "csv": to_csv,
    "prometheus": to_prometheus,
    "junit": to_junit,
    "html": to_html,
}
