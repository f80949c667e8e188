"""Many rows as one fleet. What is missing, stands twice or disagrees with itself is named, never left out."""

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Literal

from msgspec.structs import replace

from gpucheck.fleet.causes import SICK, common_causes, shared_rails
from gpucheck.fleet.compare import changes
from gpucheck.fleet.digests import with_votes
from gpucheck.fleet.outliers import find_outliers, with_missing_gpus, with_outliers
from gpucheck.fleet.row import LONGEST, REPORT, Labels, is_of_few, labelled
from gpucheck.model import Finding, Verdict, worst
from gpucheck.model.answer import timestamp
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
        """Those of findings are the same on every host; of measurements at least the places are identical."""
        places = {name: self._one(getattr(metric, name)) for name in ("gpu_at", "pair_at", "low")}
        return self._known.get(metric) or self._one(replace(metric, **places))

    def _finding(self, finding: Finding) -> Finding:
        texts = {name: self._one(getattr(finding, name)) for name in TEXTS}
        return replace(finding, **texts, values=self._dict(finding.values))


# What follows from the GPUs is compared among hosts with the same GPUs, the rest among those with the same system.
OF_CARDS = ("nic-rail", "nic-firmware", "nic-rate", "nic-mtu", "nic-gid-index")
BY_GPU = ("gpus", "vbios", "bios", "board", "driver", "module", "cuda", *OF_CARDS)
# These differ by design: they place a host. uplink is looked at for common causes only.
PLACES = ("rack", "system", "uplink")
UNKNOWN = "unknown"
NAMES = 20


def drift(rows: Sequence[FleetRow]) -> tuple[Drift, ...]:
    """One entry an attribute and scope where hosts differ; a value that one host lacks is a value too."""
    scopes: dict[tuple[str, str], list[FleetRow]] = defaultdict(list)
    names = sorted({name for row in rows for name in row.attributes if name not in PLACES})
    with_attributes = [row for row in rows if row.attributes]
    for name in names:
        for row in with_attributes:
            scope = row.models if name in BY_GPU else row.system
            if scope:
                scopes[name, scope].append(row)
    return tuple(_drifts(scopes))


