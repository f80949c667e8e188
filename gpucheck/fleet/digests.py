"""Results computed from equal data: equal digests on all hosts, or a vote names the one that differs.

Compared are the operations of the step ``compute``, by GPU, and the losses of trainings, by host.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from gpucheck.knowledge import causes
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Agreement, Finding, FleetRow, TopologyGpu, named, with_actions, worst

STEP, TRAINING = "compute", "smoke-"
CAUSE = "silent-corruption"
HOST = "host"
# Bounds of what one report may add to a merge.
MAX_GPUS, MAX_OPERATIONS, LONGEST = 32, 16, 80
LEAST_VOTES = 3
NAMES = 20
# Of a training: what must be equal for its losses to be.
SETTINGS = ("framework", "strategy", "variant", "model", "precision", "backend", "data_source", "placement")
COUNTS = {"world_size": "ranks", "batch_per_rank": "samples each", "steps": "steps", "seed": "as seed"}
# A switch that sums may round in another order: such runs are compared by tolerance only.
ROUNDED = "nvls"


class _Vote(NamedTuple):
    """One digest of one operation. place: of the row. at: bus id of the GPU, ``host`` for a training."""

    place: int
    at: str
    digest: str


class _Result(NamedTuple):
    """A vote that was counted. odd: those that differ and are named."""

    agreement: Agreement
    majority: str | None
    odd: tuple[_Vote, ...]


def digests_of(measurements: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return, by bus id or ``host``, operation -> digest of a report; each operation with what must be equal.

    That is the model of the GPUs, the versions that computed, and the settings of a training. What has not that form
    is left out.
    """
    step = measurements.get(STEP)
    gpus = step.get("gpus") if isinstance(step, dict) else None
    by = _versions(step.get("versions")) if isinstance(step, dict) else ""
    found: dict[str, dict[str, str]] = {}
    for gpu in gpus[:MAX_GPUS] if isinstance(gpus, list) else ():
        given = (gpu.get("bus_id"), gpu.get("name"), gpu.get("digests")) if isinstance(gpu, dict) else ()
        match given:
            case (str(bus_id), str(name), dict(digests)):
                found[bus_id[:LONGEST]] = {
                    f"{operation[:LONGEST]} on {name[:LONGEST]} ({by})": digest[:LONGEST]
                    for operation, digest in list(digests.items())[:MAX_OPERATIONS]
                    if isinstance(operation, str) and isinstance(digest, str)
                }
    losses = dict(list(_losses(measurements))[:MAX_OPERATIONS])
    return found | ({HOST: losses} if losses else {})


def _versions(versions: Any) -> str:
    known = versions.items() if isinstance(versions, dict) else ()
    text = ", ".join(f"{n} {v}" for n, v in known if isinstance(n, str) and isinstance(v, str) and n != "python")
    return text[: 2 * LONGEST]


