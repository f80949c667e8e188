"""A merged fleet report as a terminal table."""

from collections import Counter
from collections.abc import Iterator

import click

from gpucheck.model import FleetReport, FleetRow, Outlier, Verdict, metric_title
from gpucheck.printable import one_line
from gpucheck.render.fleet.problems import lines, names, place, results, summary
from gpucheck.render.words import WORST_FIRST, counts_line, plural
from gpucheck.render.write.terminal import paragraphs, simulated_mark, table, verdict_word

# A terminal shows this many hosts; of more, those that pass are counted.
MANY = 40
HEADER = ("verdict", "host", "system", "GPUs", "driver", "training", "findings", "hardware")
# What a narrow terminal has no room for; that a host is simulated is always shown.
LEAST_FIRST = ("training", "system", "profile", "GPUs", "driver")


def to_text(fleet: FleetReport, *, verbose: bool = False, width: int | None = None) -> str:
    """Write problems by cause, one line per host, then fleet problems, then comparisons of hosts, then the verdict.

    Every simulated line is marked. A large fleet has its worst hosts first, and passing ones are only counted, unless
    verbose. width: columns of the terminal.
    """
    many = len(fleet.hosts) > MANY and not verbose
    outlier_hosts = {outlier.host for outlier in fleet.outliers}
    shown = [row for row in fleet.hosts if not many or row.verdict is not Verdict.PASS or row.host in outlier_hosts]
    if many:
        shown.sort(key=lambda row: WORST_FIRST.index(row.verdict))
    stands_in = sorted({text for row in fleet.hosts for text in row.stand_ins})
    return paragraphs(
        [
            summary(fleet.hosts),
            _causes(fleet),
            [*_table(shown, outlier_hosts, width), *_left_out(len(fleet.hosts) - len(shown))],
            lines(shown),
            [f"{simulated_mark()} component: {one_line(text)}" for text in stands_in],
            _outliers(fleet, many=many),
            _results(fleet),
            _drift(fleet),
            _changes(fleet),
            _about_reports(fleet),
            [_last(fleet)],
        ]
    )


def _table(rows: list[FleetRow], outlier_hosts: set[str], width: int | None) -> list[str]:
    """One line per host. In a narrow terminal, columns are left out until it fits, and named."""
    left: list[str] = []
    for name in ("", *LEAST_FIRST):
        left += [name] if name else []
        kept = [i for i, title in enumerate(HEADER) if title not in left]
        cells = [_cells(row, row.host in outlier_hosts, profile="profile" not in left) for row in rows]
        lines = table([HEADER[i] for i in kept], [[row[i] for i in kept] for row in cells])
        if width is None or max(len(click.unstyle(line)) for line in lines) <= width:
            break
    note = f"Not shown in {width} columns: {', '.join(left)} (--format csv has them)"
    return [*lines, click.style(note, dim=True)] if left else lines


def _cells(row: FleetRow, stands_out: bool, *, profile: bool) -> tuple[str, ...]:
    real = "real" if row.system else "-"
    hardware = simulated_mark(one_line(row.simulation or "") if profile else "") if row.simulated else real
    findings = [*(["outlier"] if stands_out else []), *([counts_line(row.counts)] if row.counts else [])]
    text = (row.host, row.system, row.gpus, row.driver, row.training, ", ".join(findings))
    return (verdict_word(row.verdict), *(one_line(cell) if cell else "-" for cell in text), hardware)


def _left_out(passing: int) -> Iterator[str]:
    if passing:
        yield f"{verdict_word(Verdict.PASS)}  {plural(passing, 'more host')} pass (-v lists them)"


