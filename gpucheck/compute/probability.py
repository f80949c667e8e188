"""How much a comparison of repeats proves about rare wrong results."""

import math

RARE = 1e-9


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
