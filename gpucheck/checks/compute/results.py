"""Results: does every GPU compute the same, each time and as the others of its model?

Source: operations on equal data that are repeated cold, hot and with pauses; every computed value is part of a digest.
FAIL if repeats on one GPU differ, or a GPU differs from the majority of its model. UNKNOWN if GPUs differ and there is
no majority. PASS states how many values were checked, and the probability that a rare fault was missed.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from gpucheck.checks.compute._devices import compute_check, models, subject_of
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding
from gpucheck.model.compute import CUBLAS, ComputeDevice
from gpucheck.model.facts import Facts
from gpucheck.model.finding import Confidence

NAME = "compute-results"
# Above this probability of a miss a pass states that little was checked.
MOST_MISS = 0.05
RARE = 1e-9


def evaluate(facts: Facts) -> Iterator[Finding]:
    # cuBLAS alone has not run on a GPU yet, and a result may also change on its way to the host.
    sure: Confidence = "likely" if facts.computed.engine == CUBLAS else "certain"
    for group in models(device for device in facts.computed.devices if device.repeats):
        odd = {device.index: finding for device in group if (finding := _unsteady(device, sure))}
        odd |= {i: finding for i, finding in _minority(group).items() if i not in odd}
        yield from odd.values()
        rest = [device for device in group if device.index not in odd]
        if split := _split(rest):
            yield split
        elif rest:
            yield _agree(rest)


def checked(devices: Sequence[ComputeDevice]) -> tuple[int, float]:
    """Return the values computed and compared on the device with the fewest, and the probability of a miss there."""
    computed = (sum(one.values for one in device.repeats.values()) for device in devices if device.repeats)
    values = min(computed, default=0)
    return values, miss_probability(values)


def miss_probability(values: int, rate: float = RARE) -> float:
    """Return the probability that a fault stayed unseen.

    The fault changes each computed value independently with probability ``rate``. Every value is part of one digest,
    and a digest with a changed value differs from the others, so the fault is missed if none of n values changed:
    P(miss) = (1 - rate) ** n, for small rates e ** -(rate * n). With n = 3 / rate values, 5 % are missed; with
    7 / rate, 0.1 %. A fault that changes every repeat in the same way is seen by comparing GPUs only, whatever n is.
    """
    return math.exp(values * math.log1p(-rate))


def _unsteady(device: ComputeDevice, sure: Confidence) -> Finding | None:
    wrong = {what: found for what, found in device.repeats.items() if found.differing}
    if not wrong:
        return None
    evidence = [f"{what}: {found.differing} of {found.repeats} repeats differ" for what, found in wrong.items()]
    differing, repeats = (sum(getattr(found, part) for found in wrong.values()) for part in ("differing", "repeats"))
    seen = f"{differing} of {repeats} repeats differ"
    return subject_of(NAME, device, *evidence).fails("compute.repeats-differ", seen, "equal repeats", confidence=sure)


def _votes(group: Sequence[ComputeDevice]) -> dict[str, list[tuple[str, int]]]:
    """Return by operation the digests and how many devices have each, the most frequent first."""
    counts: dict[str, Counter[str]] = {}
    for device in group:
        for what, digest in device.digests.items():
            counts.setdefault(what, Counter())[digest] += 1
    return {what: count.most_common() for what, count in counts.items()}


def _minority(group: Sequence[ComputeDevice]) -> dict[int, Finding]:
    odd: dict[int, list[str]] = {}
    for what, ((most, count), *others) in _votes(group).items():
        if others and count > sum(other for _, other in others):
            for device in group:
                if device.digests.get(what, most) != most:
                    odd.setdefault(device.index, []).append(f"{what}: {device.digests[what]}, others {most}")
    return {
        device.index: subject_of(NAME, device, *odd[device.index]).fails(
            "compute.result-differs", f"{len(odd[device.index])} operations differ from the other GPUs", "equal results"
        )
        for device in group
        if device.index in odd
    }


def _split(group: Sequence[ComputeDevice]) -> Finding | None:
    undecided = []
    for what, votes in _votes(group).items():
        total = sum(count for _, count in votes)
        if votes[0][1] <= total / 2:
            undecided.append(f"{what}: " + ", ".join(f"{count} of {total} have {digest}" for digest, count in votes))
    if not undecided:
        return None
    seen = f"{len(undecided)} operations differ between GPUs"
    return Subject(check=NAME, evidence=tuple(undecided)).unknown("compute.no-majority", seen, "equal results")


def _agree(group: Sequence[ComputeDevice]) -> Finding:
    values, miss = checked(group)
    evidence = tuple(
        f"{what}: {sum(device.repeats[what].repeats for device in group if what in device.repeats)} repeats, "
        f"digest {votes[0][0]}"
        for what, votes in _votes(group).items()
    )
    odds = f"{miss:.2g}" if miss >= RARE else f"below {RARE:g}"
    bound = f"a fault that changes one value in {1 / RARE:.0e} is missed with probability {odds}".replace("e+0", "e")
    if miss > MOST_MISS:
        bound += ", so little is proven"
    count = f"{len(group)} devices agree" if len(group) > 1 else "all repeats agree"
    return Subject(check=NAME, evidence=evidence).passes(f"{count}: {values:.2e} values checked on each; {bound}")


CHECK = compute_check(NAME, evaluate)
