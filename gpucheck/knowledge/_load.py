"""Read one of this room's YAML tables into typed, frozen values: once per process, and only when asked for.

A damaged table is the only thing that can go wrong here, and it always names the file and the line.
"""

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gpucheck.foreign.documents import DocumentProblem, parse

T = TypeVar("T")

FOLDER = Path(__file__).parent


class KnowledgeError(Exception):
    """A table of this room cannot be read. The message names the file, the line and what is wrong."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where a block of facts was read. url is None for a measurement of published files."""

    what: str
    url: str | None = None


_parsed: dict[str, Any] = {}


def table(name: str, type_: type[T]) -> T:
    """The table ``name`` (``gpus.yml``) of this folder, parsed once per process. Raises KnowledgeError."""
    if name not in _parsed:
        _parsed[name] = _read(FOLDER / name, type_)
    value: T = _parsed[name]
    return value


def _read(path: Path, type_: type[T]) -> T:
    try:
        return parse(path.read_text(encoding="utf-8"), str(path), type_, trusted=True)
    except DocumentProblem as problem:
        raise KnowledgeError(f"{problem}. The data file is damaged: reinstall gpucheck") from None
    except (OSError, UnicodeDecodeError) as error:
        raise KnowledgeError(f"{path}: {error}. The data file is damaged or missing: reinstall gpucheck") from None
