"""Was every all-reduce the average of what the ranks sent? Pure: from the sums that the ranks kept.

Each rank keeps, by step, sums with fixed random signs over its own gradients and over the averaged ones. Sums are
linear, so the average of the ranks' sums is the sum of the average, up to rounding. What breaks that names itself: the
result without one rank's part is a contribution dropped, the result with that rank's part of the step before is stale.
"""

import math
from collections.abc import Sequence
from typing import Literal

from gpucheck.model.smoke import Miscommunication
from gpucheck.train.report import Sums

# Of the norm of what was sent. float32 addition over two to eight ranks stays below 1e-7 of it; one lost contribution
# is about half of it.
TOLERANCE = 1e-4


def first_miscommunication(by_rank: Sequence[Sequence[Sums]]) -> Miscommunication | None:
    """The first step and rank whose average is not that of what all ranks sent; by_rank[rank][step - 1]."""
    for index, row in enumerate(zip(*by_rank, strict=True)):
        before = [sums[index - 1] for sums in by_rank] if index else None
        found = _step(index + 1, row, before)
        if found is not None:
            return found
    return None


def _step(step: int, row: Sequence[Sums], before: Sequence[Sums] | None) -> Miscommunication | None:
    sent = [_numbers(sums.sent) for sums in row]
    scale = math.hypot(*(sums.norm if sums.norm is not None else math.nan for sums in row))
    if not math.isfinite(scale) or any(value is None for value in sent):
        return None  # a gradient that is NaN or infinite is the loss's finding, and nothing can be compared
    for rank, sums in enumerate(row):
        received = _numbers(sums.received)
        error = _apart(received, _mean(sent)) if received is not None else math.inf
        if error <= TOLERANCE * scale:
            continue
        kind, guilty = _explain(received, sent, before, TOLERANCE * scale, rank)
        relative = error / scale if scale else math.inf
        return Miscommunication(step=step, kind=kind, rank=guilty, error=relative if math.isfinite(relative) else None)
    return None


def _explain(
    received: list[float] | None,
    sent: list[list[float] | None],
    before: Sequence[Sums] | None,
    allowed: float,
    receiver: int,
) -> tuple[Literal["dropped", "stale", "wrong"], int]:
    if received is None:
        return "wrong", receiver
    for rank in range(len(sent)):
        without: list[list[float] | None] = [*sent]
        without[rank] = [0.0] * len(received)
        if _apart(received, _mean(without)) <= allowed:
            return "dropped", rank
        earlier = _numbers(before[rank].sent) if before else None
        if earlier is not None:
            without[rank] = earlier
            if _apart(received, _mean(without)) <= allowed:
                return "stale", rank
    old = _numbers(before[receiver].received) if before else None
    if old is not None and _apart(received, old) <= allowed:
        return "stale", receiver
    return "wrong", receiver


def _numbers(values: Sequence[float | None]) -> list[float] | None:
    """Return the values, None if one of them is NaN or infinite."""
    return None if any(value is None for value in values) else [value for value in values if value is not None]


def _mean(rows: Sequence[list[float] | None]) -> list[float]:
    known = [row for row in rows if row is not None]
    return [sum(column) / len(rows) for column in zip(*known, strict=True)]


def _apart(some: Sequence[float], others: Sequence[float]) -> float:
    return max((abs(a - b) for a, b in zip(some, others, strict=True)), default=0.0)
