"""What became of each host since the previous merge."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from gpucheck.foreign import read_bytes
from gpucheck.model import Finding, Verdict, by_root, where
from gpucheck.model.finding import RANK
from gpucheck.model.fleet import SCHEMA, Change, FleetReport, FleetRow

MAX_PREVIOUS_BYTES = 4 * 1024**3
ANOTHER = "Make one: gpucheck fleet report --format json -o FILE"


def read_previous(path: Path) -> FleetReport:
    """A merged report from an earlier run. Raises UnreadableInput, or ValueError with a whole sentence."""
    content = read_bytes(path, MAX_PREVIOUS_BYTES, ANOTHER)
    try:
        report = msgspec.json.decode(content, type=FleetReport)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: is not a merged fleet report ({error}). {ANOTHER}.") from error
    if report.schema != SCHEMA:
        raise ValueError(f"{path}: schema {report.schema!r}, this gpucheck reads {SCHEMA!r}. Merge its reports again.")
    return report


def changes(previous: FleetReport, rows: Sequence[FleetRow]) -> tuple[Change, ...]:
    """Return one entry per host that changed, by name. An unchanged host has none."""
    before = {row.host: row for row in previous.hosts}
    after = {row.host: row for row in rows}
    found = (_change(host, before.get(host), after.get(host)) for host in sorted(before.keys() | after.keys()))
    return tuple(change for change in found if change is not None)


def _change(host: str, old: FleetRow | None, new: FleetRow | None) -> Change | None:
    found = _difference(host, old, new)
    return None if found is None else msgspec.structs.replace(found, text=f"{host} {found.words()}")


def _difference(host: str, old: FleetRow | None, new: FleetRow | None) -> Change | None:
    if new is None:
        return Change(host=host, kind="gone", before=old.verdict if old else None, after=None)
    if old is None:
        return Change(host=host, kind="new", before=None, after=new.verdict)
    now, then = _signs(new), _signs(old)
    appeared = tuple(sorted({text for sign, text in now.items() if sign not in then}))
    left = tuple(sorted({text for sign, text in then.items() if sign not in now}))
    if new.verdict is old.verdict and not appeared and not left:
        return None
    kind = _kind(old.verdict, new.verdict, bool(appeared), bool(left))
    return Change(host=host, kind=kind, before=old.verdict, after=new.verdict, appeared=appeared, left=left)


def _kind(old: Verdict, new: Verdict, appeared: bool, left: bool) -> Literal["fixed", "better", "worse", "broken"]:
    if new is not old:
        if new is Verdict.PASS:
            return "fixed"
        if old is Verdict.PASS:
            return "broken"
        return "worse" if RANK.index(new) < RANK.index(old) else "better"
    return "worse" if appeared or not left else "better"


def _signs(row: FleetRow) -> dict[tuple[str, str], str]:
    """What is wrong, by check and subject (an index may change with a reboot), as text."""
    return dict(_sign(lead) for lead, _ in by_root(row.problems)[0])


def _sign(finding: Finding) -> tuple[tuple[str, str], str]:
    metric = finding.values.get("metric")
    if finding.check == "fleet" and isinstance(metric, str):
        return (finding.check, metric), metric
    return (finding.check, finding.subject), " ".join(filter(None, (finding.check, where(finding))))
