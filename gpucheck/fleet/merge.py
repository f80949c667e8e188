"""Many rows as one fleet. What is missing, stands twice or disagrees with itself is named, never left out."""

from collections import Counter, defaultdict
from collections.abc import Container, Hashable, Iterable, Sequence
from datetime import datetime, timedelta, timezone
from itertools import count
from typing import Any, Literal

from msgspec.structs import replace

from gpucheck.fleet.causes import common_causes, shared_rails
from gpucheck.fleet.compare import changes
from gpucheck.fleet.decode import origin
from gpucheck.fleet.digests import with_votes
from gpucheck.fleet.outliers import find_outliers, with_outliers
from gpucheck.fleet.row import LONGEST, REPORT, Labels, is_of_few, labelled
from gpucheck.model import Finding, Verdict, worst
from gpucheck.model.finding import RANK
from gpucheck.model.fleet import Drift, DriftValue, FleetProblem, FleetReport, FleetRow, HostMetric

# Shared values appear early and often. Beyond this limit values are kept per host: to remember them costs memory.
MAX_KNOWN = 50_000


# Fields of a row, and texts of a finding. Not what was seen: to Python 8, 8.0 and True are one, to a reader not.
SHARED = ("simulation", "system", "driver", "gpus", "training", "group", "not_proven")
TEXTS = (
    "check", "subject", "code", "because_of", "because_of_subject", "unit", "cause", "why", "fix", "steps",
)  # fmt: skip


