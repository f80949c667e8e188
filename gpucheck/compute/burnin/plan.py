"""How a burn-in divides its time: rounds of rest, cold results, load, hot results and power steps. Pure."""

import math
import re
from collections.abc import Iterator, Sequence

import msgspec

from gpucheck.compute.plan import COLD_S, CPU_S, TYPES, WAYS, operations
from gpucheck.compute.values import ComputeStep

LEAST_S, MOST_S = 600, 48 * 3600
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
# A round is short enough for ten minutes to have four, and long enough to heat up; a power cut costs one at most.
ROUND_S, LONG_ROUND_S, MOST_ROUNDS_WANTED = 150.0, 600.0, 24
# Parts of a round. What they leave is for products of matrices, which heat most.
REST, MEMORY, HOT, POWER_STEPS = 0.10, 0.06, 0.36, 0.10
LONGEST_S = 60.0  # of one step: limits are looked at after each


class BurnInPlan(msgspec.Struct, frozen=True, kw_only=True):
    """seconds: of the whole run. rounds: of equal length. form: changes with what a round contains."""

    seconds: float
    rounds: int
    small: bool = False
    form: int = 1

    @property
    def round_s(self) -> float:
        """Return the time of one round."""
        return self.seconds / self.rounds


def duration(text: str) -> int:
    """Return the seconds of ``10m``, ``36h`` or ``1h30m``. Raises ValueError, with what is accepted."""
    parts = re.findall(r"([0-9]{1,6})([smhd])", text)
    if not parts or "".join(map("".join, parts)) != text:
        raise ValueError(f"{text!r} is not a duration. Write 10m, 12h or 1h30m")
    seconds = sum(int(count) * UNITS[unit] for count, unit in parts)
    if not LEAST_S <= seconds <= MOST_S:
        raise ValueError(f"{text} is outside 10m to 48h")
    return seconds


def plan(seconds: float, *, small: bool = False) -> BurnInPlan:
    """Return the plan for this time. small: times for CPUs."""
    long = min(LONG_ROUND_S, max(ROUND_S, seconds / MOST_ROUNDS_WANTED))
    return BurnInPlan(seconds=seconds, rounds=max(2, round(seconds / long)), small=small)


def round_steps(plan: BurnInPlan, types: Sequence[str]) -> Iterator[ComputeStep]:
    """Yield the steps of one round on devices with these types; together they take the time of a round."""
    every, able = operations(types), [type_ for type_ in TYPES if type_ in types]
    cold = CPU_S if plan.small else COLD_S
    share = plan.round_s
    yield from _parts(ComputeStep(kind="rest", what="to cool down", seconds=REST * share))
    for operation in every:
        yield ComputeStep(kind="results", what=operation, seconds=cold, phase="cold")
    for way in WAYS:
        yield from _parts(ComputeStep(kind="memory", what=way, seconds=MEMORY * share / len(WAYS)))
    left = share * (1 - REST - MEMORY - HOT - POWER_STEPS) - cold * len(every)
    for type_ in able:
        yield from _parts(ComputeStep(kind="matrix", what=type_, seconds=left / len(able)))
    for operation in every:
        yield from _parts(ComputeStep(kind="results", what=operation, seconds=HOT * share / len(every)))
    yield from _parts(ComputeStep(kind="results", what=every[-1], seconds=POWER_STEPS * share, phase="steps"))


def _parts(step: ComputeStep) -> Iterator[ComputeStep]:
    """Yield a long step in equal parts."""
    count = max(1, math.ceil(step.seconds / LONGEST_S))
    for _ in range(count):
        yield msgspec.structs.replace(step, seconds=step.seconds / count)


def span(seconds: float) -> str:
    """Return ``47 h 50 min``, ``12 min`` or ``40 s``."""
    minutes = int(seconds // 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{max(0, round(seconds))} s"
