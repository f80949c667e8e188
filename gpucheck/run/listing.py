"""What a run may consist of, for ``verify --list``: every step with its tags, its level and what it costs."""

from collections.abc import Iterable
from typing import Literal

import msgspec

from gpucheck.run.step import Step

SCHEMA = "gpucheck.steps/1"


class ListedStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step. level: the least at which it is run.

    typical_s: on a healthy host. at_most_s: then it is abandoned, and the report names the place.
    """

    name: str
    level: Literal["quick", "standard", "full"]
    tags: tuple[str, ...]
    typical_s: float
    at_most_s: float


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``verify --list --format json``."""

    schema: str = SCHEMA
    steps: tuple[ListedStep, ...]


def listing(steps: Iterable[Step]) -> Listing:
    """The steps in the order in which they are run."""
    return Listing(
        steps=tuple(
            ListedStep(
                name=s.name,
                level=_level(s),
                tags=tuple(sorted(s.tags)),
                typical_s=s.typical_s,
                at_most_s=s.seconds,
            )
            for s in steps
        )
    )


def _level(step: Step) -> Literal["quick", "standard", "full"]:
    return "quick" if "quick" in step.tags else "full" if "full" in step.tags else "standard"


def to_json(found: Listing) -> str:
    """As JSON, indented."""
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode()


def to_text(found: Listing) -> str:
    """Return one line for each step, in columns with a header."""
    rows = [("step", "level", "typical", "at most", "tags")]
    rows += [
        (step.name, step.level, f"{step.typical_s:g} s", f"{step.at_most_s:g} s", ", ".join(step.tags))
        for step in found.steps
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        f"{row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]:>{widths[3]}}  {row[4]}"
        for row in rows
    )