class Interner:
    """Hands out one object for all that are equal. Rows come out equal to what went in."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Any] = {}

    def row(self, row: FleetRow) -> FleetRow:
        """Return the row; what is identical in earlier rows is shared with them."""
        return replace(
            row,
            **{name: self._one(getattr(row, name)) for name in SHARED},
            counts=self._dict(row.counts),
            problems=tuple(map(self._finding, row.problems)),
            gpu_index=self._dict(row.gpu_index),
            stand_ins=self._words(row.stand_ins),
            attributes={self._one(name): self._words(found) for name, found in row.attributes.items()},
            metrics={self._one(name): self._metric(metric) for name, metric in row.metrics.items()},
        )

    def _one(self, value: Any, key: Hashable = None) -> Any:
        """What is known by the key, which is the value if not stated; beyond MAX_KNOWN, the value itself."""
        key = value if key is None else key
        known = self._known
        return known.setdefault(key, value) if len(known) < MAX_KNOWN else known.get(key, value)

    def _dict(self, value: dict[str, Any]) -> Any:
        return self._one(value, (dict, repr(value)))

    def _words(self, words: tuple[str, ...]) -> Any:
        """Words may differ by one among many, as the GPUs of a host do: each is shared, and the whole."""
        return self._known.get(words) or self._one(tuple(map(self._one, words)))

    def _metric(self, metric: HostMetric) -> Any:
        """Most are settings, the same on every host; of measurements at least the places are identical."""
        places = {name: self._one(getattr(metric, name)) for name in ("gpu_at", "pair_at", "low")}
        return self._known.get(metric) or self._one(replace(metric, **places))

    def _finding(self, finding: Finding) -> Finding:
        texts = {name: self._one(getattr(finding, name)) for name in TEXTS}
        return replace(finding, **texts, values=self._dict(finding.values))


# What follows from the GPUs is compared among hosts with the same GPUs, the rest among those with the same system.
OF_CARDS = ("nic-rail", "nic-firmware", "nic-rate", "nic-mtu", "nic-gid-index")
BY_GPU = ("vbios", "bios", "board", "driver", "module", "cuda", *OF_CARDS)
# These differ by design: they place a host. uplink is looked at for common causes only.
PLACES = ("rack", "system", "uplink")
UNKNOWN = "unknown"
NAMES = 20


def drift(rows: Sequence[FleetRow]) -> tuple[Drift, ...]:
    """One entry an attribute and scope where hosts differ; a value that one host lacks is a value too."""
    scopes: dict[tuple[str, str], list[FleetRow]] = defaultdict(list)
    names = sorted({name for row in rows for name in row.attributes if not _is_place(name)})
    with_attributes = [row for row in rows if row.attributes]
    for name in names:
        for row in with_attributes:
            scope = row.group and _models(row.group) if name in BY_GPU else row.system
            if scope:
                scopes[name, scope].append(row)
    found = (_entry(name, scope, members) for (name, scope), members in scopes.items())
    return tuple(entry for entry in found if entry is not None)


def _entry(name: str, scope: str, members: list[FleetRow]) -> Drift | None:
    hosts: dict[str, list[str]] = defaultdict(list)
    for row in members:
        hosts[", ".join(row.attributes.get(name, ())) or UNKNOWN].append(row.host)
    if len(hosts) < 2 or len(hosts) > max(3, len(members) // 2):
        # Identical, or nearly every host has its own value: a serial number does not drift.
        return None
    values = sorted(hosts.items(), key=lambda item: (-len(item[1]), item[0]))
    return Drift(
        attribute=name,
        scope=scope,
        values=tuple(DriftValue(value=v, hosts=len(n), names=tuple(sorted(n)[:NAMES])) for v, n in values[:NAMES]),
    )


def _is_place(name: str) -> bool:
    return name in PLACES or name.startswith("label ")


def _models(group: str) -> str:
    return group.rpartition(", driver ")[0]


def about_share(row: FleetRow) -> list[FleetProblem]:
    """Name a host of which there is only such a report, or one of a few checks."""
    text = f"its report covers {row.gpus or 'no GPU'}: run verify outside jobs and containers."
    less = f"its report does not prove {'; '.join(row.not_proven)}: run verify without --only."
    problems = ((text, row.partial), (less, is_of_few(row)))
    return [_problem(row, "partial", words) for words, found in problems if found]


def _problem(row: FleetRow, kind: Literal["clock", "conflict", "name", "partial", "stale"], text: str) -> FleetProblem:
    return FleetProblem(kind=kind, subject=row.host, text=f"{row.host}: {text}")


def about_partial(other: FleetRow, winner: FleetRow, report: str) -> tuple[Literal["duplicate", "conflict"], str]:
    """Return the kind and text of a report that does not count. What it found later, or of other GPUs, is kept.

    report: its name, time and verdict. The start times of reports are ISO 8601 in UTC, so they compare as text.
    """
    what = "covers some GPUs only" if other.partial else "is of a few checks only"
    others = not winner.partial or set(other.gpu_uuids) <= set(winner.gpu_uuids)
    old = others and (other.started or "") <= (winner.started or "")
    if old or worst([winner.verdict, other.verdict]) is winner.verdict:
        return "duplicate", f"{report} {what}, and does not count."
    return "conflict", f"{report} {what}, and is worse than {winner.source}. Run verify on the host."


# Clocks of a healthy fleet agree to a second; reports travel for minutes.
SKEW = timedelta(minutes=5)
STALE = timedelta(days=7)
# Kinds of problem that make the state of the host unknown.
NOT_KNOWN = ("conflict", "clock")
# Files that a problem names.
NAMED = 8
# Machines of one name in one place that get a row each; what comes after them makes the last one's row doubtful.
MACHINES = 100


def merge(
    rows: Iterable[FleetRow],
    expected: Iterable[str] = (),
    *,
    labels: Labels | None = None,
    previous: FleetReport | None = None,
    now: datetime | None = None,
) -> FleetReport:
    """One row a host (its newest report), compared with each other and with the previous merge.

    Reports of one name from different places are a row each: none hides another.
    expected: hosts that must have a report; one without is an UNKNOWN row. labels: attributes by host.
    now: the time here, to check the clocks of hosts; None skips that check.
    """
    ordered = _ordered(rows)
    known = {row.host for row in ordered}
    hosts, problems = _one_each(ordered, now)
    del ordered
    missing = [_missing(host) for host in dict.fromkeys(expected) if host not in known]
    problems += [FleetProblem(kind="missing", subject=row.host, text=f"{row.host}: no report.") for row in missing]
    named = labelled(sorted([*hosts.values(), *missing], key=lambda row: row.host), labels or {})
    del hosts  # a second table of attributes for every host
    problems += _shared_gpus(named)
    metrics, outliers = find_outliers(named)
    named, agreements = with_votes(with_outliers(named, outliers))
    verdicts = [row.verdict for row in named]
    return FleetReport(
        verdict=worst(verdicts),
        simulated=any(row.simulated for row in named),
        hosts=tuple(named),
        counts={v.value: verdicts.count(v) for v in Verdict if v is not Verdict.SKIP},
        started=max((row.started for row in named if row.started), default=None),
        problems=tuple(sorted(problems, key=lambda p: (p.kind, p.subject, p.text))),
        metrics=metrics,
        outliers=outliers,
        agreements=agreements,
        drift=drift(named),
        causes=(*shared_rails(named), *common_causes(named, outliers)),
        changes=changes(previous, named) if previous else (),
    )


def _ordered(rows: Iterable[FleetRow]) -> list[FleetRow]:
    """In an order that does not depend on who read what first, so that a merge is the same for any order of reports."""
    interner = Interner()
    return sorted(map(interner.row, rows), key=lambda r: (r.host, r.started or "", r.digest or "", r.source or ""))


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
        machines = _machines(candidates, now)
        places = Counter(origin(reports[0].source) for reports in machines)
        for reports in machines:
            winner = max(reports, key=lambda row: _rank(row, now))
            others, floor = _about_others(winner, reports, now)
            found = [*_about_time(winner, now, newest), *about_share(winner), *others]
            if winner.stated is not None:
                found.append(_problem(winner, "name", f"its report ({winner.source}) is of {winner.stated}."))
            if places[origin(winner.source)] > 1:
                about = f"{winner.source or 'a report'} (started {winner.started})"
                found.append(_problem(winner, "conflict", f"{about} is of another machine: two hosts have this name."))
            problems += found
            unsure = [p for p in found if p.kind in NOT_KNOWN]
            row = _unsure(winner, unsure, floor) if unsure else winner
            name = host if len(machines) == 1 else _distinguished(winner, chosen)
            chosen[name] = replace(row, host=name)
        if len(machines) > 1:
            problems.append(_one_name(host, machines))
    return chosen, problems


def _machines(candidates: list[FleetRow], now: datetime | None) -> list[list[FleetRow]]:
    """Reports of one name, apart by where they come from, and by the GPUs in them."""
    by_place: dict[str, list[FleetRow]] = defaultdict(list)
    for row in candidates:
        by_place[origin(row.source)].append(row)
    found: list[list[FleetRow]] = []
    for rows in by_place.values():
        machines: list[list[FleetRow]] = []
        for row in sorted(rows, key=lambda row: _rank(row, now), reverse=True):
            same = next((machine for machine in machines if not _other_machine(row, machine[0])), None)
            if same is None and len(machines) < MACHINES:
                machines.append([row])
            elif same is None:
                machines[-1].append(row)
            else:
                same.append(row)
        found += machines
    return found


def _distinguished(row: FleetRow, chosen: Container[str]) -> str:
    names = (f"{row.host} ({row.source or 'no source'}{f', report {n}' if n > 1 else ''})" for n in count(1))
    return next(name for name in names if name not in chosen)


def _one_name(host: str, machines: list[list[FleetRow]]) -> FleetProblem:
    sources = sorted({reports[0].source or "no source" for reports in machines})
    more = f" and {len(sources) - NAMED} more" if len(sources) > NAMED else ""
    text = (
        f"{host}: {len(machines)} reports have this name, and each is a row: {', '.join(sources[:NAMED])}{more}. "
        "Name each report's file after its host."
    )
    return FleetProblem(kind="name", subject=host, text=text)


def _rank(row: FleetRow, now: datetime | None) -> tuple[bool, bool, bool, float, int, str, str]:
    """A readable report beats none, a believable clock one from the future, a whole report one of a session or of a few
    checks.

    Then the newest beats an older one, and the worst a better one.
    """
    time = _time(row)
    bad = -RANK.index(row.verdict) if row.verdict in RANK else 0
    stamp = time.timestamp() if time else 0.0
    usable = row.digest is not None, not _is_future(time, now), not (row.partial or is_of_few(row))
    return *usable, stamp, bad, row.digest or "", row.source or ""


def _is_future(time: datetime | None, now: datetime | None) -> bool:
    return bool(now and time and time > now + SKEW)


def _about_time(row: FleetRow, now: datetime | None, newest: datetime | None) -> list[FleetProblem]:
    if row.digest is None:
        return []
    time = _time(row)
    if time is None:
        text = f"its report has no valid start time ({row.started!r}): run verify again."
        return [_problem(row, "clock", text)]
    if now and time > now + SKEW:
        text = f"its report was made {_span(time - now)} in the future: set its clock, run verify again."
        return [_problem(row, "clock", text)]
    if newest and newest - time > STALE:
        text = f"its report is {_span(newest - time)} older than the newest: run verify again."
        return [_problem(row, "stale", text)]
    return []


def _about_others(
    winner: FleetRow, reports: list[FleetRow], now: datetime | None
) -> tuple[list[FleetProblem], list[Verdict]]:
    """Name what lost: the same report again, an older one, or one that contradicts the winner, and those' verdicts."""
    found: list[FleetProblem] = []
    floor: list[Verdict] = []
    kind: Literal["duplicate", "conflict"]
    for other in reports:
        if other is winner or other.digest is None:
            continue
        report = f"{other.source or 'another report'} (started {other.started}, {other.verdict.name})"
        time = _time(other)
        unordered = time is None or _is_future(time, now)
        if other.digest == winner.digest:
            kind, text = "duplicate", f"the same report again: {other.source}."
        elif other.partial or is_of_few(other):
            kind, text = about_partial(other, winner, report)
        elif other.started == winner.started:
            kind, text = "conflict", f"{report} has the same start time and differs. Remove the wrong one."
        elif _other_machine(other, winner):
            kind, text = "conflict", f"{report} is of another machine: two hosts have this name."
        elif unordered and worst([winner.verdict, other.verdict]) is not winner.verdict:
            kind, text = "conflict", f"{report} has no valid time, and is worse than {winner.source}."
        elif unordered:
            kind, text = "duplicate", f"{report} has no time that can be believed and does not count."
        else:
            kind, text = "duplicate", f"{report} is older than {winner.source or 'the newest'} and does not count."
        if kind == "conflict":
            floor.append(other.verdict)
        found.append(FleetProblem(kind=kind, subject=winner.host, text=f"{winner.host}: {text}"))
    return found, floor


