"""How the digests of equal computations compare, a line for all operations with the same outcome."""

from typing import NamedTuple

from gpucheck.model import Agreement, FleetReport
from gpucheck.render.words import plural

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
