"""How often to measure, and what to make of it: pure, and the same for every engine."""

from collections.abc import Callable, Sequence
from math import ceil
from statistics import median
from typing import NamedTuple

SAMPLE_S = 0.0125  # one sample lasts 10 to 20 ms: long beside the event clock's resolution, short beside clock changes
WARM_UP_S = 0.05  # an idle PCIe link retrains on the first traffic, and clocks rise
LATENCY_REPEATS = 100
LATENCY_BYTES = 16
# More operations than this do not fit the queue of a stream that is held back, and would start one by one.
MAX_REPEATS = 200
ALIKE = 1.1
STEADY = 0.005  # MAD over median at which seven samples are enough


class Spread(NamedTuple):
    """Of several samples: median, median absolute deviation, least and greatest, and how many."""

    median: float
    mad: float
    least: float
    greatest: float
    samples: int


def spread(samples: Sequence[float]) -> Spread:
    """Raises ValueError without samples, or for one that is not a positive time."""
    if not samples:
        raise ValueError("no sample was taken")
    if min(samples) <= 0:
        raise ValueError(f"a copy took {min(samples)} s: the events were not on the stream that copied")
    middle = median(samples)
    return Spread(middle, median(abs(s - middle) for s in samples), min(samples), max(samples), len(samples))


def repeats_for(one_copy_s: float, sample_s: float = SAMPLE_S) -> int:
    """How many copies in a row make one sample last long enough."""
    return max(1, min(MAX_REPEATS, ceil(sample_s / max(one_copy_s, 1e-9))))


def repeats_together(one_copy_s: Sequence[float], sample_s: float = SAMPLE_S) -> tuple[int, ...]:
    """Of flows at the same time: copies that end about together, so that each runs beside the other to its end.

    Flows that are nearly alike get equal numbers: one copy more or less would be a large part of a few.
    """
    counts = tuple(repeats_for(seconds, sample_s) for seconds in one_copy_s)
    alike = max(one_copy_s) <= ALIKE * min(one_copy_s)
    return (max(counts),) * len(counts) if alike else counts


def adaptive(
    sample: Callable[[], Sequence[float]], least: int, most: int, steady: float = STEADY
) -> tuple[tuple[float, ...], ...]:
    """Samples of several flows at once: at least ``least``, then more until every flow is steady, or ``most``.

    sample: takes one, a time for each flow. Returns the samples of each flow.
    """
    rows: list[Sequence[float]] = []
    while len(rows) < least or (len(rows) < most and not _steady(rows, steady)):
        rows.append(sample())
    return tuple(zip(*rows, strict=True))


def _steady(rows: Sequence[Sequence[float]], steady: float) -> bool:
    spreads = [spread(column) for column in zip(*rows, strict=True)]
    return all(s.mad <= steady * s.median for s in spreads)
