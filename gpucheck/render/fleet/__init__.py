"""A merged fleet report in every form."""

from gpucheck.render.fleet.text import (
    WRITERS,
    json_pieces,
    to_csv,
    to_html,
    to_json,
    to_junit,
    to_prometheus,
    to_text,
)

__all__ = ["WRITERS", "json_pieces", "to_csv", "to_html", "to_json", "to_junit", "to_prometheus", "to_text"]
