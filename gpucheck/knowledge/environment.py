"""Variables that change what a job does (environment.yml)."""

from typing import Literal

import msgspec

from gpucheck.knowledge._load import Table, table


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """One variable. harmless: values that change nothing. effect: what every other value does."""

    name: str
    harmless: tuple[str, ...]
    effect: str


class _Variables(Table, frozen=True, kw_only=True):
    schema_: Literal["gpucheck.knowledge.environment/1"]
    variables: tuple[Variable, ...]


def variables() -> dict[str, Variable]:
    """Every known variable by its name. Raises KnowledgeError if the file is damaged."""
    return {variable.name: variable for variable in table("environment.yml", _Variables).variables}
