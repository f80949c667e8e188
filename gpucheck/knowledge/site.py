"""A site's own rows for the tables: files of the same names in a folder, which replace or extend what is shipped."""

from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from gpucheck.foreign import UnreadableInput, read_text
from gpucheck.foreign.documents import DocumentProblem, load
from gpucheck.knowledge import _load

MOST_BYTES = 16 << 20
# What says which row of a list is meant; rows that agree in those of them that they have are the same row.
IDENTITY = ("id", "name", "branch", "version", "cuda", "cuda_major", "os", "branches", "flavour", "kernel")
# Statements about a table that a site's file may make of itself.
HEAD = ("as_of", "source", "notes", "unconfirmed")


class SiteTableError(Exception):
    """A file of the site's folder cannot be used. The message names it."""


def use_site_tables(folder: Path) -> tuple[str, ...]:
    """Take the rows of a folder from now on; returns the names of its tables. Raises SiteTableError.

    Call it before any table is read: each is parsed once per process.
    """
    found = {}
    try:
        names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise SiteTableError(f"{folder}: {error.strerror}") from None
    known = sorted(path.name for path in _load.FOLDER.glob("*.yml"))
    for name in names:
        if name not in known:
            raise SiteTableError(f"{folder / name}: no such table. Known: {', '.join(known)}")
        found[name] = _rows(folder / name)
    _load.use(folder, found)
    return tuple(found)


def _rows(path: Path) -> dict[str, Any]:
    try:
        rows = load(read_text(path, MOST_BYTES, "Name another folder"))
    except (DocumentProblem, UnreadableInput) as problem:
        raise SiteTableError(f"{path}: {problem}") from None
    if not isinstance(rows, dict):
        raise SiteTableError(f"{path}: must be 'key: value' lines as in the shipped table")
    return rows


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
    found = list(shipped)
    for row in site:
        place = next((i for i, old in enumerate(found) if _same(old, row)), None)
        if place is None:
            found.append(row)
        else:
            found[place] = merged(found[place], row)
    return sorted(found, key=_version) if _ordered(shipped) and all(map(_version, found)) else found


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    keys = [key for key in IDENTITY if key in one or key in other]
    return bool(keys) and all(one.get(key) == other.get(key) for key in keys)


def _version(row: dict[str, Any]) -> tuple[int, ...]:
    try:
        return Version(str(row.get("version", ""))).release
    except InvalidVersion:
        return ()


def _ordered(rows: list[dict[str, Any]]) -> bool:
    versions = [_version(row) for row in rows]
    return all(versions) and versions == sorted(versions)
