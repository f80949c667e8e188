"""A merged fleet report as a table of numbers, CSV."""

import csv
import io
from typing import Any

from gpucheck.model.fleet import FleetReport
from gpucheck.model.measurements import metric_title
from gpucheck.printable import one_line

COLUMNS = ("host", "verdict", "simulated", "group", "gpus", "gpu_count", "driver", "system", "training", "started")


def to_csv(fleet: FleetReport) -> str:
    """A line a host."""
    attributes = sorted({name for row in fleet.hosts for name in row.attributes} - set(COLUMNS))
    metrics = sorted({name for row in fleet.hosts for name in row.metrics})
    outlier_hosts = {outlier.host for outlier in fleet.outliers}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        [*COLUMNS, "stands_out", "problems", *map(cell, attributes), *(cell(metric_title(name)) for name in metrics)]
    )
    for row in fleet.hosts:
        checks = "; ".join(dict.fromkeys(finding.check for finding in row.problems))
        cells = [cell(getattr(row, name) if name != "verdict" else row.verdict.value) for name in COLUMNS]
        cells += [str(row.host in outlier_hosts).lower(), cell(checks)]
        cells += [cell(", ".join(row.attributes.get(name, ()))) for name in attributes]
        cells += [row.metrics[name].host if name in row.metrics else "" for name in metrics]
        writer.writerow(cells)
    return out.getvalue()


def cell(value: Any) -> Any:
    """Return what a cell shows; a text that a spreadsheet would run as a formula is quoted with an apostrophe."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return "" if value is None else value
    text = one_line(value)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text
