"""What is wrong in a fleet: by cause on top, then each problem once with the hosts and GPUs that have it."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import click

from gpucheck.knowledge.advice import fix_of
from gpucheck.knowledge.codes import of_several
from gpucheck.model import Agreement, Finding, FleetReport, FleetRow, Outlier, Verdict, by_root
from gpucheck.model.finding.naming import gpu_name
from gpucheck.printable import folded, one_line
from gpucheck.render.findings import identity, not_run, where_all
from gpucheck.render.words import WORST_FIRST, observed, plural, ranges
from gpucheck.render.write.terminal import simulated_mark, verdict_word

OUTCOMES = {
    "equal": "all equal",
    "outlier": "{equal} equal, the others unlike any other host",
    "several": "{equal} equal, the others agree with each other: other software or topology",
    "undecided": "no majority, so no host is named",
    "single": "nothing to compare with",
}


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
    return [_line(entries) for entries in groups.values()]


def _line(entries: list[Agreement]) -> Results:
    first, operations = entries[0], len(entries)
    what = first.operation if operations == 1 else plural(operations, "operation")
    count = f"{plural(first.results, 'result')} of {plural(first.hosts, 'host')}"
    return Results(what, first.on, count, OUTCOMES[first.outcome].format(equal=first.equal), first.outliers)


NAMED = 8
# The merge's own findings on numbers, which have no cause, have a table of their own.
OWN = "fleet"
CAUSES = 12


class Problem(NamedTuple):
    """One problem of the fleet. hosts: by name, the findings of each. follow: checks that add nothing to it.

    also: other checks that found the same fault.
    """

    rows: dict[str, FleetRow]
    hosts: dict[str, list[Finding]]
    follow: tuple[str, ...]
    also: tuple[str, ...]

    @property
    def first(self) -> Finding:
        return next(iter(self.hosts.values()))[0]


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


def summary(rows: Sequence[FleetRow]) -> Iterator[str]:
    """Yield ``nvlink-down: 4 hosts, throttled: 3 hosts``."""
    found = by_cause(rows)
    if found:
        yield click.style("Problems by cause", bold=True)
        more = [f"and {len(found) - CAUSES} more"] if len(found) > CAUSES else []
        yield "  " + ", ".join([*(f"{one_line(n)}: {plural(count, 'host')}" for n, _, count in found[:CAUSES]), *more])


def problems(rows: Sequence[FleetRow]) -> list[Problem]:
    """Return every problem once, the worst and the most frequent first."""
    found: dict[tuple[object, ...], Problem] = {}
    follow: dict[tuple[object, ...], dict[str, None]] = {}
    also: dict[tuple[object, ...], dict[str, None]] = {}
    for row in rows:
        own, after = by_root(finding for finding in row.problems if finding.check != OWN or finding.cause)
        for finding, others in own:
            key = (finding.check, *identity(finding))
            of, hosts, *_ = found.setdefault(key, Problem({}, {}, (), ()))
            of[row.host] = row
            hosts.setdefault(row.host, []).append(finding)
            names_of = dict.fromkeys(other.check for other in others)
            also.setdefault(key, {}).update(names_of)
            for check in (finding.check, *names_of):
                follow.setdefault(key, {}).update(dict.fromkeys(after.get(check, ())))
    made = [one._replace(follow=tuple(follow[key]), also=tuple(also[key])) for key, one in found.items()]
    return sorted(made, key=lambda p: (WORST_FIRST.index(p.first.verdict), not p.follow, -len(p.hosts)))


def lines(rows: Sequence[FleetRow]) -> Iterator[str]:
    for problem in problems(rows):
        first = problem.first
        findings = [finding for found in problem.hosts.values() for finding in found]
        whole = all(is_whole(found, problem.rows[host]) for host, found in problem.hosts.items())
        seen, why, fix = observed(first), first.why, first.fix
        if len({finding.subject for finding in findings}) > 1:
            why, steps = of_several(first, ["BUS_ID"], every_gpu=whole)
            fix = fix_of(steps) or fix
        mark = f"  {simulated_mark()}" if any(row.simulated for row in problem.rows.values()) else ""
        where = names([_host(host, found, problem.rows[host]) for host, found in problem.hosts.items()])
        yield f"{verdict_word(first.verdict)} {one_line(f'{first.check}: {seen}  on {where}')}{mark}"
        if why != seen:
            yield f"        why    {one_line(folded(why))}"
        yield f"        fix    {one_line(folded(fix))}"
        if first.cause:
            yield f"        cause  {one_line(first.cause)} ({first.confidence or 'possible'})"
        if problem.also:
            yield f"        also   {one_line(', '.join(problem.also))}"
        if problem.follow:
            yield f"{verdict_word(Verdict.UNKNOWN)} {click.style(one_line(not_run(list(problem.follow))), dim=True)}"


def is_whole(findings: Sequence[Finding], row: FleetRow) -> bool:
    """Whether all GPUs of the host have it."""
    return len(row.gpu_index) > 1 and {f.subject for f in findings} == {f"gpu:{bus_id}" for bus_id in row.gpu_index}


def _host(host: str, findings: list[Finding], row: FleetRow) -> str:
    """``node01 GPU 2``: bus ids are in the host's own report."""
    if all(finding.subject == "host" for finding in findings):
        return host
    if is_whole(findings, row):
        return f"{host} (all {len(row.gpu_index)} GPUs)"
    indexes = [f.gpu_index for f in findings if f.gpu_index is not None and f.subject.startswith("gpu:")]
    return f"{host} GPU {ranges(sorted(indexes))}" if len(indexes) == len(findings) else f"{host} {where_all(findings)}"


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
