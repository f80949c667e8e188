"""What a run may consist of, for ``gpucheck explain``: every step with its level, its tags and what it asks."""

from collections.abc import Iterable

from gpucheck.run.step import RunStep

LEVELS = ("quick", "full", "standard")


def asks(about: str) -> str:
    """Return the question of a step, without its title."""
    question = " ".join(about.strip().partition("\n\n")[0].split())
    return question.partition(": ")[2] or question


def level_of(step: RunStep) -> str:
    """Return the first level that runs the step."""
    return next((level for level in LEVELS if level in step.tags), "standard")


def to_text(steps: Iterable[RunStep]) -> str:
    """Return one line for each step, in columns with a header."""
    rows = [("step", "level", "tags", "asks")]
    rows += [(s.name, level_of(s), " ".join(sorted(s.tags - {*LEVELS})), asks(s.about)) for s in steps]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join(
        "  ".join((*(f"{text:<{n}}" for text, n in zip(row, widths, strict=False)), row[3])) for row in rows
    )