def _drifts(scopes: dict[tuple[str, str], list[FleetRow]]) -> Iterator[Drift]:
    for (name, scope), members in scopes.items():
        hosts: dict[str, list[str]] = defaultdict(list)
        for row in members:
            hosts[", ".join(row.attributes.get(name, ())) or UNKNOWN].append(row.host)
        # Identical, or nearly every host has its own value: a serial number does not drift.
        if 2 <= len(hosts) <= max(3, len(members) // 2):
            values = sorted(hosts.items(), key=lambda item: (-len(item[1]), item[0]))[:NAMES]
            found = (DriftValue(value=v, hosts=len(n), names=tuple(sorted(n)[:NAMES])) for v, n in values)
            yield Drift(attribute=name, scope=scope, values=tuple(found))


def _problem(row: FleetRow, kind: Literal["clock", "conflict", "name", "partial", "stale"], text: str) -> FleetProblem:
    return FleetProblem(kind=kind, subject=row.host, text=f"{row.host}: {text}")


# Clocks of a healthy fleet agree to a second; reports travel for minutes.
SKEW_S = 5 * 60
DAY_S = 86_400
STALE_S = 7 * DAY_S
TRAINING = "training"
# Checks that copy, compute or train, by the names of their numbers.
MEASURED = {
    "p2p.": re.compile(r"p2p(?!-status).*|(?:staged|simultaneous|host)-copies"),
    "compute.": re.compile(r"compute(?!-mode).*"),
    "collectives.": re.compile(r"collectives.*"),
    TRAINING: re.compile(r"smoke-(?!versions).*"),
}
# Kinds of problem that make the state of the host unknown.
NOT_KNOWN = ("conflict", "clock")


def merge(
    rows: Iterable[FleetRow],
    expected: Iterable[str] = (),
    *,
    labels: Labels | None = None,
    previous: FleetReport | None = None,
    now: datetime | None = None,
) -> FleetReport:
    """One row a host (its newest report), compared with each other and with the previous merge.

    Reports of one name that may be of different machines make its row UNKNOWN or worse: none hides another.
    expected: hosts that must have a report; one without is an UNKNOWN row. labels: attributes by host.
    now: the time here, to check the clocks of hosts; None skips that check.
    """
    interner = Interner()
    # The merge is the same for any order of reports.
    ordered = sorted(map(interner.row, rows), key=lambda r: (r.host, r.started or "", r.digest or "", r.source or ""))
    known = {row.host for row in ordered}
    hosts, problems = _one_each(ordered, now)
    del ordered
    none = REPORT.unknown("fleet.report-missing", "no report")
    missing = [
        FleetRow(host=host, verdict=Verdict.UNKNOWN, problems=(none,))
        for host in dict.fromkeys(expected)
        if host not in known
    ]
    problems += [FleetProblem(kind="missing", subject=row.host, text=f"{row.host}: no report.") for row in missing]
    named = labelled(sorted([*hosts.values(), *missing], key=lambda row: row.host), labels or {})
    del hosts  # a second table of attributes for every host
    if shared := _shared_gpus(named):
        problems += shared.values()
        named = [_doubted(row, [shared[row.host]]) if row.host in shared else row for row in named]
    metrics, outliers = find_outliers(named)
    named, agreements = with_votes(with_missing_gpus(with_outliers(named, outliers)))
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


def _one_each(rows: list[FleetRow], now: datetime | None) -> tuple[dict[str, FleetRow], list[FleetProblem]]:
    """The row that counts for each host, and a problem for everything that had to be decided."""
    by_host: dict[str, list[FleetRow]] = defaultdict(list)
    problems: list[FleetProblem] = []
    for row in rows:
        by_host[row.host].append(row)
        if row.digest is None:
            text = str(row.problems[0].seen) if row.problems else row.host
            problems.append(FleetProblem(kind="unreadable", subject=row.source or row.host, text=f"{text}."))
    newest = max((time for row in rows if (time := _time(row, now)) is not None), default=0.0)
    chosen: dict[str, FleetRow] = {}
    for host, reports in by_host.items():
        winner = max(reports, key=lambda row: _rank(row, now))
        found, floor = _about_others(winner, reports, now)
        found += _about_itself(winner, now, newest)
        problems += found
        unsure = [problem for problem in found if problem.kind in NOT_KNOWN]
        chosen[host] = _doubted(winner, unsure, floor) if unsure else winner
    return chosen, problems


def _doubted(row: FleetRow, unsure: Iterable[FleetProblem], floor: Iterable[Verdict] = ()) -> FleetRow:
    """The row of a host whose state is not known, or worse. floor: verdicts that it is not better than."""
    doubts = (REPORT.unknown("fleet.report-doubtful", problem.text[:LONGEST]) for problem in unsure)
    verdict = worst([row.verdict, Verdict.UNKNOWN, *floor])
    return replace(row, verdict=verdict, problems=(*row.problems, *doubts))


def _rank(row: FleetRow, now: datetime | None) -> tuple[bool, bool, bool, float, int, str, str]:
    """A readable report beats none, a believable clock another, a whole report one of a session or of a few checks.

    Then the newest beats an older one, and the worst a better one.
    """
    time = _time(row, now)
    bad = -RANK.index(row.verdict) if row.verdict in RANK else 0
    usable = row.digest is not None, time is not None, not (row.partial or is_of_few(row))
    return *usable, time or 0.0, bad, row.digest or "", row.source or ""


def _about_itself(row: FleetRow, now: datetime | None, newest: float) -> list[FleetProblem]:
    if row.digest is None:
        return []
    found, time = [], _time(row, now)
    if time is None:
        text = f"its report starts at {row.started!r}, which is no time before now: set its clock, run verify again."
        found.append(_problem(row, "clock", text))
    elif newest - time > STALE_S:
        text = f"its report is {(newest - time) // DAY_S:.0f} days older than the newest: run verify again."
        found.append(_problem(row, "stale", text))
    if row.partial:
        text = f"its report covers {row.gpus or 'no GPU'}: run verify outside jobs and containers."
        found.append(_problem(row, "partial", text))
    if is_of_few(row):
        text = f"its report does not prove {'; '.join(row.not_proven)}: run verify without --only."
        found.append(_problem(row, "partial", text))
    if row.stated is not None:
        found.append(_problem(row, "name", f"its report ({row.source}) is of {row.stated}."))
    return found


def _about_others(
    winner: FleetRow, reports: list[FleetRow], now: datetime | None
) -> tuple[list[FleetProblem], list[Verdict]]:
    """Name what lost: the same report again, an older one, or one that contradicts the winner, and those' verdicts."""
    found: list[FleetProblem] = []
    floor: list[Verdict] = []
    for other in reports:
        if other is winner or other.digest is None:
            continue
        report = f"{other.source or 'another report'} (started {other.started}, {other.verdict.name})"
        conflict = True
        if other.digest == winner.digest:
            conflict, text = False, f"the same report again: {other.source}."
        elif other.source != winner.source or _is_other_machine(other, winner):
            text = f"{report} is of another machine: two hosts have this name. Name each file after its host."
        elif other.partial or is_of_few(other):
            # What it found later, or of other GPUs, is kept. Start times are ISO 8601 in UTC, so they compare as text.
            others = not winner.partial or set(other.gpu_uuids) <= set(winner.gpu_uuids)
            is_old = others and (other.started or "") <= (winner.started or "")
            conflict = not is_old and worst([winner.verdict, other.verdict]) is not winner.verdict
            worse = f"is worse than {winner.source}. Run verify on the host" if conflict else "does not count"
            text = f"{report} {'covers some GPUs' if other.partial else 'is of a few checks'} only, and {worse}."
        elif other.started == winner.started:
            text = f"{report} has the same start time and differs. Remove the wrong one."
        elif _time(other, now) is None:
            text = f"{report} has no time that can be believed. Remove it, or set the clock of the host."
        elif left := _not_measured_again(other, reports, winner.verdict):
            text = f"{report} found {', '.join(left)}, which {winner.source} did not measure. Run verify at its level."
        else:
            conflict, text = False, f"{report} is older than {winner.source or 'the newest'} and does not count."
        if conflict:
            floor.append(other.verdict)
        kind: Literal["conflict", "duplicate"] = "conflict" if conflict else "duplicate"
        found.append(FleetProblem(kind=kind, subject=winner.host, text=f"{winner.host}: {text}"))
    return found, floor


def _not_measured_again(old: FleetRow, reports: list[FleetRow], verdict: Verdict) -> tuple[str, ...]:
    """Return the checks that measured what is worse than this verdict, if no later report did: quick checks cannot."""
    later = [row for row in reports if (row.started or "") > (old.started or "") and not row.partial]
    left = dict.fromkeys(
        one.check
        for one in old.problems
        if one.verdict in SICK and worst([verdict, one.verdict]) is not verdict
        for part, checks in MEASURED.items()
        if checks.fullmatch(one.check) and not any(_measured(row, part) for row in later)
    )
    return tuple(left)


def _measured(row: FleetRow, part: str) -> bool:
    return row.training is not None if part == TRAINING else any(name.startswith(part) for name in row.metrics)


def _is_other_machine(one: FleetRow, other: FleetRow) -> bool:
    """No GPU in common, both having some: a card is replaced one at a time, so these are two machines."""
    if one.partial or other.partial:  # two sessions of one host
        return False
    return bool(one.gpu_uuids and other.gpu_uuids) and not set(one.gpu_uuids) & set(other.gpu_uuids)


def _shared_gpus(rows: Iterable[FleetRow]) -> dict[str, FleetProblem]:
    """By host: a real GPU of it that another reports too. One has the other's report, or a name of its own twice."""
    seen: dict[str, FleetRow] = {}
    found: dict[str, FleetProblem] = {}
    for row in rows:
        for uuid in () if row.simulated or row.partial else row.gpu_uuids:
            first = seen.setdefault(uuid, row)
            if first is not row:
                for one, other in ((first, row), (row, first)):
                    text = f"its GPU {uuid} is also in the report of {other.host}: one report is of the other machine."
                    found.setdefault(one.host, _problem(one, "conflict", text))
    return found


def _time(row: FleetRow, now: datetime | None) -> float | None:
    """Return when the report was started, None if that is no time, or one of the future."""
    time = timestamp(row.started)
    return None if time is not None and now is not None and time > now.timestamp() + SKEW_S else time
