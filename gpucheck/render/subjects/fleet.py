"""A merged fleet report: problems by cause, a row a host, each problem once, and comparisons of hosts."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from gpucheck.knowledge.codes import of_several
from gpucheck.model import Finding, Verdict, by_root
from gpucheck.model.finding import Step, gpu_name
from gpucheck.model.fleet import Agreement, Change, FleetReport, FleetRow, Outlier
from gpucheck.model.measurements import metric_title
from gpucheck.printable import cleaned, one_line, ranges
from gpucheck.render.blocks import Block, Cell, Document, Findings, Lines, Row, Table, words
from gpucheck.render.findings import Group, group_equal, identity, where_all
from gpucheck.render.words import WORST_FIRST, counts_line, plural

OUTCOMES = {
    "equal": "all equal",
    "outlier": "{equal} equal, the others unlike any other host",
    "several": "{equal} equal, the others agree with each other: other software or topology",
    "undecided": "no majority, so no host is named",
    "single": "nothing to compare with",
}
NAMED = 8
# The merge's own findings on numbers, which have no cause, have a table of their own.
OWN = "fleet"
NO_CAUSE = {"outlier": "unlike equal hosts", "report": "report unreadable or contradictory"}
CAUSES = 12
CHANGES = 200
# A terminal shows this many hosts; of more, those that pass are counted.
MANY = 40
HEADER = ("verdict", "host", "system", "GPUs", "driver", "training", "findings", "hardware")
# Columns that are printed once for all rows where more rows than FEW have the same.
COMMON, FEW = ("system", "GPUs", "driver", "training"), 3
# What a narrow terminal has no room for; that a host is simulated is always shown.
LEAST_FIRST = ("training", "system", "profile", "GPUs", "driver")


def document(fleet: FleetReport, *, verbose: bool = False, width: int | None = None) -> Document:
    """Problems by cause, one row per host, then fleet problems, then comparisons of hosts.

    Every simulated row is marked. A large fleet has its worst hosts first, and passing ones are only counted, unless
    verbose. width: columns of the terminal.
    """
    many = len(fleet.hosts) > MANY and not verbose
    found = [f"{NO_CAUSE.get(name, name)}: {plural(count, 'host')}" for name, _, count in by_cause(fleet.hosts)]
    causes = [*found[:CAUSES], *([f"and {len(found) - CAUSES} more"] if len(found) > CAUSES else [])]
    outlier_hosts = {outlier.host for outlier in fleet.outliers}
    shown = [row for row in fleet.hosts if not many or row.verdict is not Verdict.PASS or row.host in outlier_hosts]
    if many:
        shown.sort(key=lambda row: WORST_FIRST.index(row.verdict))
    stand_ins = sorted({text for row in fleet.hosts for text in row.stand_ins})
    outliers = f", {plural(len(outlier_hosts), 'outlier')}" if outlier_hosts else ""
    hosts = plural(len(fleet.hosts), "host")
    return Document(
        command="fleet report",
        host="",
        verdict=fleet.verdict,
        counts=fleet.counts,
        schema=fleet.schema,
        simulated="hosts are marked so" if fleet.simulated else None,
        unread="Of these no real GPU was read.",
        summary=f"{hosts}: {counts_line(fleet.counts)}{outliers}",
        body=[
            *_lines("Problems by cause", [", ".join(causes)] if causes else []),
            *_lines("What unhealthy hosts share", [cause.text for cause in fleet.causes]),
            _hosts(shown, outlier_hosts, width, len(fleet.hosts) - len(shown)),
            Findings(problems(shown)),
            *_lines("SIMULATED components", stand_ins),
            *_outliers(fleet, many=many),
            *_lines("Results of equal computations", map(_agreement, results(fleet))),
            *_lines("Drift", _drift(fleet)),
            *_lines("Since the previous merge", _changes(fleet)),
            *_lines("About the reports", _about_reports(fleet)),
        ],
    )


def _lines(title: str, lines: Iterable[str]) -> Iterator[Lines]:
    shown: list[Cell | str] = [one_line(line) for line in lines]
    if shown:
        yield Lines(shown, title)


class Results(NamedTuple):
    """what: the operation, or how many. on: models and versions. hosts: those that differ. The others are texts."""

    what: str
    on: str
    compared: str
    outcome: str
    hosts: tuple[str, ...]


def results(fleet: FleetReport) -> list[Results]:
    """Return the lines. Trainings name their settings, so each has its own; versions are not compared with others."""
    groups: dict[tuple[object, ...], list[Agreement]] = {}
    for entry in fleet.agreements:
        own = entry.operation if entry.operation.startswith("losses") else ""
        key = (own, entry.on, entry.outcome, entry.results, entry.hosts, entry.equal, entry.outliers)
        groups.setdefault(key, []).append(entry)
    return [
        Results(
            what=first.operation if not others else plural(1 + len(others), "operation"),
            on=first.on,
            compared=f"{plural(first.results, 'result')} of {plural(first.hosts, 'host')}",
            outcome=OUTCOMES[first.outcome].format(equal=first.equal),
            hosts=first.outliers,
        )
        for first, *others in groups.values()
    ]


def _agreement(one: Results) -> str:
    hosts = f" ({names(list(one.hosts))})" if one.hosts else ""
    return f"{one.what} on {one.on}: {one.compared}, {one.outcome}{hosts}"


def by_cause(rows: Sequence[FleetRow]) -> list[tuple[str, Verdict, int]]:
    """Return each cause (a check without one), its worst verdict and how many hosts have it, the worst first."""
    hosts: dict[str, set[str]] = {}
    worst: dict[str, Verdict] = {}
    for row in rows:
        for finding, _ in by_root(row.problems)[0]:
            name = finding.cause or ("outlier" if finding.check == OWN else finding.check)
            hosts.setdefault(name, set()).add(row.host)
            worst[name] = min(worst.get(name, finding.verdict), finding.verdict, key=WORST_FIRST.index)
    ordered = sorted(hosts, key=lambda name: (WORST_FIRST.index(worst[name]), -len(hosts[name]), name))
    return [(name, worst[name], len(hosts[name])) for name in ordered]


class _Problem(NamedTuple):
    """hosts: by name, the findings of each. follow: checks that add nothing. also: what else found the fault."""

    rows: dict[str, FleetRow]
    hosts: dict[str, list[Finding]]
    follow: dict[str, None]
    also: dict[str, Finding]


def problems(rows: Sequence[FleetRow]) -> list[Group]:
    """Return every problem once, with the hosts that have it: the worst and the most frequent first."""
    found: dict[tuple[object, ...], _Problem] = {}
    for row in rows:
        own, after = by_root(finding for finding in row.problems if finding.check != OWN or finding.cause)
        for finding, others in own:
            problem = found.setdefault((finding.check, *identity(finding)), _Problem({}, {}, {}, {}))
            problem.rows[row.host] = row
            problem.hosts.setdefault(row.host, []).append(finding)
            for other in others:
                problem.also.setdefault(other.check, other)
            for check in (finding.check, *(other.check for other in others)):
                problem.follow.update(dict.fromkeys(after.get(check, ())))
    frequent = sorted(found.values(), key=lambda one: -len(one.hosts))
    return sorted(map(_group, frequent), key=lambda one: (WORST_FIRST.index(one.verdict), not one.follow))


def _group(problem: _Problem) -> Group:
    findings = [finding for found in problem.hosts.values() for finding in found]
    first = cleaned(findings[0])
    why, steps = first.why, first.steps or ((Step(text=first.fix, changes=False),) if first.fix else ())
    if len({finding.subject for finding in findings}) > 1:
        whole = all(_is_whole(found, problem.rows[host]) for host, found in problem.hosts.items())
        why, steps = of_several(first, ["BUS_ID"], every_gpu=whole)
    where = names([_host(host, found, problem.rows[host]) for host, found in problem.hosts.items()])
    mark = " (SIMULATED)" if any(row.simulated for row in problem.rows.values()) else ""
    (group,) = group_equal([first])
    return group._replace(
        where=f"{one_line(where)}{mark}",
        why=why if group.why else "",
        steps=steps,
        evidence=(),
        also=tuple(one._replace(where="", evidence=()) for one in group_equal(map(cleaned, problem.also.values()))),
        follow=tuple(map(one_line, problem.follow)),
    )


def _is_whole(findings: Sequence[Finding], row: FleetRow) -> bool:
    return len(row.gpu_index) > 1 and {f.subject for f in findings} == {f"gpu:{bus_id}" for bus_id in row.gpu_index}


def _host(host: str, findings: list[Finding], row: FleetRow) -> str:
    """``node01 GPU 2``: bus ids are in the host's own report."""
    if all(finding.subject == "host" for finding in findings):
        return host
    if _is_whole(findings, row):
        return f"{host} (all {len(row.gpu_index)} GPUs)"
    indexes = [f.gpu_index for f in findings if f.gpu_index is not None and f.subject.startswith("gpu:")]
    return f"{host} GPU {ranges(sorted(indexes))}" if len(indexes) == len(findings) else f"{host} {where_all(findings)}"