def _other_machine(one: FleetRow, other: FleetRow) -> bool:
    """No GPU in common, both having some: a card is replaced one at a time, so these are two machines."""
    if one.partial or other.partial:  # two sessions of one host
        return False
    return bool(one.gpu_uuids and other.gpu_uuids) and not set(one.gpu_uuids) & set(other.gpu_uuids)


def _shared_gpus(rows: Iterable[FleetRow]) -> list[FleetProblem]:
    """One real GPU in the reports of two hosts: one of them has the other's report, or a name of its own twice."""
    seen: dict[str, str] = {}
    found: dict[tuple[str, str], FleetProblem] = {}
    for row in rows:
        for uuid in row.gpu_uuids if not row.simulated else ():
            first = seen.setdefault(uuid, row.host)
            if first != row.host:
                text = f"its GPU {uuid} is also in the report of {first}: one report is of the other machine."
                found.setdefault((first, row.host), _problem(row, "conflict", text))
    return list(found.values())


def _unsure(row: FleetRow, problems: list[FleetProblem], floor: list[Verdict]) -> FleetRow:
    findings = tuple(REPORT.unknown("fleet.report-doubtful", p.text[:LONGEST]) for p in problems)
    return replace(row, verdict=worst([row.verdict, Verdict.UNKNOWN, *floor]), problems=(*row.problems, *findings))


def _missing(host: str) -> FleetRow:
    finding = REPORT.unknown("fleet.report-missing", "no report")
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
