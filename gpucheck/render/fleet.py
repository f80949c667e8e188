"""A merged fleet report in every format, and the history of nodes, which ``isolate`` and ``gate`` read as CSV.

What a format needs (XML, Jinja2) is imported when it is requested.
"""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any

import msgspec

from gpucheck.model.fleet import FleetReport, FleetRow, HistoryReport, NodeHistory
from gpucheck.model.measurements import metric_title
from gpucheck.printable import one_line
from gpucheck.render.formats import Change, line, show, to_json
from gpucheck.render.write.terminal import table

# Module and function of what is no text.
WRITERS = {
    "csv": ("fleet", "fleet_to_csv"),
    "prometheus": ("machine.prometheus", "fleet_to_prometheus"),
    "junit": ("machine.junit", "fleet_to_junit"),
    "html": ("write.fleet_page", "to_html"),
}
FORMATS = ("text", "json", *WRITERS, "markdown")


def render(
    fleet: FleetReport,
    format_: str,
    *,
    verbose: bool = False,
    width: int | None = None,
    change: Change | None = None,
    fail_on: str = "warn",
) -> str:
    """The report in one of FORMATS; options as for gpucheck.render.formats.render."""
    if format_ == "json":
        return b"".join(json_pieces(fleet)).decode()
    if format_ in WRITERS:
        module, name = WRITERS[format_]
        write: Callable[..., str] = getattr(import_module(f"gpucheck.render.{module}"), name)
        return write(fleet, fail_on=fail_on) if format_ == "junit" else write(fleet)
    from gpucheck.render.subjects.fleet import document

    return show(document(fleet, verbose=verbose, width=width), format_, width=width, change=change)


def json_pieces(fleet: FleetReport) -> Iterator[bytes]:
    """Yield ``gpucheck.fleet/1`` one host at a time: as one text, a large fleet needs more memory than its report."""
    around = to_json(msgspec.structs.replace(fleet, hosts=()))
    before, hosts, after = around.partition('\n  "hosts": []')
    yield before.encode()
    begin = hosts.removesuffix("]")
    for row in fleet.hosts:
        yield f"{begin}\n    {line(row)}".encode()
        begin = ","
    yield ("\n  ]" if fleet.hosts else hosts).encode()
    yield (after + "\n").encode()


COLUMNS = ("host", "verdict", "simulated", "group", "gpus", "gpu_count", "driver", "system", "training", "started")


def fleet_to_csv(fleet: FleetReport) -> str:
    """A line a host."""
    attributes = sorted({name for row in fleet.hosts for name in row.attributes} - set(COLUMNS))
    metrics = sorted({name for row in fleet.hosts for name in row.metrics})
    outlier_hosts = {outlier.host for outlier in fleet.outliers}

    def cells(row: FleetRow) -> Iterator[Any]:
        yield from (row.verdict.value if name == "verdict" else getattr(row, name) for name in COLUMNS)
        yield row.host in outlier_hosts
        yield "; ".join(dict.fromkeys(finding.check for finding in row.problems))
        yield from (", ".join(row.attributes.get(name, ())) for name in attributes)
        yield from (row.metrics[name].host if name in row.metrics else None for name in metrics)

    header = [*COLUMNS, "stands_out", "problems", *attributes, *map(metric_title, metrics)]
    return _csv(header, map(cells, fleet.hosts))


def _csv(header: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([*map(_cell, row)] for row in (header, *rows))
    return out.getvalue()


def _cell(value: Any) -> Any:
    """Return what a cell shows; a text that a spreadsheet would run as a formula is quoted with an apostrophe."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return "" if value is None else value
    text = one_line(value)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


FEW = 20
HEADER = ("node", "bad days", "95 % interval", "accused", "drained", "again", "last", "reason")
KEPT = ("host", "lemon", "bad_days", "days", "low", "high", "accused", "drained", "drained_again", "other_drains")


def history_to_text(report: HistoryReport) -> str:
    """Return a line for each node that was ever bad, at most FEW that are no lemons, and what was not read."""
    bad = [one for one in report.nodes if one.bad_days]
    lemons = [one for one in bad if one.lemon]
    shown = bad[: len(lemons) + FEW]
    lines = table(HEADER, [*map(_row, shown)]) if shown else []
    if len(bad) > len(shown):
        lines.append(f"and {len(bad) - len(shown)} more with bad days")
    mark = "SIMULATED: " if report.simulated else ""
    names = f": {', '.join(one.node for one in lemons)}" if lemons else ""
    lines += [*([""] if lines else []), f"{mark}{len(report.nodes)} nodes, {len(lemons)} worse than the fleet{names}"]
    lines += [f"not read: {one_line(name)}" for name in report.unread]
    return "\n".join(lines) + "\n"


def _row(one: NodeHistory) -> tuple[str, ...]:
    return (
        one_line(one.node),
        f"{one.bad_days} of {one.days}",
        f"{100 * one.low:.0f} to {100 * one.high:.0f} %",
        str(one.accused),
        str(one.drained),
        str(one.drained_again),
        (one.last_bad or "")[:10],
        one_line(one.reasons[0]) if one.reasons else "",
    )


def history_to_csv(report: HistoryReport, labels: dict[str, dict[str, str]]) -> str:
    """Return a line a node, the worst first, with the labels of your site: ``isolate --switches`` reads it."""
    more = sorted({name for row in labels.values() for name in row} - {*KEPT})
    known = {one.node: [one.node, *(getattr(one, name) for name in KEPT[1:])] for one in report.nodes}
    known |= {host: [host, *[None] * (len(KEPT) - 1)] for host in labels if host not in known}
    rows = ([*values, *(labels.get(host, {}).get(name) for name in more)] for host, values in known.items())
    return _csv([*KEPT, *more], rows)
