"""Results: do repeats of one operation agree, and do GPUs of one model agree with each other?"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from gpucheck.compute.evaluation.rates import models, subject_of
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding
from gpucheck.model.compute import ComputeDevice

NAME = "compute-results"
# Above this probability of a miss a pass states that little was checked.
MOST_MISS = 0.05
RARE = 1e-9


def results(devices: Sequence[ComputeDevice]) -> Iterator[Finding]:
    computed = [device for device in devices if device.repeats]
    for group in models(computed):
        odd = {device.index: finding for device in group if (finding := _unsteady(device))}
        odd |= {i: finding for i, finding in _minority(group).items() if i not in odd}
        yield from odd.values()
        split = _split(group)
        if split:
            yield split
        elif len(odd) < len(group):
            yield _agree([device for device in group if device.index not in odd])


def checked(devices: Sequence[ComputeDevice]) -> tuple[int, float]:
    """Return the values computed and compared on the device with the fewest, and the probability of a miss there."""
    values = min((_values(device) for device in devices if device.repeats), default=0)
    return values, miss_probability(values)


def miss_probability(values: int, rate: float = RARE) -> float:
    """Return the probability that a fault stayed unseen.

    The fault changes each computed value independently with probability ``rate``. Every value is part of one digest,
    and a digest with a changed value differs from the others, so the fault is missed if none of n values changed:
    P(miss) = (1 - rate) ** n, for small rates e ** -(rate * n). With n = 3 / rate values, 5 % are missed; with
    7 / rate, 0.1 %. A fault that changes every repeat in the same way is seen by comparing GPUs only, whatever n is.
    Raises ValueError for a rate outside 0 to 1 or a negative number of values.
    """
    if not 0 <= rate <= 1 or values < 0:
        raise ValueError(f"rate {rate}, values {values}: a rate is 0 to 1, a number of values 0 or more")
    if rate == 1:
        return 0.0 if values else 1.0
    return math.exp(values * math.log1p(-rate))


def _values(device: ComputeDevice) -> int:
    return sum(repeats.values for repeats in device.repeats.values())


def _unsteady(device: ComputeDevice) -> Finding | None:
    """FAIL for a device that disagrees with itself: equal bits in, different bits out."""
    wrong = {what: found for what, found in device.repeats.items() if found.differing}
    if not wrong:
        return None
    evidence = [f"{what}: {found.differing} of {found.repeats} repeats differ" for what, found in wrong.items()]
    differing, repeats = (sum(getattr(found, part) for found in wrong.values()) for part in ("differing", "repeats"))
    seen = f"{differing} of {repeats} repeats differ"
    return subject_of(NAME, device, *evidence).fails("compute.repeats-differ", seen, "equal repeats")


def _votes(group: Sequence[ComputeDevice], what: str) -> list[tuple[str, int]]:
    return Counter(device.digests[what] for device in group if what in device.digests).most_common()


def _operations(group: Sequence[ComputeDevice]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(what for device in group for what in device.digests))


def _minority(group: Sequence[ComputeDevice]) -> dict[int, Finding]:
    """Return a FAIL for each device whose result is not that of most others, for three devices or more."""
    odd: dict[int, list[str]] = {}
    for what in _operations(group):
        votes = _votes(group, what)
        if len(votes) > 1 and votes[0][1] > sum(count for _, count in votes) / 2:
            for device in group:
                if device.digests.get(what, votes[0][0]) != votes[0][0]:
                    odd.setdefault(device.index, []).append(f"{what}: {device.digests[what]}, others {votes[0][0]}")
    return {
        device.index: subject_of(NAME, device, *odd[device.index]).fails(
            "compute.result-differs", f"{len(odd[device.index])} operations differ from the other GPUs", "equal results"
        )
        for device in group
        if device.index in odd
    }


def _split(group: Sequence[ComputeDevice]) -> Finding | None:
    """UNKNOWN where devices differ and no majority names the odd one."""
    undecided = []
    for what in _operations(group):
        votes = _votes(group, what)
        total = sum(count for _, count in votes)
        if len(votes) > 1 and votes[0][1] <= total / 2:
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
        for what in _operations(group)
        if (votes := _votes(group, what))
    )
    odds = f"{miss:.2g}" if miss >= RARE else f"below {RARE:g}"
    bound = f"a fault that changes one value in {1 / RARE:.0e} is missed with probability {odds}".replace("e+0", "e")
    if miss > MOST_MISS:
        bound += ", so little is proven"
    count = f"{len(group)} devices agree" if len(group) > 1 else "all repeats agree"
    return Subject(check=NAME, evidence=evidence).passes(f"{count}: {values:.2e} values checked on each; {bound}")
