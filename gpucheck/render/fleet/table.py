"""A merged fleet report as a table of numbers: CSV for spreadsheets, Parquet for query engines.

Wide for CSV (a line a host, a column a metric), long for Parquet (a line a host and metric), which adds up over fleets
and dates without agreeing on columns.
"""

import csv
import io
from collections.abc import Iterator
from typing import Any

from gpucheck.model import FleetReport, FleetRow, metric_title
from gpucheck.printable import one_line

COLUMNS = ("host", "verdict", "simulated", "group", "gpus", "gpu_count", "driver", "system", "training", "started")
NUMBERS = ("value", "worst_gpu", "worst_pair", "off_percent")


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


def to_parquet(fleet: FleetReport) -> bytes:
    """A line a host and metric, one for a host without any. Raises ModuleNotFoundError without pyarrow."""
    import pyarrow
    from pyarrow import parquet

    columns: dict[str, list[Any]] = {
        name: [] for name in (*COLUMNS, "rack", "metric", "value", "worst_gpu", "worst_pair", "off_percent")
    }
    for line in _lines(fleet):
        for name, cell in zip(columns, line, strict=True):
            columns[name].append(cell)
    types = {"gpu_count": pyarrow.int32(), "simulated": pyarrow.bool_()}
    schema = pyarrow.schema(
        [(n, types.get(n, pyarrow.float64() if n in NUMBERS else pyarrow.string())) for n in columns],
        metadata={"schema": fleet.schema, "simulated": str(fleet.simulated).lower()},
    )
    out = io.BytesIO()
    parquet.write_table(pyarrow.table(columns, schema=schema), out, compression="zstd")
    return out.getvalue()


def _lines(fleet: FleetReport) -> Iterator[list[Any]]:
    off = {(o.host, o.metric): o.percent for o in fleet.outliers}
    for row in fleet.hosts:
        facts = [getattr(row, name) if name != "verdict" else row.verdict.value for name in COLUMNS]
        facts.append(", ".join(row.attributes.get("rack", ())) or None)
        for metric, seen in row.metrics.items():
            yield [*facts, metric, seen.host, seen.gpu, seen.pair, off.get((row.host, metric))]
        if not row.metrics:
            yield [*facts, None, None, None, None, None]


def _facts(row: FleetRow) -> list[Any]:
    return [_cell(getattr(row, name) if name != "verdict" else row.verdict.value) for name in COLUMNS]


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return _safe(value) if isinstance(value, str) else "" if value is None else value


def _safe(text: str) -> str:
    text = one_line(text)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text
