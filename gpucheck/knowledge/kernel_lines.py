"""Families of kernel log lines that have to be understood, and which of their lines are harmless (kernel_lines.yml)."""

from typing import Literal

from gpucheck.knowledge._load import Row, Table, table


class Harmless(Row, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lines that need no action. within: seconds since boot. of: keys of the messages that they are details of."""

    patterns: tuple[str, ...]
    says: str
    source: str
    within: float | None = None
    of: tuple[str, ...] = ()


class Family(Row, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One family; the head of kernel_lines.yml describes each field. title: as a noun (``PCI Express ports``)."""

    key: str
    title: str
    words: tuple[str, ...]
    patterns: tuple[str, ...]
    fix: str
    harmless: tuple[Harmless, ...]


class _Lines(Table, frozen=True, kw_only=True):
    schema_: Literal["gpucheck.knowledge.kernel-lines/1"]
    trouble: str
    families: tuple[Family, ...]


def families() -> tuple[Family, ...]:
    """Every family, in the order in which they are tried. Raises KnowledgeError if the file is damaged."""
    return table("kernel_lines.yml", _Lines).families


def trouble() -> str:
    """A regular expression for words that speak of trouble."""
    return table("kernel_lines.yml", _Lines).trouble.replace("| ", "|")
