"""What a run may consist of, for ``verify --list``: every step with its tags, its level and what it costs."""

from collections.abc import Iterable
from typing import Literal

import msgspec

from gpucheck.run._step import Step

SCHEMA = "gpucheck.steps/1"


class ListedStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step. level: the least at which it is run. at_most_s: None where the step sets its own deadlines."""

    name: str
    level: Literal["quick", "standard", "full"]
    tags: tuple[str, ...]
    at_most_s: float | None


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``verify --list --format json``."""

    schema: str = SCHEMA
    steps: tuple[ListedStep, ...]


def listing(steps: Iterable[Step]) -> Listing:
    """The steps in the order in which they are run."""
    return Listing(
        steps=tuple(
            ListedStep(name=s.name, level=_level(s), tags=tuple(sorted(s.tags)), at_most_s=s.seconds) for s in steps
        )
    )


def _level(step: Step) -> Literal["quick", "standard", "full"]:
    return "quick" if "quick" in step.tags else "full" if "full" in step.tags else "standard"


def to_json(found: Listing) -> str:
    """As JSON, indented."""
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode()


def to_text(found: Listing) -> str:
    """One line a step, in columns."""
    width = max((len(step.name) for step in found.steps), default=0)
    return "\n".join(
        f"{step.name:<{width}}  {step.level:<8}  {_cost(step.at_most_s):<18}  {', '.join(step.tags)}"
        for step in found.steps
    )


def _cost(seconds: float | None) -> str:
    return "sets its deadlines" if seconds is None else f"{seconds:g} s at most"
