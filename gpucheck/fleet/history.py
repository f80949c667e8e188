"""Merges kept by date, and one host or metric followed through them."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from gpucheck.fleet.compare import read_previous
from gpucheck.model import FleetReport, History, HistoryPoint, Series, Verdict

ENDING = ".json.gz"


def kept(folder: Path, last: int) -> Iterator[tuple[str, FleetReport]]:
    """The last merges of the directory with their dates, the oldest first. Raises UnreadableInput or ValueError."""
    for path in sorted(folder.glob(f"*{ENDING}"))[-last:]:
        yield path.name.removesuffix(ENDING), read_previous(path)


def follow(merges: Iterable[tuple[str, FleetReport]], name: str) -> History:
    """A host by its name, else a metric by its name or the beginning of it. Raises LookupError with what there is."""
    verdicts: list[tuple[str, Verdict]] = []
    of_host: dict[str, list[HistoryPoint]] = defaultdict(list)
    of_group: dict[tuple[str, str], list[HistoryPoint]] = defaultdict(list)
    simulated, known = False, set[str]()
    for at, merge in merges:
        simulated = simulated or merge.simulated
        known |= {metric.metric for metric in merge.metrics}
        for row in merge.hosts:
            if row.host == name:
                verdicts.append((at, row.verdict))
                for metric, seen in row.metrics.items():
                    of_host[metric].append(HistoryPoint(at=at, value=seen.host))
        for group in merge.metrics:
            if group.metric == name or group.metric.startswith((f"{name}[", f"{name}.")):
                outside = sum(o.metric == group.metric and o.group == group.group for o in merge.outliers)
                point = HistoryPoint(at=at, value=group.median, low=group.low, high=group.high, odd=outside)
                of_group[group.metric, group.group].append(point)
    if verdicts:
        series = tuple(Series(metric=metric, points=tuple(points)) for metric, points in sorted(of_host.items()))
        return History(name=name, simulated=simulated, verdicts=tuple(verdicts), series=series)
    if not of_group:
        there = f"metrics there are: {', '.join(sorted(known))}" if known else "no metric is in any kept merge"
        raise LookupError(f"{name}: neither a host nor a metric of the kept merges; {there}.")
    found = sorted(of_group.items())
    series = tuple(Series(metric=metric, group=group, points=tuple(points)) for (metric, group), points in found)
    return History(name=name, simulated=simulated, series=series)