def _outliers(fleet: FleetReport, *, many: bool) -> Iterator[str]:
    if not fleet.outliers:
        return
    yield click.style("Outliers", bold=True)
    hosts = {row.host: row for row in fleet.hosts}
    # Of a host in a large fleet the metric that is farthest off, and how many more there are.
    found = Counter(o.host for o in fleet.outliers)
    farthest: dict[str, Outlier] = {}
    for outlier in fleet.outliers:
        farthest.setdefault(outlier.host, outlier)
    shown = list(farthest.values())[:MANY] if many else list(fleet.outliers)
    rows = (
        (
            click.style(one_line(o.host), bold=True),
            one_line(metric_title(o.metric)) + (f" and {found[o.host] - 1} more" if many and found[o.host] > 1 else ""),
            one_line(place(o, hosts[o.host])),
            f"{o.value:.4g}",
            _off(o),
            f"{'at least' if o.z is None else 'normal'} {o.normal:.4g}",
            one_line(o.group),
        )
        for o in shown
    )
    yield from table(("host", "metric", "where", "value", "off", "should be", "among"), rows)
    if len(fleet.outliers) > len(shown):
        hidden = len(farthest) - len(shown)
        yield f"{plural(hidden, 'more host')} (-v lists them)" if hidden > 0 else "-v lists all metrics"


def _off(outlier: Outlier) -> str:
    """A part of normal; a difference where zero is arbitrary, or normal."""
    if outlier.normal and not outlier.metric.partition("[")[0].endswith("_c"):
        return f"{outlier.percent:+.1f} %"
    return f"{outlier.value - outlier.normal:+.3g}"


def _results(fleet: FleetReport) -> Iterator[str]:
    if fleet.agreements:
        yield click.style("Results of equal computations", bold=True)
    for one in results(fleet):
        hosts = f" ({names(list(one.hosts))})" if one.hosts else ""
        yield f"  {one_line(f'{one.what} on {one.on}: {one.compared}, {one.outcome}{hosts}')}"


def _causes(fleet: FleetReport) -> Iterator[str]:
    if fleet.causes:
        yield click.style("What unhealthy hosts share", bold=True)
        yield from (f"  {one_line(cause.text)}" for cause in fleet.causes)


def _drift(fleet: FleetReport) -> Iterator[str]:
    if not fleet.drift:
        return
    yield click.style("Drift", bold=True)
    for entry in fleet.drift:
        yield f"  {one_line(entry.attribute)} ({one_line(entry.scope)})"
        for i, v in enumerate(entry.values):
            which = f": {names(list(v.names), v.hosts)}" if i else ""
            yield f"    {v.hosts:>6} x {one_line(v.value)}{one_line(which)}"


def _changes(fleet: FleetReport) -> Iterator[str]:
    if fleet.changes:
        yield click.style("Since the previous merge", bold=True)
        rows = ((f"  {change.kind}", one_line(change.text)) for change in fleet.changes[:200])
        yield from (f"{kind:<9} {text}" for kind, text in rows)
        if len(fleet.changes) > 200:
            yield f"  {len(fleet.changes) - 200} more"


def _about_reports(fleet: FleetReport) -> Iterator[str]:
    """Missing reports are rows above already, and unreadable ones that no readable one of the same host replaced."""
    rows = {row.source for row in fleet.hosts if row.digest is None}
    problems = [p for p in fleet.problems if p.kind != "missing" and not (p.kind == "unreadable" and p.subject in rows)]
    if problems:
        yield click.style("About the reports", bold=True)
    for kind in dict.fromkeys(problem.kind for problem in problems):
        texts = [problem.text for problem in problems if problem.kind == kind]
        yield from (f"  {kind:<10} {one_line(text)}" for text in texts[:MANY])
        if len(texts) > MANY:
            yield f"  {kind:<10} {len(texts) - MANY} more: --format json lists them"


def _last(fleet: FleetReport) -> str:
    mark = f"  {simulated_mark()}" if fleet.simulated else ""
    count = len({outlier.host for outlier in fleet.outliers})
    outliers = f", {plural(count, 'outlier')}" if count else ""
    hosts = plural(len(fleet.hosts), "host")
    return f"{verdict_word(fleet.verdict, 0)}  {hosts}: {counts_line(fleet.counts)}{outliers}{mark}"
