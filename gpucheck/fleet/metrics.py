"""The numbers of a report as metrics of a host: its own value, its worst GPU and its worst pair."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Literal

from gpucheck.model import Finding, Verdict
from gpucheck.model.fleet import HostMetric
from gpucheck.model.measurements import UNDER_LOAD, Number, OfGpus, numbers

LOWER_IS_WORSE = ("_gb_s", ".gb_s", "_gbit_s", "_per_second", "_per_s", "tflops")
HIGHER_IS_WORSE = ("_us", "_ms", "_seconds", "_s")
MAX_KNOWN = 10_000
# Beyond this nothing is a measurement, and no integer of a thousand digits becomes a float.
LARGEST = 1e30
MAX_METRICS = 200
MAX_NAME = 200

# GB/s -> gb_s, when in lower case.
_UNIT = str.maketrans("/ ", "__")

Worse = Literal["lower", "higher", "either"]


@lru_cache(MAX_KNOWN)
def worse(metric: str) -> Worse:
    """Return which side of a metric is unhealthy, by its unit; ``either`` if the unit does not decide."""
    name = metric.partition("[")[0]
    if name.endswith(LOWER_IS_WORSE):
        return "lower"
    return "higher" if name.endswith(HIGHER_IS_WORSE) or name in UNDER_LOAD else "either"


def host_metrics(measured: OfGpus, findings: Iterable[Finding]) -> dict[str, HostMetric]:
    """Return what was measured and what findings saw, reduced; at most MAX_METRICS, by name.

    Names beyond MAX_NAME are dropped.
    """
    found: dict[str, list[Number]] = defaultdict(list)
    for one in numbers(measured):
        if len(one.metric) <= MAX_NAME and -LARGEST < one.value < LARGEST:
            found[one.metric].append(one)
    for finding in findings:
        seen = finding.seen
        if finding.unit and finding.verdict is not Verdict.SKIP and (type(seen) is float or type(seen) is int):
            metric = _of_finding(finding.check, finding.unit)
            kind, _, bus_id = finding.subject.partition(":")
            if len(metric) <= MAX_NAME and -LARGEST < seen < LARGEST:
                found[metric].append(Number(metric, (bus_id,) if kind == "gpu" and bus_id else (), float(seen)))
    return {metric: _reduce(found[metric], worse(metric)) for metric in sorted(found)[:MAX_METRICS]}


@lru_cache(MAX_KNOWN)
def _of_finding(check: str, unit: str) -> str:
    return f"finding.{check}.{unit.translate(_UNIT).lower()}"


def _reduce(found: Sequence[Number], bad_side: Worse) -> HostMetric:
    """The host's own value, its worst GPU and its worst pair (both directions together)."""
    gpu, pair = _worst_parts(found, bad_side) if bad_side != "either" else (None, None)
    return HostMetric(
        n=len(found),
        host=_short(middle([one.value for one in found])),
        gpu=_short(gpu[1]) if gpu else None,
        gpu_at=gpu[0] if gpu else None,
        pair=_short(pair[1]) if pair else None,
        pair_at="-".join(pair[0]) if pair else None,
        low=min((one.low for one in found if one.low is not None), default=None),
    )


def _worst_parts(
    found: Sequence[Number], bad_side: Worse
) -> tuple[tuple[str, float] | None, tuple[tuple[str, ...], float] | None]:
    pairs: dict[tuple[str, ...], list[float]] = defaultdict(list)
    gpus: dict[str, list[float]] = defaultdict(list)
    for one in found:
        if len(one.at) == 2:
            pairs[tuple(sorted(one.at))].append(one.value)
        for gpu in one.at:
            gpus[gpu].append(one.value)
    pick = min if bad_side == "lower" else max
    of_gpus = ((gpu, _of_gpu(values)) for gpu, values in gpus.items())
    of_pairs = ((pair, sum(values) / len(values)) for pair, values in pairs.items())
    return (
        pick(of_gpus, key=itemgetter(1)) if len(gpus) > 1 else None,
        pick(of_pairs, key=itemgetter(1)) if len(pairs) > 1 else None,
    )


def _short(value: float) -> float:
    """Six digits: more than any of this can be measured, and half the bytes of a fleet."""
    return float(f"{value:.6g}")


def middle(values: list[float], cut: float = 0.25) -> float:
    """The mean without the highest and lowest part: what is odd does not move it, noise still averages."""
    left_out = int(len(values) * cut)
    kept = sorted(values)[left_out : len(values) - left_out] if left_out else values
    return math.fsum(kept) / len(kept)


def _of_gpu(values: list[float]) -> float:
    """One bad pair, both its directions, does not move a GPU; each number kept makes a small loss easier to see."""
    return middle(values, 2 / 14 if len(values) >= 14 else 0.25)
