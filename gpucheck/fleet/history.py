"""Which nodes were bad again and again: from reports of hosts, searches for bad nodes, and Slurm's accounting."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from gpucheck.fleet.read import ENDINGS, MAX_BYTES, read_file
from gpucheck.fleet.row import is_of_few
from gpucheck.foreign import UnreadableInput, read_text
from gpucheck.model import Verdict
from gpucheck.model.answer import timestamp
from gpucheck.model.fleet import HistoryReport, NodeHistory
from gpucheck.model.isolation import SCHEMA as ISOLATION
from gpucheck.model.isolation import IsolationReport
from gpucheck.printable import one_line

Z = 1.96  # 95 % of a normal distribution
LEAST_BAD_DAYS = 2  # a lemon is not named after one
AGAIN_S = 30 * 86400
MOST_REASONS, MOST_NODE_NAME = 3, 253
# Of sacctmgr show event: what gpucheck and Slurm set, and not maintenance or a person.
OURS, DOWN = "gpucheck:", "DOWN"
COLUMNS = 5

Kind = Literal["good", "accused", "drained", "other"]


class Event(NamedTuple):
    """at: ISO time. until: end of a drain, None for one that lasts."""

    node: str
    at: str
    kind: Kind
    reason: str = ""
    until: str | None = None


class _Head(msgspec.Struct):
    schema: str | None = None


def history(files: Iterable[Path]) -> HistoryReport:
    """Return what these files state about nodes: reports (JSON), and what ``sacctmgr show event`` printed."""
    events: list[Event] = []
    unread: list[str] = []
    simulated = False
    for path in files:
        if path.suffix in ENDINGS:
            found, is_simulated = _of_report(path)
            simulated |= is_simulated
        else:
            found = list(_of_slurm(path))
        events += found
        if not found:
            unread.append(path.name)
    by_node: defaultdict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_node[event.node].append(event)
    nodes = [_node(name, of) for name, of in by_node.items()]
    return HistoryReport(simulated=simulated, nodes=tuple(_ranked(nodes)), unread=tuple(unread))


def interval(bad: int, total: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a part. total: at least 1."""
    part, square = bad / total, Z * Z / total
    middle = part + square / 2
    span = Z * math.sqrt(part * (1 - part) / total + square / (4 * total))
    return max(0.0, (middle - span) / (1 + square)), min(1.0, (middle + span) / (1 + square))


def _ranked(nodes: Sequence[NodeHistory]) -> Iterator[NodeHistory]:
    """Yield the worst first. A lemon is worse than the fleet even at the low end of its interval."""
    days, bad = sum(one.days for one in nodes), sum(one.bad_days for one in nodes)
    fleet = bad / days if days else 0.0
    place = 0
    for one in sorted(nodes, key=lambda one: (-one.low, -one.bad_days, one.node)):
        is_lemon = one.bad_days >= LEAST_BAD_DAYS and one.low > fleet
        place += is_lemon
        yield msgspec.structs.replace(one, lemon=place) if is_lemon else one


def _node(name: str, events: Sequence[Event]) -> NodeHistory:
    events = sorted(events, key=lambda one: one.at)
    bad = [one for one in events if one.kind in ("accused", "drained")]
    bad_days = {one.at[:10] for one in bad}
    days = bad_days | {one.at[:10] for one in events if one.kind == "good"}
    drains = [one for one in events if one.kind == "drained"]
    low, high = interval(len(bad_days), len(days)) if days else (0.0, 1.0)
    return NodeHistory(
        node=name,
        days=len(days),
        bad_days=len(bad_days),
        low=round(low, 4),
        high=round(high, 4),
        accused=sum(one.kind == "accused" for one in events),
        drained=len(drains),
        drained_again=sum(_is_again(one, two) for one, two in pairwise(drains)),
        other_drains=sum(one.kind == "other" for one in events),
        last_bad=bad[-1].at if bad else None,
        reasons=tuple(dict.fromkeys(one.reason for one in reversed(bad) if one.reason))[:MOST_REASONS],
    )


def _is_again(one: Event, two: Event) -> bool:
    end, start = timestamp(one.until or two.at), timestamp(two.at)
    return end is not None and start is not None and start - end <= AGAIN_S


def _of_report(path: Path) -> tuple[list[Event], bool]:
    try:
        content = read_text(path, MAX_BYTES).encode()
        if msgspec.json.decode(content, type=_Head).schema == ISOLATION:
            search = msgspec.json.decode(content, type=IsolationReport)
            kinds: dict[Verdict, Kind] = {Verdict.FAIL: "accused", Verdict.PASS: "good"}
            found = [
                Event(one.name, search.started, kinds[one.verdict], f"isolate: {one.cause}" if one.cause else "")
                for one in search.nodes
                if one.verdict in kinds
            ]
            return found, search.simulated
    except (UnreadableInput, msgspec.DecodeError):
        return [], False
    rows = [row for row in read_file(path) if timestamp(row.started)]
    events = []
    for row in rows:
        bad = [one for one in row.problems if one.verdict is Verdict.FAIL and one.owner != "user"]
        # What is UNKNOWN, or the user's, or passed a few checks, is no good day either.
        if bad:
            events.append(Event(row.host, row.started or "", "accused", bad[0].cause or bad[0].check))
        elif row.verdict in (Verdict.PASS, Verdict.WARN) and not is_of_few(row):
            events.append(Event(row.host, row.started or "", "good"))
    return events, any(row.simulated for row in rows)


def _of_slurm(path: Path) -> Iterator[Event]:
    """Yield the events of ``sacctmgr -nP show event format=NodeName,TimeStart,TimeEnd,State,Reason``.

    Recorded from Slurm 22.05.8 with slurmdbd; a reason may contain the separator, and is last.
    """
    for line in read_text(path, MAX_BYTES).splitlines():
        cells = line.split("|", COLUMNS - 1)
        if len(cells) != COLUMNS or not 0 < len(cells[0]) <= MOST_NODE_NAME or timestamp(cells[1]) is None:
            continue
        node, start, end, state, reason = (one_line(cell) for cell in cells)
        ours = reason.startswith(OURS)
        if ours or "DRAIN" in state or DOWN in state:
            kind: Kind = "drained" if ours or DOWN in state else "other"
            yield Event(node, start, kind, reason, end if timestamp(end) else None)
