"""How well predictions fit numbers: numbers that share an unknown factor are judged together.

Every number is predicted as a median with two spreads in the logarithm: `between` is what a whole machine may differ by
(the CPU, the board, the tool), the same for all numbers of a group; `within` is what one number differs by from the
others of its group. So twelve pairs that are all 10 % low are one small surprise, and one pair that is 30 % low is a
large one.
"""

from collections.abc import Hashable, Iterable
from math import lgamma, log, pi
from typing import NamedTuple

NINE_OF_TEN = 1.645  # standard deviations either side that hold 90 % of a normal distribution
PRINTED = 0.15  # numbers that agree to the last digit agree no better than this part of their variance
SURE = 4.0  # degrees of freedom of a spread: how far a machine's own spread may be from the published one
# Measured machines have stray numbers that no model predicts: beyond so many deviations one costs this much and little
# more, however far it is.
STRAY, STRAY_COST = 4.5, 5.0


class Prediction(NamedTuple):
    """A number's median and its spreads (standard deviations of the natural logarithm). group: shares `between`."""

    median: float
    between: float
    within: float
    group: Hashable
    basis: str

    @property
    def low(self) -> float:
        """Nineteen of twenty machines are above."""
        return float(self.median * 2.718281828459045 ** (-NINE_OF_TEN * self._spread))

    @property
    def high(self) -> float:
        """Nineteen of twenty machines are below."""
        return float(self.median * 2.718281828459045 ** (NINE_OF_TEN * self._spread))

    @property
    def _spread(self) -> float:
        return float((self.between**2 + self.within**2) ** 0.5)


def log_likelihood(fits: Iterable[tuple[float, Prediction]]) -> float:
    """Natural logarithm of the density of all measured values (as logarithms), given their predictions.

    For a group of n with residuals x: each has a share of `between` in common and a part of its own, in closed form.
    """
    groups: dict[Hashable, list[tuple[float, float, float]]] = {}
    for value, prediction in fits:
        row = (value - log(prediction.median), prediction.between, prediction.within)
        groups.setdefault(prediction.group, []).append(row)
    return sum(_group(rows) for rows in groups.values())


def _group(rows: list[tuple[float, float, float]]) -> float:
    """Shared factor at its most probable value, own spreads known up to a common scale.

    What a published spread is worth on one machine is uncertain: the scale of `within` is itself inverse-gamma with
    SURE degrees of freedom, which makes the residuals a multivariate Student t (DeGroot 1970, section 9.10).
    """
    count, between = len(rows), rows[0][1]
    weights = [1 / (within * within) for _, _, within in rows]
    shift = _shift(rows, weights, between)
    total = sum(min(max(w * (x - shift) ** 2, PRINTED), STRAY**2) for w, (x, _, _) in zip(weights, rows, strict=True))
    strays = sum(_stray(x - shift, within) for x, _, within in rows)
    answer = lgamma((count + SURE) / 2) - lgamma(SURE / 2) - 0.5 * count * log(pi * SURE)
    answer += 0.5 * sum(log(w) for w in weights) - 0.5 * (count + SURE) * log(1 + total / SURE)
    # Laplace's approximation of the integral over the shared factor.
    precision = sum(weights) * min(1.0, (count + SURE) / (SURE + total)) + 1 / (between * between)
    return answer - strays - 0.5 * log(precision * between * between) - 0.5 * (shift / between) ** 2


def _stray(residual: float, within: float) -> float:
    """What a number beyond STRAY deviations costs more than one at STRAY: it grows with the logarithm only."""
    deviations = abs(residual) / within
    return STRAY_COST + 3.0 * log(deviations / STRAY) if deviations > STRAY else 0.0


def _shift(rows: list[tuple[float, float, float]], weights: list[float], between: float) -> float:
    """The shared factor: precision-weighted mean, without stray numbers where there are enough to tell."""
    prior = 1 / (between * between)
    if len(rows) < 3:
        return sum(w * x for w, (x, _, _) in zip(weights, rows, strict=True)) / (sum(weights) + prior)
    ordered = sorted(x for x, _, _ in rows)
    shift = ordered[len(ordered) // 2]
    for _ in range(2):
        kept = [(w, x) for w, (x, _, within) in zip(weights, rows, strict=True) if abs(x - shift) < STRAY * within]
        if not kept:
            return shift
        shift = sum(w * x for w, x in kept) / (sum(w for w, _ in kept) + prior)
    return shift
