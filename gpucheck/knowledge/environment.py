"""Variables that change what a job does (environment.yml)."""

from typing import Literal

import msgspec

from gpucheck.knowledge._load import table


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """One variable. harmless: values that change nothing. effect: what every other value does."""

    name: str
    harmless: tuple[str, ...]
    effect: str


class _Variables(msgspec.Struct, frozen=True, kw_only=True, rename={"schema_": "schema"}):
    schema_: Literal["gpucheck.knowledge.environment/1"]
    as_of: str
    source: tuple[str, ...]
    variables: tuple[Variable, ...]


def variables() -> dict[str, Variable]:
    """Every known variable by its name. Raises KnowledgeError if the file is damaged."""
    return {variable.name: variable for variable in table("environment.yml", _Variables).variables}
