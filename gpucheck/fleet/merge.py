"""Many rows as one fleet. What is missing, stands twice or disagrees with itself is named, never left out."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Literal

import msgspec

from gpucheck.fleet.alike import Alike
from gpucheck.fleet.causes import common_causes
from gpucheck.fleet.compare import changes
from gpucheck.fleet.decode import problem
from gpucheck.fleet.drift import drift
from gpucheck.fleet.labels import Labels, labelled
from gpucheck.fleet.outliers import find_outliers, with_outliers
from gpucheck.model import FleetProblem, FleetReport, FleetRow, Shard, Verdict, worst

# Clocks of a healthy fleet agree to a second; reports travel for minutes.
SKEW = timedelta(minutes=5)
STALE = timedelta(days=7)
# Kinds of problem after which nobody can say how the host is.
NOT_KNOWN = ("conflict", "clock")


def merge(
    rows: Iterable[FleetRow],
    expected: Iterable[str] = (),
    *,
    labels: Labels | None = None,
    previous: FleetReport | None = None,
    now: datetime | None = None,
    strict: bool = False,
) -> FleetReport:
    """One row a host (its newest report), compared with each other and with the previous merge.

    expected: hosts that must have a report; one without is an UNKNOWN row. labels: attributes by host.
    now: what the time is here, against which clocks are judged; None does not judge them.
    """
    hosts, problems = _one_each(_ordered(rows), now)
    missing = [_missing(host) for host in dict.fromkeys(expected) if host not in hosts]
    problems += [FleetProblem(kind="missing", subject=row.host, text=f"{row.host}: no report.") for row in missing]
    named = labelled(sorted([*hosts.values(), *missing], key=lambda row: row.host), labels or {})
    del hosts  # a second table of attributes for every host
    problems += _shared_gpus(named)
    metrics, outliers = find_outliers(named)
    named = with_outliers(named, outliers)
    verdicts = [row.verdict for row in named]
    return FleetReport(
        verdict=worst(verdicts, strict=strict),
        simulated=any(row.simulated for row in named),
        hosts=tuple(named),
        counts={v.value: verdicts.count(v) for v in Verdict if v is not Verdict.SKIP},
        started=max((row.started for row in named if row.started), default=None),
        problems=tuple(sorted(problems, key=lambda p: (p.kind, p.subject, p.text))),
        metrics=metrics,
        outliers=outliers,
        drift=drift(named),
        causes=common_causes(named, outliers),
        changes=changes(previous, named) if previous else (),
    )


def shard(rows: Iterable[FleetRow]) -> Shard:
    """Rows to be merged later, by another reader."""
    return Shard(rows=tuple(_ordered(rows)))


def _ordered(rows: Iterable[FleetRow]) -> list[FleetRow]:
    """In an order that does not depend on who read what first, so that shards add up to what one reader sees."""
    alike = Alike()
    return sorted(map(alike.row, rows), key=lambda r: (r.host, r.started or "", r.digest or "", r.source or ""))


def _one_each(rows: list[FleetRow], now: datetime | None) -> tuple[dict[str, FleetRow], list[FleetProblem]]:
    """The row that counts for each host, and a problem for everything that had to be decided."""
    by_host: dict[str, list[FleetRow]] = defaultdict(list)
    problems: list[FleetProblem] = []
    for row in rows:
        by_host[row.host].append(row)
        if row.digest is None:
            text = str(row.problems[0].seen) if row.problems else row.host
            problems.append(FleetProblem(kind="unreadable", subject=row.source or row.host, text=f"{text}."))
    newest = max((t for row in rows if (t := _time(row)) and (now is None or t <= now + SKEW)), default=None)
    chosen: dict[str, FleetRow] = {}
    for host, candidates in by_host.items():
        winner = max(candidates, key=lambda row: _rank(row, now))
        found = [*_about_time(winner, now, newest), *_about_others(winner, candidates)]
        problems += found
        unsure = [p for p in found if p.kind in NOT_KNOWN]
        chosen[host] = _unsure(winner, unsure) if unsure else winner
    return chosen, problems


def _rank(row: FleetRow, now: datetime | None) -> tuple[bool, bool, float, str, str]:
    """A readable report beats none, a believable clock beats one from the future, then the newest wins."""
    time = _time(row)
    future = bool(now and time and time > now + SKEW)
    return row.digest is not None, not future, time.timestamp() if time else 0.0, row.digest or "", row.source or ""


def _about_time(row: FleetRow, now: datetime | None, newest: datetime | None) -> list[FleetProblem]:
    if row.digest is None:
        return []
    time = _time(row)
    if time is None:
        text = f"{row.host}: its report does not say when it was made ({row.started!r}); run verify again."
        return [FleetProblem(kind="clock", subject=row.host, text=text)]
    if now and time > now + SKEW:
        text = f"{row.host}: its report was made {_span(time - now)} in the future: set its clock, run verify again."
        return [FleetProblem(kind="clock", subject=row.host, text=text)]
    if newest and newest - time > STALE:
        text = f"{row.host}: its report is {_span(newest - time)} older than the newest: run verify again."
        return [FleetProblem(kind="stale", subject=row.host, text=text)]
    return []


def _about_others(winner: FleetRow, candidates: list[FleetRow]) -> list[FleetProblem]:
    """Name what lost: the same report again, an older one, or one that contradicts the winner."""
    found: list[FleetProblem] = []
    kind: Literal["duplicate", "conflict"]
    for other in candidates:
        if other is winner or other.digest is None:
            continue
        told = f"{other.source or 'another report'} (started {other.started})"
        if other.digest == winner.digest:
            kind, text = "duplicate", f"the same report again: {other.source}."
        elif other.started == winner.started:
            kind, text = "conflict", f"{told} says it started at the same time and differs: which is right?"
        elif _other_machine(other, winner):
            kind, text = "conflict", f"{told} is of another machine: two hosts have this name."
        else:
            kind, text = "duplicate", f"{told} is older than {winner.source or 'the newest'} and does not count."
        found.append(FleetProblem(kind=kind, subject=winner.host, text=f"{winner.host}: {text}"))
    return found


def _other_machine(one: FleetRow, other: FleetRow) -> bool:
    """No GPU in common, both having some: a card is replaced one at a time, so these are two machines."""
    return bool(one.gpu_uuids and other.gpu_uuids) and not set(one.gpu_uuids) & set(other.gpu_uuids)


def _shared_gpus(rows: Iterable[FleetRow]) -> list[FleetProblem]:
    """One real GPU in the reports of two hosts: one of them has the other's report, or a name of its own twice."""
    seen: dict[str, str] = {}
    found: dict[tuple[str, str], FleetProblem] = {}
    for row in rows:
        for uuid in row.gpu_uuids if not row.simulated else ():
            first = seen.setdefault(uuid, row.host)
            if first != row.host:
                text = (
                    f"{row.host}: its GPU {uuid} is also in the report of {first}: one report is of the other machine."
                )
                found.setdefault((first, row.host), FleetProblem(kind="conflict", subject=row.host, text=text))
    return list(found.values())


def _unsure(row: FleetRow, problems: list[FleetProblem]) -> FleetRow:
    findings = tuple(
        problem(p.text, "the report cannot be trusted as it stands", "set the clock or remove the wrong report")
        for p in problems
    )
    return msgspec.structs.replace(
        row, verdict=worst([row.verdict, Verdict.UNKNOWN]), problems=(*row.problems, *findings)
    )


def _missing(host: str) -> FleetRow:
    finding = problem(
        "no report",
        "the host was unreachable, or provisioning or verification stopped before its report was fetched",
        f"read the run's messages about {host}, repair it, then run verify again",
    )
    return FleetRow(host=host, verdict=Verdict.UNKNOWN, problems=(finding,))


def _time(row: FleetRow) -> datetime | None:
    try:
        time = datetime.fromisoformat((row.started or "").replace("Z", "+00:00"))
        return (time if time.tzinfo else time.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return None


def _span(delta: timedelta) -> str:
    minutes = int(delta.total_seconds() // 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h" if minutes < 2880 else f"{minutes // 1440} days"