def _hosts(rows: list[FleetRow], outlier_hosts: set[str], width: int | None, passing: int) -> Table:
    left: list[str] = []
    equal: dict[str, str] = {}
    if len(rows) > FEW:
        whole = zip(HEADER, *(_cells(row, stands_out=False, profile=True) for row in rows), strict=True)
        texts = {title: {cell.text for cell in column} for title, *column in whole if title in COMMON}
        equal = {title: text for title, (text, *others) in texts.items() if not others}
    for name in ("", *(name for name in LEAST_FIRST if name not in equal)):
        left += [name] if name else []
        kept = [i for i, title in enumerate(HEADER) if title not in left and title not in equal]
        cells = [_cells(row, row.host in outlier_hosts, profile="profile" not in left) for row in rows]
        shown = [[row[i] for i in kept] for row in cells]
        columns = zip([HEADER[i] for i in kept], *([cell.text for cell in row] for row in shown), strict=True)
        if width is None or sum(2 + max(map(len, column)) for column in columns) - 2 <= width:
            break
    notes = [f"Not shown in {width} columns: {', '.join(left)} (--format csv has them)"] if left else []
    known = [f"{title} {text}" for title, text in equal.items() if text != "-"]
    notes += [f"all {len(rows)}: {', '.join(known)}"] if known else []
    more = f"{plural(passing, 'more host')} pass (-v lists them; up to {MANY} hosts all are listed)"
    notes += [more] if passing else []
    return Table(words(*(HEADER[i] for i in kept)), shown, about="; ".join(notes))


