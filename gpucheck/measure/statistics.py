"""Number of samples and their statistics, the same for every engine. Pure functions."""

from collections.abc import Callable, Sequence
from math import ceil
from statistics import median
from typing import NamedTuple

# One sample lasts 10 to 20 ms: longer than the resolution of the event clock, shorter than clock changes.
SAMPLE_S = 0.0125
WARM_UP_S = 0.05  # an idle PCIe link retrains on the first traffic, and clocks rise
LATENCY_REPEATS = 100
LATENCY_BYTES = 16
# More operations than this do not fit the queue of a blocked stream, and would start one by one.
MAX_REPEATS = 200
NEARLY_EQUAL = 1.1
STEADY = 0.005  # MAD over median at which seven samples are enough


class Spread(NamedTuple):
    """Median, median absolute deviation, minimum, maximum and number of samples."""

    median: float
    mad: float
    least: float
    greatest: float
    samples: int


def spread(samples: Sequence[float]) -> Spread:
    """Return the spread. Raises ValueError without samples, or for one that is not positive."""
    if not samples:
        raise ValueError("no sample was taken")
    if min(samples) <= 0:
        raise ValueError(f"a copy took {min(samples)} s: the events were not on the stream that copied")
    middle = median(samples)
    return Spread(middle, median(abs(s - middle) for s in samples), min(samples), max(samples), len(samples))


def repeats_for(one_copy_s: float, sample_s: float = SAMPLE_S) -> int:
    """Return the number of consecutive copies for a sample of sufficient length."""
    return max(1, min(MAX_REPEATS, ceil(sample_s / max(one_copy_s, 1e-9))))


def repeats_together(one_copy_s: Sequence[float], sample_s: float = SAMPLE_S) -> tuple[int, ...]:
    """Return the copies of each simultaneous flow so that all flows end at about the same time.

    Flows with nearly equal times get equal numbers, as one copy is a large part of a short sample.
    """
    counts = tuple(repeats_for(seconds, sample_s) for seconds in one_copy_s)
    equal = max(one_copy_s) <= NEARLY_EQUAL * min(one_copy_s)
    return (max(counts),) * len(counts) if equal else counts


def adaptive(
    sample: Callable[[], Sequence[float]], least: int, most: int, steady: float = STEADY
) -> tuple[tuple[float, ...], ...]:
    """Take samples of simultaneous flows: at least ``least``, then more until every flow is steady, or ``most``.

    sample: takes one sample, a time for each flow. Returns the samples of each flow.
    """
    rows: list[Sequence[float]] = []
    while len(rows) < least or (len(rows) < most and not _steady(rows, steady)):
        rows.append(sample())
    return tuple(zip(*rows, strict=True))


def _steady(rows: Sequence[Sequence[float]], steady: float) -> bool:
    spreads = [spread(column) for column in zip(*rows, strict=True)]
    return all(s.mad <= steady * s.median for s in spreads)
