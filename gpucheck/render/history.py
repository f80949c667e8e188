"""The history of nodes as a table, and as a file that ``isolate`` and ``gate`` read."""

import csv
import io

from gpucheck.model.fleet import HistoryReport, NodeHistory
from gpucheck.printable import one_line
from gpucheck.render.machine.spreadsheet import cell
from gpucheck.render.write.terminal import table

FEW = 20
HEADER = ("node", "bad days", "95 % interval", "accused", "drained", "again", "last", "reason")
COLUMNS = ("host", "lemon", "bad_days", "days", "low", "high", "accused", "drained", "drained_again", "other_drains")


def to_text(report: HistoryReport) -> str:
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


def to_csv(report: HistoryReport, labels: dict[str, dict[str, str]]) -> str:
    """Return a line a node, the worst first, with the labels of your site: ``isolate --switches`` reads it."""
    more = sorted({name for row in labels.values() for name in row} - set(COLUMNS))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*COLUMNS, *more])
    known = {one.node for one in report.nodes}
    for one in report.nodes:
        values = [one.node if name == "host" else getattr(one, name) for name in COLUMNS]
        writer.writerow([cell(value) for value in [*values, *(labels.get(one.node, {}).get(name) for name in more)]])
    for host, row in labels.items():
        if host not in known:
            writer.writerow([cell(host), *[""] * (len(COLUMNS) - 1), *(cell(row.get(name)) for name in more)])
    return out.getvalue()
