"""What identifies a site or a person, and what is secret (redaction.yml)."""

from typing import Literal

from gpucheck.knowledge._load import Table, TableRow, table


class Pattern(TableRow, frozen=True, kw_only=True):
    """A regular expression whose named groups are replaced. words: every match holds one, in lower case."""

    of: str
    words: str
    pattern: str


class Domains(TableRow, frozen=True, kw_only=True):
    """Last labels of names, separated by spaces; code: first labels."""

    top: str
    countries: str
    words: str
    private: str
    code: str


class RedactionTable(Table, frozen=True, kw_only=True):
    """redaction.yml. words: alternatives of regular expressions by name. parts: texts for %NAME% in patterns."""

    schema_: Literal["gpucheck.knowledge.redaction/1"]
    domains: Domains
    words: dict[str, str]
    services: str
    parts: dict[str, str]
    shapes: tuple[Pattern, ...]
    following: tuple[Pattern, ...]
    logs: tuple[Pattern, ...]
    hardware: tuple[Pattern, ...]


def redaction() -> RedactionTable:
    """Raises KnowledgeError if the file is damaged."""
    return table("redaction.yml", RedactionTable)