def _losses(measurements: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the digest of the losses of each training on GPUs."""
    for step, measured in measurements.items():
        if not step.startswith(TRAINING) or not isinstance(measured, dict):
            continue
        variants = measured.get("variants")
        for run in (measured, *(variants.values() if isinstance(variants, dict) else ())):
            if not isinstance(run, dict) or run.get("placement") == "cpu" or run.get("variant") == ROUNDED:
                continue
            names, digest = run.get("device_names"), run.get("loss_digest")
            if isinstance(digest, str) and isinstance(names, list) and names and all(isinstance(n, str) for n in names):
                words = [run[key] for key in SETTINGS if isinstance(run.get(key), str) and run[key]]
                counts = [f"{run[key]} {word}" for key, word in COUNTS.items() if type(run.get(key)) is int]
                gpus = " + ".join(f"{names.count(name)} x {name}" for name in sorted(set(names)))
                settings = ", ".join((" ".join(words)[: 2 * LONGEST], *counts))
                operation = f"losses of {settings}".replace(" on ", " ")
                yield f"{operation} on {gpus[:LONGEST]} ({_versions(run.get('versions'))})", digest[:16]


def with_votes(rows: Sequence[FleetRow]) -> tuple[list[FleetRow], tuple[Agreement, ...]]:
    """Return the rows, with a finding for each result that is not that of most hosts, and how each vote ended."""
    votes: dict[str, list[_Vote]] = defaultdict(list)
    for place, row in enumerate(rows):
        for at, operations in row.digests.items():
            for operation, digest in operations.items():
                votes[operation].append(_Vote(place, at, digest))
    odd: dict[tuple[int, str], list[str]] = defaultdict(list)
    agreements = []
    for operation, cast in sorted(votes.items()):
        result = _counted(operation, cast, rows)
        agreements.append(result.agreement)
        for vote in result.odd:
            equal = f"{result.agreement.equal} of {result.agreement.results} have {result.majority}"
            odd[vote.place, vote.at].append(f"{operation}: {vote.digest}, {equal}")
    found: dict[int, list[Finding]] = defaultdict(list)
    for (place, at), evidence in sorted(odd.items(), key=lambda item: item[0][1] == HOST):
        row = rows[place]
        known = [f for f in (*row.problems, *found[place]) if f.cause == CAUSE]
        if at == HOST:
            # A GPU whose results are wrong explains the losses.
            found[place] += [] if known else [_of_losses(evidence)]
        elif not any(f.subject == f"gpu:{at}" for f in known):
            whole = all((place, bus_id) in odd for bus_id in row.digests if bus_id != HOST)
            found[place].append(_of_gpu(at, evidence, whole=whole))
    return [_with(row, found[place]) if found[place] else row for place, row in enumerate(rows)], tuple(agreements)


def _counted(operation: str, cast: Sequence[_Vote], rows: Sequence[FleetRow]) -> _Result:
    """Count a vote: more than half of the results, and of the hosts, decide.

    A host that differs as a whole is named only if no other host has its results: hosts that agree with each other
    have other software or another topology, as a fault is never equal on two machines.
    """
    by_host: dict[int, list[str]] = defaultdict(list)
    for vote in cast:
        by_host[vote.place].append(vote.digest)
    (digest, equal), *others = Counter(vote.digest for vote in cast).most_common()
    of_hosts = sum(2 * digests.count(digest) > len(digests) for digests in by_host.values())
    majority = len(cast) >= LEAST_VOTES and 2 * equal > len(cast) and 2 * of_hosts > len(by_host)
    having: dict[str, set[int]] = defaultdict(set)
    for place, digests in by_host.items():
        if len(set(digests)) == 1:
            having[digests[0]].add(place)
    odd = [
        vote
        for vote in cast
        if majority and vote.digest != digest and not {vote.place} < having.get(vote.digest, set())
    ]
    outcome: Literal["equal", "outlier", "several", "undecided", "single"]
    if not others:
        outcome = "equal" if len(cast) > 1 else "single"
    else:
        outcome = "outlier" if odd else "several" if majority else "undecided"
    what, _, on = operation.partition(" on ")
    agreement = Agreement(
        operation=what,
        on=on,
        results=len(cast),
        hosts=len(by_host),
        equal=equal if majority or not others else 0,
        outcome=outcome,
        outliers=tuple(dict.fromkeys(rows[vote.place].host for vote in odd))[:NAMES],
    )
    return _Result(agreement, digest if majority else None, tuple(odd))


def _of_gpu(bus_id: str, evidence: Sequence[str], *, whole: bool) -> Finding:
    """FAIL if other GPUs of the host agree with the fleet. whole: every GPU of the host is odd, so it may be software.

    The digests of one GPU alone do not distinguish the two either.
    """
    subject = Subject(check="fleet", name=f"gpu:{bus_id}", evidence=tuple(evidence))
    seen, wanted = f"{len(evidence)} results differ from the fleet", "equal results"
    if whole:
        return subject.warns("fleet.all-results-differ", seen, wanted, count=len(evidence))
    return subject.fails("fleet.results-differ", seen, wanted, count=len(evidence))


def _of_losses(evidence: Sequence[str]) -> Finding:
    seen = f"the losses of {len(evidence)} trainings differ from the fleet"
    return Subject(check="fleet", evidence=tuple(evidence)).warns("fleet.losses-differ", seen, "equal losses")


def _with(row: FleetRow, findings: Sequence[Finding]) -> FleetRow:
    gpus = (TopologyGpu(index=index, pci_bus_id=bus_id) for bus_id, index in row.gpu_index.items())
    known = with_actions(named(findings, gpus), causes())
    return msgspec.structs.replace(
        row,
        verdict=worst([row.verdict, *(finding.verdict for finding in known)]),
        problems=(*row.problems, *known),
    )
