"""A site's own rows for the tables: files of the same names in a directory, which replace or extend what is shipped."""

from pathlib import Path
from typing import Any

from gpucheck.foreign import UnreadableInput, read_text
from gpucheck.foreign.documents import DocumentProblem, load
from gpucheck.knowledge import _load

MOST_BYTES = 16 << 20


class SiteTableError(Exception):
    """A file of --knowledge-dir cannot be used. The message names it."""


def use_site_tables(folder: Path) -> tuple[str, ...]:
    """Take the rows of a directory from now on; returns the names of its tables. Raises SiteTableError.

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
        rows = load(read_text(path, MOST_BYTES, "Name another directory"))
    except (DocumentProblem, UnreadableInput) as problem:
        raise SiteTableError(f"{path}: {problem}") from None
    if not isinstance(rows, dict):
        raise SiteTableError(f"{path}: must be 'key: value' lines as in the shipped table")
    return rows
