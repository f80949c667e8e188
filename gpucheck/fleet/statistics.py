"""Robust middle and spread, and one exact test: pure functions of numbers."""

import math
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

# 1 / 0.6745: makes the median absolute deviation of normal noise its standard deviation.
NORMAL = 1.4826
# No fleet is steadier than this part of its median (facts: floor the deviation at 0.5 %).
FLOOR = 0.005
# With fewer hosts there is no middle to compare with.
ENOUGH = 5
ROUNDS = 10
# Croux and Rousseeuw (1992): what the deviation of n normal values must be multiplied with to be unbiased; above 9
# it is n / (n - 0.8).
SMALL = {2: 1.196, 3: 1.495, 4: 1.363, 5: 1.206, 6: 1.2, 7: 1.14, 8: 1.129, 9: 1.107}


class Middle(NamedTuple):
    """A robust normal: median, deviation in units of a standard deviation, and how many values stayed in."""

    median: float
    sigma: float
    n: int


def middle_of(values: Sequence[float], limit: float) -> Middle:
    """Median and deviation of what remains after values beyond the limit (in deviations) are left out, repeatedly.

    One pass would let a fifth of bad hosts widen what counts as normal; at least half the values always stay.
    """
    kept = sorted(values)
    for _ in range(ROUNDS):
        found = _once(kept)
        reach = widened(limit, found.n) * found.sigma
        smaller = [v for v in values if abs(v - found.median) <= reach]
        if len(smaller) == len(kept) or 2 * len(smaller) < len(values):
            break
        kept = sorted(smaller)
    return _once(kept)


def _once(values: list[float]) -> Middle:
    centre = median(values)
    n = len(values)
    deviation = median(abs(v - centre) for v in values) * NORMAL * SMALL.get(n, n / (n - 0.8) if n > 1 else 1.0)
    return Middle(centre, max(deviation, NORMAL * FLOOR * abs(centre), 1e-12), n)


def widened(limit: float, n: int) -> float:
    """The limit for n values: a deviation of few is itself uncertain (its error falls with the root of n).

    The factor keeps false alarms of clean normal fleets of 5 to 50 hosts below 1 in 100 fleets; a test holds it there.
    """
    return limit * (1 + 8 / n)


def fisher(failing_with: int, failing: int, others_with: int, others: int) -> float:
    """Fisher's exact test, one-sided: chance that so many failing hosts have it, if it were unrelated.

    The upper tail of the hypergeometric distribution, summed in logarithms: exact to rounding for any fleet.
    """
    total, having = failing + others, failing_with + others_with
    all_tables = _choose(total, failing)
    terms = (
        _choose(having, k) + _choose(total - having, failing - k) - all_tables
        for k in range(failing_with, min(failing, having) + 1)
    )
    return min(1.0, math.fsum(math.exp(term) for term in terms))


def _choose(n: int, k: int) -> float:
    if k < 0 or k > n:
        return -math.inf
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
