"""Read one of this room's YAML tables into typed, frozen values: once per process, and only when asked for.

A damaged table is the only thing that can go wrong here, and it always names the file and the line.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

FOLDER = Path(__file__).parent
# Keys that identify a row of a list; rows that agree in those that they have are the same row.
IDENTITY = ("id", "name", "branch", "version", "cuda", "cuda_major", "os", "branches", "flavour", "kernel")
# Statements about a table that a site's file may make of itself.
HEAD = ("as_of", "source", "notes", "unconfirmed")


class KnowledgeError(Exception):
    """A table of this room cannot be read. The message names the file, the line and what is wrong."""


class TableRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a table, or a block of its values."""


class Table(TableRow, frozen=True, kw_only=True, rename={"schema_": "schema"}):
    """What every table states about itself. source: ids of sources.yml, or the sources as text."""

    schema_: str
    as_of: str
    source: tuple[str, ...] | str
    notes: tuple[str, ...] = ()
    unconfirmed: tuple[str, ...] = ()


class TableSource(TableRow, frozen=True, kw_only=True):
    """Where a block of facts was read. url is None for a measurement of published files."""

    what: str
    url: str | None = None


_parsed: dict[str, Any] = {}
_site: dict[str, dict[str, Any]] = {}
_site_folder: list[Path] = []


def use(folder: Path, rows: dict[str, dict[str, Any]]) -> None:
    """Merge a site's rows, by name of table, into the tables; those read before are read again."""
    _site_folder[:] = [folder]
    _site.clear()
    _site.update(rows)
    _parsed.clear()


def site_tables() -> tuple[str, ...]:
    """Paths of the tables with rows of your site: ``/srv/site/recorded.yml``."""
    return tuple(str(folder / name) for folder in _site_folder for name in sorted(_site))


def table(name: str, type_: type[T]) -> T:
    """The table ``name`` (``gpus.yml``) of this directory, parsed once per process. Raises KnowledgeError."""
    if name not in _parsed:
        _parsed[name] = _read(FOLDER / name, type_)
    value: T = _parsed[name]
    return value


def _read(path: Path, type_: type[T]) -> T:
    if path.name in _site:
        return _with_site(path, type_)
    compiled, stamp = path.parent / "__pycache__" / f"{path.name}.json", _stamp(path)
    with suppress(OSError, ValueError, msgspec.MsgspecError):
        head, _, content = compiled.read_bytes().partition(b"\n")
        if stamp and head == stamp:
            return msgspec.json.decode(content, type=type_)
    from gpucheck.foreign.documents import DocumentProblem, parse

    try:
        text = path.read_text(encoding="utf-8")
        value = parse(text, str(path), type_, trusted=True)
        if stamp and not sys.dont_write_bytecode:
            _compile(compiled, stamp, parse(text, str(path), dict, trusted=True))
    except DocumentProblem as problem:
        in_checkout = any((folder / ".git").exists() for folder in path.parents[2:3])
        advice = "Correct it" if in_checkout else "The data file is damaged: reinstall gpucheck"
        raise KnowledgeError(f"{problem}. {advice}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise KnowledgeError(f"{path}: {error}. The data file is damaged or missing: reinstall gpucheck") from None
    return value


def _stamp(path: Path) -> bytes:
    """The version of a table, as Python's compiled modules have it: empty if the file cannot be read."""
    with suppress(OSError):
        status = path.stat()
        return f"{status.st_mtime_ns} {status.st_size}".encode()
    return b""


def _compile(path: Path, stamp: bytes, table: dict[str, Any]) -> None:
    """Write the table as JSON next to the compiled modules: it is read fifty times faster, and without PyYAML."""
    with suppress(OSError):
        path.parent.mkdir(exist_ok=True)
        part = path.with_name(f"{path.name}.{os.getpid()}")
        part.write_bytes(stamp + b"\n" + msgspec.json.encode(table))
        part.replace(path)


def _with_site(path: Path, type_: type[T]) -> T:
    from gpucheck.foreign.documents import DocumentProblem, parse

    own = _site_folder[0] / path.name
    try:
        rows = parse(path.read_text(encoding="utf-8"), str(path), dict, trusted=True)
        return msgspec.convert(merged_table(rows, _site[path.name]), type_)
    except msgspec.ValidationError as error:
        raise KnowledgeError(f"{own}: with its rows the table is not valid: {error}. Correct this file") from None
    except (DocumentProblem, OSError, UnicodeDecodeError) as error:
        raise KnowledgeError(f"{path}: {error}. The data file is damaged or missing: reinstall gpucheck") from None


def merged(shipped: Any, site: Any) -> Any:
    """Blocks are merged key by key, lists row by row; everything else is replaced."""
    if isinstance(shipped, dict) and isinstance(site, dict):
        own = {key: merged(shipped[key], value) if key in shipped else value for key, value in site.items()}
        return {**shipped, **own}
    if isinstance(shipped, list) and isinstance(site, list):
        return _merged_list(shipped, site)
    return site


def merged_table(shipped: dict[str, Any], site: dict[str, Any]) -> dict[str, Any]:
    """The table with a site's rows; what that file states of itself is left out."""
    found: dict[str, Any] = merged(shipped, {key: value for key, value in site.items() if key not in HEAD})
    return found


def _merged_list(shipped: list[Any], site: list[Any]) -> list[Any]:
    if not all(isinstance(row, dict) for row in (*shipped, *site)):
        return [*shipped, *(row for row in site if row not in shipped)]

    def is_same(one: dict[str, Any], other: dict[str, Any]) -> bool:
        keys = [key for key in IDENTITY if key in one or key in other]
        return bool(keys) and all(one.get(key) == other.get(key) for key in keys)

    found = list(shipped)
    for row in site:
        place = next((i for i, old in enumerate(found) if is_same(old, row)), None)
        if place is None:
            found.append(row)
        else:
            found[place] = merged(found[place], row)
    before, after = [*map(_version, shipped)], [*map(_version, found)]
    return sorted(found, key=_version) if all(after) and before == sorted(before) else found


def _version(row: dict[str, Any]) -> tuple[int, ...]:
    from packaging.version import InvalidVersion, Version

    try:
        return Version(str(row.get("version", ""))).release
    except InvalidVersion:
        return ()
