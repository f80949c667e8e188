"""Results computed from equal data: equal digests on all hosts, or a vote names the one that differs.

Compared are the operations of the step ``compute``, by GPU, and the losses of trainings, by host.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from gpucheck.fleet.outliers import with_findings
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding, Verdict
from gpucheck.model.compute import ComputeReport
from gpucheck.model.fleet import Agreement, FleetRow
from gpucheck.model.measurements import ROUNDED
from gpucheck.model.smoke import SmokeResult

CAUSE = "silent-corruption"
HOST = "host"
# Bounds of what one report may add to a merge.
MAX_GPUS, MAX_OPERATIONS, LONGEST = 32, 16, 80
LEAST_VOTES = 3
NAMES = 20
# Of a training: what must be equal for its losses to be.
SETTINGS = ("framework", "strategy", "variant", "model", "precision", "backend", "data_source", "placement")
COUNTS = {"world_size": "ranks", "batch_per_rank": "samples each", "steps": "steps", "seed": "as seed"}


class _Vote(NamedTuple):
    """One digest of one operation. place: of the row. at: bus id of the GPU, ``host`` for a training."""

    place: int
    at: str
    digest: str


def digests_of(computed: ComputeReport | None, trained: Mapping[str, SmokeResult]) -> dict[str, dict[str, str]]:
    """Return, by bus id or ``host``, operation -> digest of a report; each operation with what must be equal.

    That is the model of the GPUs, the versions that computed, and the settings of a training.
    """
    found: dict[str, dict[str, str]] = {}
    versions = _versions(computed.versions) if computed is not None else ""
    for gpu in computed.gpus[:MAX_GPUS] if computed is not None else ():
        by = f"on {gpu.name[:LONGEST]} ({versions})"
        digests = list(gpu.digests.items())[:MAX_OPERATIONS]
        found[(gpu.bus_id or "")[:LONGEST]] = {f"{name[:LONGEST]} {by}": digest[:LONGEST] for name, digest in digests}
    losses = dict(list(_losses(trained.values()))[:MAX_OPERATIONS])
    return found | ({HOST: losses} if losses else {})


def _versions(versions: Mapping[str, str | None]) -> str:
    return ", ".join(f"{name} {v}" for name, v in versions.items() if v and name != "python")[: 2 * LONGEST]


def _losses(trained: Iterable[SmokeResult]) -> Iterator[tuple[str, str]]:
    for run in trained:
        names = [name for name in run.device_names if name is not None]
        if run.variant == ROUNDED or run.loss_digest is None or not names or len(names) < len(run.device_names):
            continue
        words = " ".join(filter(None, (getattr(run, key) for key in SETTINGS)))[: 2 * LONGEST]
        counts = [f"{count} {word}" for key, word in COUNTS.items() if (count := getattr(run, key)) is not None]
        gpus = " + ".join(f"{names.count(name)} x {name}" for name in sorted(set(names)))
        operation = f"losses of {', '.join((words, *counts))}".replace(" on ", " ")
        yield f"{operation} on {gpus[:LONGEST]} ({_versions(run.versions)})", run.loss_digest[:16]


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
        agreement, majority, differing = _counted(operation, cast, rows)
        agreements.append(agreement)
        for vote in differing:
            equal = f"{agreement.equal} of {agreement.results} have {majority}"
            odd[vote.place, vote.at].append(f"{operation}: {vote.digest}, {equal}")
    found: dict[int, list[Finding]] = defaultdict(list)
    for (place, at), evidence in sorted(odd.items(), key=lambda item: item[0][1] == HOST):
        known = [f for f in (*rows[place].problems, *found[place]) if f.cause == CAUSE]
        if at == HOST:
            # A GPU whose results are wrong explains the losses.
            if not known:
                subject = Subject(check="fleet", evidence=tuple(evidence))
                seen = f"the losses of {len(evidence)} trainings differ from the fleet"
                found[place].append(subject.warns("fleet.losses-differ", seen, "equal losses"))
        elif not any(f.subject == f"gpu:{at}" for f in known):
            # Every GPU of the host is odd: it may be software. The digests of one GPU alone do not distinguish the two.
            whole = all((place, bus_id) in odd for bus_id in rows[place].digests if bus_id != HOST)
            verdict = Verdict.WARN if whole else Verdict.FAIL
            code = "fleet.all-results-differ" if whole else "fleet.results-differ"
            subject = Subject(check="fleet", name=f"gpu:{at}", evidence=tuple(evidence))
            seen, count = f"{len(evidence)} results differ from the fleet", len(evidence)
            found[place].append(subject.finding(verdict, code, seen, "equal results", count=count))
    named = [with_findings(row, found[place]) if found[place] else row for place, row in enumerate(rows)]
    return named, tuple(agreements)


def _counted(
    operation: str, cast: Sequence[_Vote], rows: Sequence[FleetRow]
) -> tuple[Agreement, str | None, list[_Vote]]:
    """Return how a vote ended, the digest of the majority, and the votes that differ and are named.

    More than half of the results, and of the hosts, decide.

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
    return agreement, digest if majority else None, odd
