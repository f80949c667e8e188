"""Select healthy hosts for a job of a number of GPUs."""

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from gpucheck.fleet.read import HOST_NAME
from gpucheck.model import Verdict
from gpucheck.model.fleet import FleetReport, FleetRow
from gpucheck.printable import some

# Names that mean more than one host, or the controller.
NOT_HOSTS = frozenset({"all", "ungrouped", "localhost", "localhost.localdomain"})
# Problems of reports that do not prove that the whole host is healthy now.
NOT_PROVEN = ("partial", "stale")
# Names that a message shows.
NAMED = 5


class Selection(NamedTuple):
    """The chosen hosts by name, how many GPUs they have together, and the group they are of.

    ``refused``: names of hosts that would be fit and cannot be written to a list of hosts.
    """

    hosts: tuple[FleetRow, ...]
    gpus: int
    group: str
    refused: tuple[str, ...] = ()


def select(fleet: FleetReport, gpus: int, *, model: str | None = None, allow_warn: bool = False) -> Selection:
    """Select entire hosts of one group with at least `gpus` GPUs, as few and as close as possible.

    Fit is a PASS (or a WARN where allowed) without an outlier, of a report that is not of a few checks or GPUs and not
    days older than the others. Hosts of one rack are taken before another is begun,
    the emptiest search first: the rack that offers most. A row without a valid host name is skipped: in a list
    it could be several hosts, a pattern or an option. Raises LookupError with what there is when it is not enough.
    """
    fine = {Verdict.PASS, Verdict.WARN} if allow_warn else {Verdict.PASS}
    unfit = {outlier.host for outlier in fleet.outliers} | {p.subject for p in fleet.problems if p.kind in NOT_PROVEN}
    groups: dict[str, list[FleetRow]] = defaultdict(list)
    refused: list[str] = []
    for row in fleet.hosts:
        if row.verdict in fine and row.host not in unfit and row.gpu_count and row.group and _is_model(row, model):
            if is_host_name(row.host):
                groups[row.group].append(row)
            else:
                refused.append(row.host)
    best = max(groups.items(), key=lambda item: (_gpus(item[1]), item[0]), default=("", []))
    if _gpus(best[1]) < gpus:
        raise LookupError(_too_few(fleet, gpus, model, best[0], _gpus(best[1]), len(best[1])), tuple(refused))
    racks: dict[str, list[FleetRow]] = defaultdict(list)
    for row in best[1]:
        racks[" ".join(row.attributes.get("rack", ()))].append(row)
    nearest = sorted(racks.items(), key=lambda item: (-_gpus(item[1]), item[0]))
    chosen: list[FleetRow] = []
    for row in (row for _, of in nearest for row in sorted(of, key=lambda row: (-row.gpu_count, row.host))):
        if _gpus(chosen) >= gpus:
            break
        chosen.append(row)
    return Selection(tuple(sorted(chosen, key=lambda row: row.host)), _gpus(chosen), best[0], tuple(refused))


def is_host_name(name: str) -> bool:
    """Return whether a launcher takes the name as one host: no separator, pattern, option or group."""
    return HOST_NAME.fullmatch(name) is not None and name.casefold() not in NOT_HOSTS


def about_refused(names: Sequence[str]) -> str:
    """Return a sentence about hosts that were left out, which shows their names harmlessly."""
    shown = some([ascii(name[:80]) for name in names], NAMED)
    hosts = "1 host that is fit is" if len(names) == 1 else f"{len(names)} hosts that are fit are"
    return f"{hosts} left out, for a launcher would not take the name as one host: {shown}"


def _is_model(row: FleetRow, model: str | None) -> bool:
    words = re.split(r"[^a-z0-9]+", (row.gpus or "").lower())
    return model is None or all(word in words for word in re.split(r"[^a-z0-9]+", model.lower()) if word)


def _gpus(rows: Sequence[FleetRow]) -> int:
    return sum(row.gpu_count for row in rows)


def _too_few(fleet: FleetReport, gpus: int, model: str | None, group: str, have: int, hosts: int) -> str:
    kind = f" of model {model}" if model else ""
    most = f"the largest homogeneous group has {have} on {hosts} hosts ({group})" if have else "no host has such GPUs"
    others = sum(row.verdict is not Verdict.PASS for row in fleet.hosts)
    unproven = len({problem.subject for problem in fleet.problems if problem.kind in NOT_PROVEN})
    outliers = len({outlier.host for outlier in fleet.outliers})
    return (
        f"{gpus} healthy GPUs{kind} requested; {most}. {others} of {len(fleet.hosts)} hosts do not pass, {outliers} "
        f"are outliers, {unproven} have an old or partial report: see gpucheck fleet report without --select."
    )
