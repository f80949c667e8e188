"""Results that GPUs of one model computed from equal data: equal digests on all hosts, or a vote names the odd one."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from gpucheck.knowledge import causes
from gpucheck.model import Finding, FleetRow, TopologyGpu, Verdict, named, with_actions, worst

STEP = "compute"
CAUSE = "silent-corruption"
# Bounds of what one report may add to a merge.
MAX_GPUS, MAX_OPERATIONS, LONGEST = 16, 16, 80
LEAST_VOTES = 3
FIX = (
    "take the GPU out of service: results of jobs on it are in doubt; "
    "confirm with gpucheck compute, then have the board replaced"
)


class _Vote(NamedTuple):
    """The digest of one operation on one GPU. place: of the row."""

    place: int
    bus_id: str
    digest: str


def digests_of(measurements: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return, by bus id, operation -> digest of a report; each operation with what must be equal to compare it.

    That is the model of the GPU and the versions that computed. What has not that form is left out.
    """
    step = measurements.get(STEP)
    gpus = step.get("gpus") if isinstance(step, dict) else None
    versions = step.get("versions") if isinstance(step, dict) else None
    known = versions.items() if isinstance(versions, dict) else ()
    by = ", ".join(f"{name} {version}" for name, version in known if isinstance(name, str) and isinstance(version, str))
    found: dict[str, dict[str, str]] = {}
    for gpu in gpus[:MAX_GPUS] if isinstance(gpus, list) else ():
        given = (gpu.get("bus_id"), gpu.get("name"), gpu.get("digests")) if isinstance(gpu, dict) else ()
        match given:
            case (str(bus_id), str(name), dict(digests)):
                found[bus_id[:LONGEST]] = {
                    f"{operation} on {name} ({by})"[: 3 * LONGEST]: digest[:LONGEST]
                    for operation, digest in list(digests.items())[:MAX_OPERATIONS]
                    if isinstance(operation, str) and isinstance(digest, str)
                }
    return found


def with_votes(rows: Sequence[FleetRow]) -> list[FleetRow]:
    """Return the rows, with a finding for each GPU whose results are not those of most GPUs of the fleet."""
    votes: dict[str, list[_Vote]] = defaultdict(list)
    for place, row in enumerate(rows):
        for bus_id, operations in row.digests.items():
            for operation, digest in operations.items():
                votes[operation].append(_Vote(place, bus_id, digest))
    odd: dict[tuple[int, str], list[str]] = defaultdict(list)
    for operation, cast in sorted(votes.items()):
        (digest, count), *others = Counter(vote.digest for vote in cast).most_common()
        if others and len(cast) >= LEAST_VOTES and count > len(cast) / 2:
            for vote in cast:
                if vote.digest != digest:
                    text = f"{operation}: {vote.digest}, {count} of {len(cast)} GPUs {digest}"
                    odd[vote.place, vote.bus_id].append(text)
    found: dict[int, list[Finding]] = defaultdict(list)
    for (place, bus_id), evidence in odd.items():
        row = rows[place]
        if not any(f.cause == CAUSE and f.subject == f"gpu:{bus_id}" for f in row.problems):
            found[place].append(_finding(row, bus_id, evidence, whole=all((place, b) in odd for b in row.digests)))
    return [_with(row, found[place]) if place in found else row for place, row in enumerate(rows)]


def _finding(row: FleetRow, bus_id: str, evidence: Sequence[str], *, whole: bool) -> Finding:
    """FAIL if other GPUs of the host agree with the fleet. whole: every GPU of the host is odd, so it may be software.

    The digests of one GPU alone do not distinguish the two either.
    """
    why = f"{len(evidence)} operations on equal data gave other bits than on most GPUs of this model in the fleet"
    if whole:
        why += "; all GPUs of this host differ, as libraries of another build also cause"
    return Finding(
        check="fleet",
        verdict=Verdict.WARN if whole else Verdict.FAIL,
        subject=f"gpu:{bus_id}",
        seen=f"{len(evidence)} results differ from the fleet",
        wanted="equal results",
        cause=CAUSE,
        confidence="possible" if whole else "likely",
        why=why,
        fix=FIX if not whole else f"on {row.host}: compare the versions of torch and cuBLAS with other hosts; {FIX}",
        evidence=tuple(evidence),
    )


def _with(row: FleetRow, findings: Sequence[Finding]) -> FleetRow:
    gpus = (TopologyGpu(index=index, pci_bus_id=bus_id) for bus_id, index in row.gpu_index.items())
    known = with_actions(named(findings, gpus), causes())
    return msgspec.structs.replace(
        row,
        verdict=worst([row.verdict, *(finding.verdict for finding in known)]),
        problems=(*row.problems, *known),
    )
