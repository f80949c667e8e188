"""What a run is made of."""

from collections.abc import Callable
from typing import Any, NamedTuple

from gpucheck.model import Finding, Host


class Outcome(NamedTuple):
    """What one step found, and the numbers it measured (units in the keys).

    not_proven: what the level includes and this step could not show, each with the reason: ``training, ...``.
    """

    findings: tuple[Finding, ...]
    measurements: dict[str, Any]
    not_proven: tuple[str, ...] = ()


class Step(NamedTuple):
    """One thing a run does. Names and tags are what --only and --skip select by.

    seconds: the longest it may take before it is left behind. typical_s: what it takes on a healthy host: measured, or,
    for copies, planned.
    about: what it asks and how it decides, in the form of a check's docstring. also: other names of its findings.
    """

    name: str
    tags: frozenset[str]
    run: Callable[[Host], Outcome]
    seconds: float
    typical_s: float
    about: str = ""
    also: tuple[str, ...] = ()
