"""Hosts compared with their own numbers of an earlier merge: who fell behind while the others did not?

A number is compared as its change: a host whose number changed as those of its group did (a new driver, a warmer room)
is as it was. The same statistics as between hosts decide what is noise.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpucheck.fleet.metrics import worse
from gpucheck.fleet.outliers import LEVELS, LIMITS, absolute, is_outlier, place_of, relative_offset
from gpucheck.fleet.statistics import ENOUGH, Middle, middle_of, widened
from gpucheck.model import FleetReport, FleetRow, HostMetric, Outlier
from gpucheck.model.fleet import Level


class _Sample(NamedTuple):
    """A metric of a host, then and now."""

    row: FleetRow
    then: HostMetric
    now: HostMetric
    started: str | None


def since_previous(rows: Sequence[FleetRow], previous: FleetReport, known: Sequence[Outlier]) -> tuple[Outlier, ...]:
    """Return the outliers of the changes, the farthest first. known: outliers among the hosts, which are not repeated.

    Hosts with another report than then, and the same GPU models and number, take part.
    """
    before = {row.host: row for row in previous.hosts}
    samples: dict[tuple[str, str], list[_Sample]] = defaultdict(list)
    for row in rows:
        then = before.get(row.host)
        if then is None or row.group is None or then.digest == row.digest or _machine(then) != _machine(row):
            continue
        for name, metric in row.metrics.items():
            if name in then.metrics and worse(name) != "either":
                samples[row.group, name].append(_Sample(row, then.metrics[name], metric, then.started))
    named = {(outlier.host, outlier.metric) for outlier in known}
    found = [
        outlier
        for (group, name), members in sorted(samples.items(), key=lambda item: item[0])
        for outlier in _compared(group, name, members)
        if (outlier.host, name) not in named
    ]
    return tuple(sorted(found, key=lambda o: (-abs(o.percent), o.host, o.metric)))


def _machine(row: FleetRow) -> tuple[str | None, bool]:
    return row.gpus, row.simulated


def _compared(group: str, name: str, members: Sequence[_Sample]) -> Iterator[Outlier]:
    """Yield one outlier a host and metric, at the level where the change is."""
    found: dict[str, Outlier] = {}
    for level, value_of in LEVELS.items():
        changes = []
        for member in members:
            then, now = value_of(member.then), value_of(member.now)
            if then is not None and now is not None and (then > 0 or absolute(name) is not None):
                changes.append((member, then, now, now - then if absolute(name) is not None else now / then))
        if len(changes) < ENOUGH:
            continue
        normal = middle_of([change for *_, change in changes], LIMITS[level])
        limit = widened(LIMITS[level], normal.n)
        for member, then, now, change in changes:
            if is_outlier(name, change, normal, limit):
                outlier = _outlier(group, name, member, level, then, now, change, normal)
                wider = found.get(outlier.host)
                if wider is None or relative_offset(outlier) > relative_offset(wider):
                    found[outlier.host] = outlier
    yield from found.values()


def _outlier(
    group: str, name: str, member: _Sample, level: Level, then: float, now: float, change: float, normal: Middle
) -> Outlier:
    expected = then + normal.median if absolute(name) is not None else then * normal.median
    return Outlier(
        host=member.row.host,
        group=group,
        metric=name,
        level=level,
        at=place_of(member.now, level),
        value=now,
        normal=float(f"{expected:.6g}"),
        percent=round(100 * (now - expected) / abs(expected), 1) if expected else 0.0,
        z=round((change - normal.median) / normal.sigma, 1),
        since=member.started or "",
    )
