"""What became of each host since the previous merge."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from gpucheck.foreign import read_bytes
from gpucheck.model import Verdict, by_root, where
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
    return tuple(msgspec.structs.replace(one, text=f"{one.host} {one.words()}") for one in found if one is not None)


def _change(host: str, old: FleetRow | None, new: FleetRow | None) -> Change | None:
    if new is None:
        return Change(host=host, kind="gone", before=old.verdict if old else None, after=None)
    if old is None:
        return Change(host=host, kind="new", before=None, after=new.verdict)
    now, then = _signs(new), _signs(old)
    appeared = tuple(sorted({text for sign, text in now.items() if sign not in then}))
    left = tuple(sorted({text for sign, text in then.items() if sign not in now}))
    kind: Literal["fixed", "better", "worse", "broken"]
    if new.verdict is old.verdict:
        if not appeared and not left:
            return None
        kind = "worse" if appeared else "better"
    elif Verdict.PASS in (new.verdict, old.verdict):
        kind = "fixed" if new.verdict is Verdict.PASS else "broken"
    else:
        kind = "worse" if RANK.index(new.verdict) < RANK.index(old.verdict) else "better"
    return Change(host=host, kind=kind, before=old.verdict, after=new.verdict, appeared=appeared, left=left)


def _signs(row: FleetRow) -> dict[tuple[str, str], str]:
    """What is wrong, by check and subject (an index may change with a reboot), as text."""
    found = {}
    for lead, _ in by_root(row.problems)[0]:
        metric = lead.values.get("metric") if lead.check == "fleet" else None
        is_metric = isinstance(metric, str)
        text = str(metric) if is_metric else " ".join(filter(None, (lead.check, where(lead))))
        found[lead.check, text if is_metric else lead.subject] = text
    return found