def _cells(row: FleetRow, stands_out: bool, *, profile: bool) -> list[Cell]:
    mark = Cell(f"SIMULATED {one_line(row.simulation or '') if profile else ''}".rstrip(), tone="simulated")
    findings = [*(["outlier"] if stands_out else []), *([counts_line(row.counts)] if row.counts else [])]
    text = (row.host, row.system, row.gpus, row.driver, row.training, ", ".join(findings))
    return [
        Cell(row.verdict.name, tone=row.verdict.value),
        *(Cell(one_line(cell) if cell else "-") for cell in text),
        mark if row.simulated else Cell("real" if row.system else "-"),
    ]


def _outliers(fleet: FleetReport, *, many: bool) -> Iterator[Block]:
    if not fleet.outliers:
        return
    hosts = {row.host: row for row in fleet.hosts}
    # Of a host first what names a GPU, which explains the rest; in a large fleet that, and how many more there are.
    found = Counter(o.host for o in fleet.outliers)
    order = [*found]
    ordered = sorted(fleet.outliers, key=lambda o: (order.index(o.host), o.at is None))
    first: dict[str, Outlier] = {}
    for outlier in ordered:
        first.setdefault(outlier.host, outlier)
    shown = [*first.values()][:MANY] if many else ordered
    rows: list[Row] = [
        [
            one_line(o.host),
            one_line(metric_title(o.metric)) + (f" and {found[o.host] - 1} more" if many and found[o.host] > 1 else ""),
            one_line(place(o, hosts[o.host])),
            f"{o.value:.4g}",
            _off(o),
            f"{'at least' if o.z is None else 'normal'} {o.normal:.4g}",
            one_line(o.group),
        ]
        for o in shown
    ]
    about = ""
    if len(fleet.outliers) > len(shown):
        hidden = len(first) - len(shown)
        about = f"{plural(hidden, 'more host')} (-v lists them)" if hidden > 0 else "-v lists all metrics"
    yield Table(words("host", "metric", "where", "value", "off", "should be", "among"), rows, "Outliers", about)


def _off(outlier: Outlier) -> str:
    """A part of normal; a difference where zero is arbitrary, or normal."""
    if outlier.normal and not outlier.metric.partition("[")[0].endswith("_c"):
        return f"{outlier.percent:+.1f} %"
    return f"{outlier.value - outlier.normal:+.3g}"


def _drift(fleet: FleetReport) -> Iterator[str]:
    for entry in fleet.drift:
        yield f"{entry.attribute} ({entry.scope})"
        for i, v in enumerate(entry.values):
            yield f"  {v.hosts:>6} x {v.value}" + (f": {names(list(v.names), v.hosts)}" if i else "")


def _changes(fleet: FleetReport) -> Iterator[str]:
    equal: dict[tuple[object, ...], list[Change]] = {}
    for one in fleet.changes:
        equal.setdefault((one.kind, one.after and one.before, one.after, one.appeared, one.left), []).append(one)
    for same in [*equal.values()][:CHANGES]:
        colon = ":" if len(same) > 1 else ""
        yield f"{same[0].kind:<7} {names([one.host for one in same])}{colon} {same[0].words()}"
    if len(equal) > CHANGES:
        yield f"{len(equal) - CHANGES} more"


def _about_reports(fleet: FleetReport) -> Iterator[str]:
    """Missing reports are rows above already, and unreadable ones that no readable one of the same host replaced."""
    rows = {row.source for row in fleet.hosts if row.digest is None}
    told = [p for p in fleet.problems if p.kind != "missing" and not (p.kind == "unreadable" and p.subject in rows)]
    for kind in dict.fromkeys(problem.kind for problem in told):
        texts = [problem.text for problem in told if problem.kind == kind]
        yield from (f"{kind:<10} {text}" for text in texts[:MANY])
        if len(texts) > MANY:
            yield f"{kind:<10} {len(texts) - MANY} more: --format json lists them"


def place(outlier: Outlier, row: FleetRow) -> str:
    """Where a number is off: ``GPU 2 (0000:4c:00.0)``."""
    if outlier.at is None:
        return "entire host"
    ids = outlier.at.split("-") if outlier.level == "pair" else [outlier.at]
    return " - ".join(gpu_name(bus_id, row.gpu_index.get(bus_id)) for bus_id in ids)


def names(found: Sequence[str], count: int | None = None) -> str:
    """Join the first of them and count the rest."""
    count = len(found) if count is None else count
    more = f" and {count - NAMED} more" if count > NAMED else ""
    return f"{', '.join(found[:NAMED])}{more}"
