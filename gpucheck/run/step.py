"""What a run is made of."""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from gpucheck.checks._session import absent
from gpucheck.model import Check, Finding, Verdict
from gpucheck.model.facts import Source

# What the report of the run has itself.
OF_THE_RUN = ("findings", "counts", "host", "simulation", "schema")


class Outcome(NamedTuple):
    """What one step found, and the numbers it measured (units in the keys).

    not_proven: what the level includes and this step could not show, each with the reason: ``training, ...``.
    """

    findings: tuple[Finding, ...]
    measurements: dict[str, Any]
    not_proven: tuple[str, ...] = ()


class RunStep(NamedTuple):
    """One thing a run does. Names and tags are what --only and --skip select by.

    seconds: the longest it may take before it is left behind. typical_s: what it takes on a healthy host: measured, or,
    for copies, planned.
    early: needs that are read before the first step; such a step is the last.
    about: what it asks and how it decides, in the form of a check's docstring. also: other names of its findings.
    waits: it needs NVML's answer, which takes as long as all other reads.
    """

    name: str
    tags: frozenset[str]
    run: Callable[[Source], Outcome]
    seconds: float
    typical_s: float
    about: str = ""
    also: tuple[str, ...] = ()
    waits: bool = True
    early: tuple[str, ...] = ()


def evaluated(check: Check, source: Source) -> Iterable[Finding]:
    """Return the findings of a check. Raises what the read of a need raised that has no answer."""
    skipped = absent(check.name, source.read("system").system.virtual)
    if skipped:
        return (skipped,)
    facts = source.read(*check.needs)
    return check.evaluate(source.read(*check.more(facts)))


def numbers_of(report: msgspec.Struct, *omitted: str) -> dict[str, Any]:
    """Return a measured report without these fields, what the report of the run has itself, and empty values."""
    numbers: dict[str, Any] = _without_nothing(report)
    return {name: value for name, value in numbers.items() if name not in (*OF_THE_RUN, *omitted)}


def _without_nothing(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        kept = ((name, default, getattr(value, field)) for field, name, default in _defaults(type(value)))
        # A zero is a result, and so is false.
        return {
            name: _without_nothing(one)
            for name, default, one in kept
            if one or one != default or isinstance(one, bool | int | float)
        }
    if isinstance(value, dict):
        return {key: _without_nothing(one) for key, one in value.items()}
    return [*map(_without_nothing, value)] if isinstance(value, list | tuple) else msgspec.to_builtins(value)


@lru_cache
def _defaults(kind: type[msgspec.Struct]) -> tuple[tuple[str, str, Any], ...]:
    """Return field, name in JSON and default of each."""
    return tuple(
        (
            one.name,
            one.encode_name,
            one.default_factory() if one.default_factory is not msgspec.NODEFAULT else one.default,
        )
        for one in msgspec.structs.fields(kind)
    )


def in_place_of_a_run(check: str, reason: Finding, seen: str, wanted: str) -> Finding:
    """Return UNKNOWN with the words of the reason."""
    return Finding(
        check=check,
        verdict=Verdict.UNKNOWN,
        subject=reason.subject,
        code=reason.code,
        values=reason.values,
        seen=seen,
        wanted=wanted,
        why=reason.why,
        steps=reason.steps,
        fix=reason.fix,
    )
