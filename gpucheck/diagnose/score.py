"""How well predictions fit numbers: numbers that share an unknown factor are evaluated together.

Every number is predicted as a median with two spreads in the logarithm: `between` is what a whole machine may differ by
(the CPU, the board, the tool), the same for all numbers of a group; `within` is what one number differs by from the
others of its group. So twelve pairs that are all 10 % low are one small surprise, and one pair that is 30 % low is a
large one.
"""

from collections.abc import Collection, Hashable, Iterable
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


class Fit(NamedTuple):
    """A measured number against its prediction: how far off it is (natural logarithm), and the prediction's spreads."""

    group: Hashable
    residual: float
    between: float
    within: float


def fit(value: float, prediction: Prediction) -> Fit:
    """How a number, given as its natural logarithm, agrees with its prediction."""
    _, between, within, group, _ = prediction
    return Fit(group, value - log(prediction.median), between, within)


def log_likelihood(fits: Iterable[tuple[float, Prediction]]) -> float:
    """Natural logarithm of the density of all measured values (as logarithms), given their predictions."""
    groups: dict[Hashable, list[Fit]] = {}
    for value, prediction in fits:
        groups.setdefault(prediction.group, []).append(fit(value, prediction))
    return sum(group_log_likelihood(rows) for rows in groups.values())


def group_log_likelihood(rows: Collection[Fit]) -> float:
    """The same for the numbers of one group: a share of `between` in common and a part of their own, in closed form.

    The shared factor is taken at its most probable value, own spreads are known up to a common scale: what a published
    spread is worth on one machine is uncertain, so the scale of `within` is itself inverse-gamma with SURE degrees of
    freedom, which makes the residuals a multivariate Student t (DeGroot 1970, section 9.10).
    """
    count, between = len(rows), next(iter(rows)).between
    weighted = [(row.residual, 1 / (row.within * row.within)) for row in rows]
    shift = _shift(weighted, between)
    total, weights, logs, strays = 0.0, 0.0, 0.0, 0.0
    for residual, weight in weighted:
        distance = weight * (residual - shift) ** 2
        if distance > STRAY**2:
            # A number beyond STRAY deviations costs more than one at STRAY, but only by the logarithm.
            strays += STRAY_COST + 1.5 * log(distance / STRAY**2)
            distance = STRAY**2
        total += distance if distance > PRINTED else PRINTED
        weights += weight
        logs += log(weight)
    answer = lgamma((count + SURE) / 2) - lgamma(SURE / 2) - 0.5 * count * log(pi * SURE)
    answer += 0.5 * logs - 0.5 * (count + SURE) * log(1 + total / SURE)
    # Laplace's approximation of the integral over the shared factor.
    precision = weights * min(1.0, (count + SURE) / (SURE + total)) + 1 / (between * between)
    return answer - strays - 0.5 * log(precision * between * between) - 0.5 * (shift / between) ** 2


def _shift(weighted: list[tuple[float, float]], between: float) -> float:
    """The shared factor: mean of the residuals by weight, without outliers if there are enough numbers."""
    prior = 1 / (between * between)
    if len(weighted) < 3:
        return sum(weight * residual for residual, weight in weighted) / (sum(w for _, w in weighted) + prior)
    shift = sorted(weighted)[len(weighted) // 2][0]
    for _ in range(2):
        pulled, weights = 0.0, 0.0
        for residual, weight in weighted:
            if weight * (residual - shift) ** 2 < STRAY**2:
                pulled += weight * residual
                weights += weight
        if not weights:
            return shift
        shift = pulled / (weights + prior)
    return shift
