"""Outliers: hosts whose numbers differ from hosts that should measure the same."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import Literal, NamedTuple

from msgspec.structs import replace

from gpucheck.fleet.metrics import worse
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding, named, worst
from gpucheck.model.device import Device
from gpucheck.model.fleet import FleetRow, Level, MetricGroup, Outlier
from gpucheck.model.measurements import metric_title, metric_unit

# 1 / 0.6745: makes the median absolute deviation of normal noise its standard deviation.
NORMAL = 1.4826
# No fleet is steadier than this part of its median (facts: floor the deviation at 0.5 %).
FLOOR = 0.005
# With fewer hosts there is no middle to compare with.
ENOUGH = 5
ROUNDS = 10
# Croux and Rousseeuw (1992): what the deviation of n normal values must be multiplied with to be unbiased; above 9
# it is n / (n - 0.8).
SMALL = {2: 1.196, 3: 1.495, 4: 1.363, 5: 1.206, 6: 1.2, 7: 1.14, 8: 1.129, 9: 1.107}


class Middle(NamedTuple):
    """A robust normal: median, deviation in units of a standard deviation, and how many values stayed in."""

    median: float
    sigma: float
    n: int


def middle_of(values: Sequence[float], limit: float) -> Middle:
    """Median and deviation of what remains after values beyond the limit (in deviations) are left out, repeatedly.

    One pass would let a fifth of bad hosts widen what counts as normal; at least half the values always stay.
    """
    kept = sorted(values)
    for _ in range(ROUNDS):
        found = _once(kept)
        reach = widened(limit, found.n) * found.sigma
        smaller = [v for v in values if abs(v - found.median) <= reach]
        if len(smaller) == len(kept) or 2 * len(smaller) < len(values):
            break
        kept = sorted(smaller)
    return _once(kept)


def _once(values: list[float]) -> Middle:
    centre = median(values)
    n = len(values)
    deviation = median(abs(v - centre) for v in values) * NORMAL * SMALL.get(n, n / (n - 0.8) if n > 1 else 1.0)
    return Middle(centre, max(deviation, NORMAL * FLOOR * abs(centre), 1e-12), n)


def widened(limit: float, n: int) -> float:
    """The limit for n values: a deviation of few is itself uncertain (its error falls with the root of n).

    The factor keeps false alarms of clean normal fleets of 5 to 50 hosts below 1 in 100 fleets; a test holds it there.
    """
    return limit * (1 + 8 / n)


def fisher(failing_with: int, failing: int, others_with: int, others: int) -> float:
    """Fisher's exact test, one-sided: chance that so many failing hosts have it, if it were unrelated.

    The upper tail of the hypergeometric distribution, summed in logarithms: exact to rounding for any fleet.
    """
    total, having = failing + others, failing_with + others_with
    all_tables = log_choose(total, failing)
    terms = (
        log_choose(having, k) + log_choose(total - having, failing - k) - all_tables
        for k in range(failing_with, min(failing, having) + 1)
    )
    return min(1.0, math.fsum(math.exp(term) for term in terms))


def log_choose(n: int, k: int) -> float:
    if k < 0 or k > n:
        return -math.inf
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


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
# This part of equal hosts has as many GPUs, or hosts with fewer may be built so.
MOST = 0.75
LOST = "gpu-lost"


def find_outliers(rows: Sequence[FleetRow]) -> tuple[tuple[MetricGroup, ...], tuple[Outlier, ...]]:
    """Return every metric of every group of hosts, and the outliers, the farthest first."""
    having: dict[tuple[str, str], list[FleetRow]] = defaultdict(list)
    for row in rows:
        for name in row.metrics if row.group else ():
            having[row.group or "", name].append(row)
    groups: list[MetricGroup] = []
    found: list[Outlier] = []
    for (group, name), members in sorted(having.items(), key=lambda item: item[0]):
        enough = len(members) >= ENOUGH
        groups.append(_group(group, name, [row.metrics[name].host for row in members], "fleet" if enough else "model"))
        found += _compared(group, name, members) if enough else _modelled(group, name, members)
    return tuple(groups), tuple(sorted(found, key=lambda o: (-abs(o.percent), o.host, o.metric)))


def with_outliers(rows: Sequence[FleetRow], outliers: Sequence[Outlier]) -> list[FleetRow]:
    """Return the rows, a WARN for each outlier on the bad side: its own run found nothing, its peers do better."""
    of_host: dict[str, list[Finding]] = defaultdict(list)
    for outlier in outliers:
        if worse(outlier.metric) != "either":
            of_host[outlier.host].append(_finding(outlier))
    return [with_findings(row, of_host[row.host]) if row.host in of_host else row for row in rows]


def with_missing_gpus(rows: Sequence[FleetRow]) -> list[FleetRow]:
    """Return the rows, a WARN for each host with fewer GPUs than nearly all others of its board and models.

    A GPU that does not start with the host is in none of its lists: only the other hosts show that it is absent.
    """
    alike: dict[tuple[tuple[str, ...], str | None], list[FleetRow]] = defaultdict(list)
    for row in rows:
        board = row.attributes.get("board")
        if board and row.group and not row.partial:
            alike[board, row.models].append(row)
    found: dict[str, Finding] = {}
    for members in alike.values():
        usual, count = Counter(row.gpu_count for row in members).most_common(1)[0]
        for row in members if count >= MOST * len(members) else ():
            if row.gpu_count < usual and all(one.cause != LOST for one in row.problems):
                subject = Subject(check="fleet", unit="GPUs")
                found[row.host] = subject.warns("fleet.fewer-gpus", row.gpu_count, usual, equal=count, of=len(members))
    return [with_findings(row, [found[row.host]]) if row.host in found else row for row in rows]


def with_findings(row: FleetRow, findings: Iterable[Finding]) -> FleetRow:
    """Return the row with what only the comparison of hosts shows; its verdict is never better than that."""
    gpus = (Device(index=index, name="", bus_id=bus_id) for bus_id, index in row.gpu_index.items())
    known = named(findings, gpus)
    verdict = worst([row.verdict, *(finding.verdict for finding in known)])
    return replace(row, verdict=verdict, problems=(*row.problems, *known))


def _finding(outlier: Outlier) -> Finding:
    subject = f"{outlier.level}:{outlier.at}" if outlier.at else "host"
    unit = None if outlier.metric.endswith("_count") else metric_unit(outlier.metric)
    off = outlier.value - outlier.normal
    size = f"{abs(off):.3g} {unit or ''}".strip() if _absolute(outlier.metric) else f"{abs(outlier.percent):g} %"
    if outlier.z is not None:
        code = "fleet.below-peers" if off < 0 else "fleet.above-peers"
    else:
        code = "fleet.below-expected" if off < 0 else "fleet.above-expected"
    return Subject(check="fleet", name=subject, unit=unit).warns(
        code, outlier.value, outlier.normal, metric=metric_title(outlier.metric), off=size, group=outlier.group
    )


def _group(group: str, name: str, values: list[float], basis: Literal["fleet", "model"]) -> MetricGroup:
    normal = middle_of(values, LIMITS["host"])
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
        basis=basis,
    )


def _compared(group: str, name: str, members: list[FleetRow]) -> Iterator[Outlier]:
    """Like with like: hosts with hosts, worst GPUs with worst GPUs, worst pairs with worst pairs.

    A host is named once a metric, where the trouble is: a GPU or pair that is much farther off than the whole around
    it is what pulls the whole down.
    """
    named: dict[str, Outlier] = {}
    for level in LIMITS:
        having = [(row, v) for row in members if (v := getattr(row.metrics[name], level)) is not None]
        if len(having) < ENOUGH:
            continue
        normal = middle_of([v for _, v in having], LIMITS[level])
        limit = widened(LIMITS[level], normal.n)
        for row, value in having:
            if _is_outlier(name, value, normal, limit):
                found = _outlier(group, name, row, level, value, normal.median, normal.sigma)
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


def _absolute(name: str) -> float | None:
    """Return the smallest difference that is named, for units whose zero means nothing; None for other units."""
    key = name.partition("[")[0]
    return next((least for unit, least in LEAST.items() if key.endswith(unit)), None)


def _modelled(group: str, name: str, members: list[FleetRow]) -> Iterator[Outlier]:
    """Too few hosts for a normal of their own: only what the model of the machine does not allow is named."""
    for row in members:
        low = row.metrics[name].low
        for level in LIMITS:
            value = getattr(row.metrics[name], level)
            if value is not None and low is not None and value < low * (1 - MATTERS):
                yield _outlier(group, name, row, level, value, low, None)
                break


def _outlier(
    group: str, name: str, row: FleetRow, level: Level, value: float, normal: float, sigma: float | None
) -> Outlier:
    off = value - normal
    return Outlier(
        host=row.host,
        group=group,
        metric=name,
        level=level,
        at=getattr(row.metrics[name], f"{level}_at", None),
        value=value,
        normal=normal,
        percent=round(100 * off / abs(normal), 1) if normal else 0.0,
        z=round(off / sigma, 1) if sigma else None,
    )
