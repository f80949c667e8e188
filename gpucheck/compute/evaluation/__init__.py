"""From what the devices measured to findings. Pure functions; GPUs of one model on one host are compared."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

from gpucheck.compute.evaluation.rates import clocks, counters, doubtful, models, rates, subject_of
from gpucheck.compute.values import CUBLAS
from gpucheck.knowledge.codes import Subject
from gpucheck.knowledge.gpus import code_runs
from gpucheck.knowledge.tables import torch
from gpucheck.model import Finding
from gpucheck.model.compute import ComputeDevice

NAME, RESULTS = "compute", "compute-results"
ENGINE_MISSING = "compute.engine-missing"
# Above this probability of a miss a pass states that little was checked.
MOST_MISS = 0.05
RARE = 1e-9
# Of a device that failed for a reason that is no result about it; another kind is a failure of gpucheck.
NOT_COMPUTED = {
    "no-memory": "compute.no-memory",
    "not-started": "compute.torch-rejects-gpu",
    "no-process": "compute.no-process",
    "no-resources": "compute.no-resources",
}


def gaps(devices: Sequence[ComputeDevice]) -> Iterator[Finding]:
    """Yield one finding for each device that failed; one in all for a package that is missing."""
    failed = [device for device in devices if device.failed is not None]
    missing = [device for device in failed if device.failed == "missing-package"]
    if missing:
        package = missing[0].failure
        seen = f"compute unknown: package {package} is not installed"
        if package == CUBLAS:
            yield Subject(check=NAME).unknown(ENGINE_MISSING, "compute unknown: neither torch nor cuBLAS is installed")
        else:
            yield Subject(check=NAME).unknown("compute.torch-missing", seen, "a run with torch", package=package)
    without_code = [device for device in failed if device.failed == "no-code"]
    if without_code:
        yield _without_code(without_code)
    for device in failed:
        if device.failed != "missing-package" and device not in without_code:
            yield _failed(device)


def _without_code(devices: Sequence[ComputeDevice]) -> Finding:
    reasons = tuple(dict.fromkeys(device.failure for device in devices))
    capabilities = {device.capability for device in devices if device.capability}
    builds = (
        f"{release.version}+{build.build}"
        for release in reversed(torch().releases)
        for build in release.builds
        if build.archs and capabilities and all(code_runs(each, build.archs) for each in capabilities)
    )
    which = ", ".join(f"GPU {device.index}" for device in devices)
    subject = Subject(check=NAME, evidence=tuple(f"GPU {d.index} ({d.bus_id}): {d.failure}" for d in devices))
    seen = f"compute unknown on {which}: the installed framework has no code for it"
    name, reason, build = devices[0].name, reasons[0], next(builds, None)
    if build is None:
        return subject.unknown("compute.no-build-for-gpu", seen, "a result", name=name, reason=reason)
    return subject.unknown("compute.no-code-for-gpu", seen, "a result", name=name, reason=reason, build=build)


def _failed(device: ComputeDevice) -> Finding:
    subject = subject_of(NAME, device, device.failure)
    if device.failed == "stuck":
        return subject.fails("compute.work-stuck", "no progress", "an end of the work")
    if device.failed == "cuda-error":
        return subject.fails("compute.cuda-error", device.failure, "no CUDA error")
    if device.failed == "crashed":
        return subject.unknown("compute.process-crashed", "process ended")
    code = NOT_COMPUTED.get(device.failed or "", "compute.engine-failed")
    return subject.unknown(code, device.failure, "a result")


__all__ = ["CHECKS", "checked", "doubtful", "evaluate"]

# The names of the findings.
CHECKS = ("compute-matrix", "compute-memory", "compute-results", "compute-clocks", "compute-errors")


def evaluate(devices: Sequence[ComputeDevice]) -> tuple[Finding, ...]:
    """Return the findings of all devices: what is missing, wrong results, errors, clocks, rates."""
    return tuple(chain(gaps(devices), results(devices), counters(devices), clocks(devices), rates(devices)))


def results(devices: Sequence[ComputeDevice]) -> Iterator[Finding]:
    computed = [device for device in devices if device.repeats]
    for group in models(computed):
        odd = {device.index: finding for device in group if (finding := _unsteady(device))}
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


def _unsteady(device: ComputeDevice) -> Finding | None:
    wrong = {what: found for what, found in device.repeats.items() if found.differing}
    if not wrong:
        return None
    evidence = [f"{what}: {found.differing} of {found.repeats} repeats differ" for what, found in wrong.items()]
    differing, repeats = (sum(getattr(found, part) for found in wrong.values()) for part in ("differing", "repeats"))
    seen = f"{differing} of {repeats} repeats differ"
    return subject_of(RESULTS, device, *evidence).fails("compute.repeats-differ", seen, "equal repeats")


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
        device.index: subject_of(RESULTS, device, *odd[device.index]).fails(
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
    return Subject(check=RESULTS, evidence=tuple(undecided)).unknown("compute.no-majority", seen, "equal results")


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
    return Subject(check=RESULTS, evidence=evidence).passes(f"{count}: {values:.2e} values checked on each; {bound}")
