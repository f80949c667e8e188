"""Outliers: hosts whose numbers differ from hosts that should measure the same."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from gpucheck.fleet.metrics import worse
from gpucheck.fleet.statistics import ENOUGH, Middle, middle_of, widened
from gpucheck.knowledge.codes import Subject
from gpucheck.model import (
    Finding,
    FleetRow,
    HostMetric,
    MetricGroup,
    Outlier,
    metric_title,
    named,
    worst,
)
from gpucheck.model.device import Device
from gpucheck.model.fleet import Level

# Deviations beyond which a value is not noise. The worst of 8 GPUs and of 28 pairs spread to the bad side by
# themselves (an extreme has a longer tail than a middle), so they need more; calibrated by bench/fleet_detection.py.
LIMITS: dict[Level, float] = {"host": 5.0, "gpu": 5.5, "pair": 6.0}
# A steady fleet shows differences that mean nothing to a job: less than this part of normal is never named.
MATTERS = 0.03
# Of units whose zero means nothing, or is the usual value, the smallest difference that is named.
LEAST = {"_c": 10.0, "_percent": 20.0, "_count": 10.0}
# A part is the trouble, and not the whole, when it is off by this much more than the whole.
PULLS = 1.5
BINS = 24
UNIT_WORDS = {
    "tflops": "TFLOPS",
    "_gb_s": "GB/s",
    "_us": "us",
    "_ms": "ms",
    "_seconds": "s",
    "_per_s": "per s",
    "_percent": "%",
    "_c": "C",
}


LEVELS: dict[Level, Callable[[HostMetric], float | None]] = {
    "host": lambda m: m.host,
    "gpu": lambda m: m.gpu,
    "pair": lambda m: m.pair,
}


class _Sample(NamedTuple):
    row: FleetRow
    metric: HostMetric


def find_outliers(rows: Sequence[FleetRow]) -> tuple[tuple[MetricGroup, ...], tuple[Outlier, ...]]:
    """Return every metric of every group of hosts, and the outliers, the farthest first."""
    having: dict[tuple[str, str], list[FleetRow]] = defaultdict(list)
    for row in rows:
        for name in row.metrics if row.group else ():
            having[row.group or "", name].append(row)
    groups: list[MetricGroup] = []
    found: list[Outlier] = []
    for (group, name), measured in sorted(having.items(), key=lambda item: item[0]):
        members = [_Sample(row, row.metrics[name]) for row in measured]
        normal = middle_of([m.metric.host for m in members], LIMITS["host"])
        enough = len(members) >= ENOUGH
        groups.append(_group(group, name, members, normal, "fleet" if enough else "model"))
        found += _compared(group, name, members) if enough else _modelled(group, name, members)
    return tuple(groups), tuple(sorted(found, key=lambda o: (-abs(o.percent), o.host, o.metric)))


def with_outliers(rows: Sequence[FleetRow], outliers: Sequence[Outlier]) -> list[FleetRow]:
    """Return the rows, a WARN for each outlier on the bad side: its own run found nothing, its peers do better."""
    of_host: dict[str, list[Finding]] = defaultdict(list)
    for outlier in outliers:
        if worse(outlier.metric) != "either":
            of_host[outlier.host].append(_finding(outlier))
    return [with_findings(row, of_host[row.host]) if row.host in of_host else row for row in rows]


def with_findings(row: FleetRow, findings: Iterable[Finding]) -> FleetRow:
    """Return the row with what only the comparison of hosts shows; its verdict is never better than that."""
    gpus = (Device(index=index, name="", bus_id=bus_id) for bus_id, index in row.gpu_index.items())
    known = named(findings, gpus)
    verdict = worst([row.verdict, *(finding.verdict for finding in known)])
    return replace(row, verdict=verdict, problems=(*row.problems, *known))


def _finding(outlier: Outlier) -> Finding:
    subject = f"{outlier.level}:{outlier.at}" if outlier.at else "host"
    unit = next(
        (unit for suffix, unit in UNIT_WORDS.items() if outlier.metric.partition("[")[0].endswith(suffix)), None
    )
    off = outlier.value - outlier.normal
    size = f"{abs(off):.3g} {unit or ''}".strip() if _absolute(outlier.metric) else f"{abs(outlier.percent):g} %"
    if outlier.z is not None:
        code = "fleet.below-peers" if off < 0 else "fleet.above-peers"
    else:
        code = "fleet.below-expected" if off < 0 else "fleet.above-expected"
    return Subject(check="fleet", name=subject, unit=unit).warns(
        code, outlier.value, outlier.normal, metric=metric_title(outlier.metric), off=size, group=outlier.group
    )


def _group(group: str, name: str, members: list[_Sample], normal: Middle, basis: str) -> MetricGroup:
    values = [m.metric.host for m in members]
    low, high = min(values), max(values)
    counts = [0] * (BINS if high > low else 1)
    for value in values:
        counts[min(int((value - low) / (high - low) * BINS), BINS - 1) if high > low else 0] += 1
    return MetricGroup(
        group=group,
        metric=name,
        hosts=len(values),
        median=normal.median,
        sigma=normal.sigma,
        low=low,
        high=high,
        counts=tuple(counts),
        basis="fleet" if basis == "fleet" else "model",
    )


def _compared(group: str, name: str, members: list[_Sample]) -> Iterator[Outlier]:
    """Like with like: hosts with hosts, worst GPUs with worst GPUs, worst pairs with worst pairs.

    A host is named once a metric, where the trouble is: a GPU or pair that is much farther off than the whole around
    it is what pulls the whole down.
    """
    named: dict[str, Outlier] = {}
    for level, value_of in LEVELS.items():
        having = [(m, v) for m in members if (v := value_of(m.metric)) is not None]
        if len(having) < ENOUGH:
            continue
        normal = middle_of([v for _, v in having], LIMITS[level])
        limit = widened(LIMITS[level], normal.n)
        for member, value in having:
            if _is_outlier(name, value, normal, limit):
                found = _outlier(group, name, member, level, value, normal.median, normal.sigma)
                wider = named.get(found.host)
                if wider is None or _relative_offset(found) > PULLS * _relative_offset(wider):
                    named[found.host] = found
    yield from named.values()


def _relative_offset(outlier: Outlier) -> float:
    """Return how far off it is, as a part of the normal value, or in its unit."""
    off = abs(outlier.value - outlier.normal)
    return off if _absolute(outlier.metric) is not None else off / (abs(outlier.normal) or 1.0)


def _is_outlier(name: str, value: float, normal: Middle, limit: float) -> bool:
    """Return whether the value is on the unhealthy side, farther off than noise explains and far enough to matter."""
    off = value - normal.median
    side = worse(name)
    if (side == "lower" and off > 0) or (side == "higher" and off < 0):
        return False
    least = _absolute(name)
    return abs(off) > limit * normal.sigma and abs(off) > (MATTERS * abs(normal.median) if least is None else least)


def _place_of(metric: HostMetric, level: Level) -> str | None:
    """Return the GPU or pair of a value; None for the host."""
    return {"host": None, "gpu": metric.gpu_at, "pair": metric.pair_at}[level]


def _absolute(name: str) -> float | None:
    """Return the smallest difference that is named, for units whose zero means nothing; None for other units."""
    key = name.partition("[")[0]
    return next((least for unit, least in LEAST.items() if key.endswith(unit)), None)


def _modelled(group: str, name: str, members: list[_Sample]) -> Iterator[Outlier]:
    """Too few hosts for a normal of their own: only what the model of the machine does not allow is named."""
    for member in members:
        low = member.metric.low
        for level, value_of in LEVELS.items():
            value = value_of(member.metric)
            if value is not None and low is not None and value < low * (1 - MATTERS):
                yield _outlier(group, name, member, level, value, low, None)
                break


def _outlier(
    group: str, name: str, member: _Sample, level: Level, value: float, normal: float, sigma: float | None
) -> Outlier:
    off = value - normal
    return Outlier(
        host=member.row.host,
        group=group,
        metric=name,
        level=level,
        at=_place_of(member.metric, level),
        value=value,
        normal=normal,
        percent=round(100 * off / abs(normal), 1) if normal else 0.0,
        z=round(off / sigma, 1) if sigma else None,
    )
