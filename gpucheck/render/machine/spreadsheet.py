"""A merged fleet report as a table of numbers, CSV."""

import csv
import io
from typing import Any

from gpucheck.model import FleetReport, FleetRow, metric_title
from gpucheck.printable import one_line

COLUMNS = ("host", "verdict", "simulated", "group", "gpus", "gpu_count", "driver", "system", "training", "started")


def to_csv(fleet: FleetReport) -> str:
    """A line a host. Text that a spreadsheet would run as a formula is quoted with an apostrophe."""
    attributes = sorted({name for row in fleet.hosts for name in row.attributes} - set(COLUMNS))
    metrics = sorted({name for row in fleet.hosts for name in row.metrics})
    outlier_hosts = {outlier.host for outlier in fleet.outliers}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        [*COLUMNS, "stands_out", "problems", *map(_safe, attributes), *(_safe(metric_title(name)) for name in metrics)]
    )
    for row in fleet.hosts:
        checks = "; ".join(dict.fromkeys(finding.check for finding in row.problems))
        cells: list[Any] = [*_facts(row), str(row.host in outlier_hosts).lower(), _safe(checks)]
        cells += [_safe(", ".join(row.attributes.get(name, ()))) for name in attributes]
        cells += [row.metrics[name].host if name in row.metrics else "" for name in metrics]
        writer.writerow(cells)
    return out.getvalue()


def _facts(row: FleetRow) -> list[Any]:
    return [_cell(getattr(row, name) if name != "verdict" else row.verdict.value) for name in COLUMNS]


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return _safe(value) if isinstance(value, str) else "" if value is None else value


def _safe(text: str) -> str:
    text = one_line(text)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text
