"""Variables that change what a job does (environment.yml)."""

from typing import Literal

import msgspec

from gpucheck.knowledge._load import Table, table

OFF = ("false", "no", "off")


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """One variable. harmless: values that change nothing. effect: what every other value does.

    slows: the collectives of one host show it.
    """

    name: str
    harmless: tuple[str, ...]
    effect: str
    slows: bool = False

    def changes(self, value: str) -> bool:
        """Whether a value has an effect; an empty one counts as not set, and ``off`` as 0."""
        word = value.strip().lower()
        return bool(word) and ("0" if word in OFF else word) not in map(str.lower, self.harmless)


class _Variables(Table, frozen=True, kw_only=True):
    schema_: Literal["gpucheck.knowledge.environment/1"]
    variables: tuple[Variable, ...]


def variables() -> dict[str, Variable]:
    """Every known variable by its name. Raises KnowledgeError if the file is damaged."""
    return {variable.name: variable for variable in table("environment.yml", _Variables).variables}
