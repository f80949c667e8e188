"""How far a burn-in came, what it found when, and its limits, as lines of text."""

from collections.abc import Iterator

from gpucheck.model.compute import BurnIn, Noticed
from gpucheck.render.words import table


def lines(made: BurnIn, *, verbose: bool) -> Iterator[str]:
    """Yield the lines. verbose: also the limits."""
    starts = f", {made.sessions} starts" if made.sessions > 1 else ""
    ended = f"ended: {made.ended}" + (f" ({made.reason})" if made.reason else "")
    yield (
        f"burn-in: {_hours(made.seconds)} of {_hours(made.planned_seconds)}, {made.rounds} of {made.planned_rounds} "
        f"rounds{starts}; {ended}"
    )
    if made.hottest:
        yield "highest temperature: " + ", ".join(f"GPU {gpu} {degrees:.0f} C" for gpu, degrees in made.hottest.items())
    yield f"kept in {made.state}"
    if verbose:
        yield from (f"limit: {limit}" for limit in made.limits)
    if made.noticed:
        yield from table(("after", "time", "verdict", "check", "subject", "seen"), [_row(one) for one in made.noticed])


def _row(one: Noticed) -> list[str]:
    return [_hours(one.at), one.time, one.verdict.value, one.check, one.subject, one.seen]


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 2 * 3600 else f"{seconds / 60:.0f} min"
