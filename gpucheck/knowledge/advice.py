"""Advice of the tables: steps with places for values, and the steps and texts that become of them."""

import shlex
from collections.abc import Iterable, Mapping
from string import Formatter
from typing import Any

from gpucheck.knowledge._load import TableRow
from gpucheck.model.finding import Step


class Advice(TableRow, frozen=True, kw_only=True):
    """One step: do or look are words, change or run a command. do and change alter the host, look and run do not."""

    do: str | None = None
    look: str | None = None
    change: str | None = None
    run: str | None = None

    def __post_init__(self) -> None:
        if sum(text is not None for text in (self.do, self.look, self.change, self.run)) != 1:
            raise ValueError("a step has one of the keys do, look, change, run")

    @property
    def text(self) -> str:
        return self.do or self.look or self.change or self.run or ""


class _Words(Formatter):
    """Values in a sentence: a list with commas, an unknown value as the word."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, list | tuple):
            return ", ".join(super(_Words, self).format_field(one, format_spec) for one in value)
        if value is None:
            return "unknown"
        return str(super().format_field(value, format_spec))


class _Shell(_Words):
    """Values in a command: a text from elsewhere cannot become a second command."""

    def format_field(self, value: Any, format_spec: str) -> str:
        text = super().format_field(value, format_spec)
        return text if isinstance(value, int | float) else shlex.quote(text) if text else "''"


WORDS, SHELL = _Words(), _Shell()


def step_of(advice: Advice, values: Mapping[str, Any]) -> Step:
    """Return the step with these values. Raises KeyError for one that is missing."""
    changes = advice.do is not None or advice.change is not None
    if advice.do is not None or advice.look is not None:
        return Step(text=WORDS.vformat(advice.text, (), values), changes=changes)
    return Step(command=SHELL.vformat(advice.text, (), values), changes=changes)


def fix_of(steps: Iterable[Step]) -> str:
    """Return the steps as one text: a step that ends with a colon introduces the next."""
    text = ""
    for step in steps:
        between = " " if text.endswith(":") else "; " if text else ""
        text += between + (step.command or step.text or "")
    return text
