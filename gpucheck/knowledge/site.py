"""A site's own rows for the tables: files of the same names in a directory, which replace or extend what is shipped."""

import os
from pathlib import Path
from typing import Any

from gpucheck.foreign import UnreadableInput, read_text
from gpucheck.foreign.documents import DocumentProblem, load
from gpucheck.knowledge import _load
from gpucheck.knowledge.releases import TABLES, newer_rows

MOST_BYTES = 16 << 20
# The first line of a file that gpucheck wrote, and may write again.
MADE = "# Made by gpucheck stack tables --update, which replaces it: keep your own rows in another directory.\n"


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
        found[name] = site_rows(folder / name)
    _load.use(folder, found)
    return tuple(found)


def own_folder() -> Path:
    """The user's directory, which is used if it exists and no other is named."""
    named = Path(os.environ.get("XDG_DATA_HOME", ""))
    try:
        data = named if named.is_absolute() else Path.home() / ".local" / "share"
    except RuntimeError:  # a user without a home directory
        data = Path("/nonexistent")
    return (data if data.is_absolute() else Path("/nonexistent")) / "gpucheck" / "knowledge"


def is_there(folder: Path) -> bool:
    """Whether a directory exists, as far as this user can find out."""
    try:
        return folder.is_dir()
    except OSError:
        return False


def made_text(name: str, rows: dict[str, Any]) -> str:
    """Rows as the text of a table; equal rows give equal text."""
    import yaml

    schema = f"gpucheck.knowledge.{Path(name).stem}/1"
    body: str = yaml.safe_dump({"schema": schema, **rows}, sort_keys=False, width=120)
    return MADE + body


def site_rows(path: Path) -> dict[str, Any]:
    """Return the rows of one file. Raises SiteTableError."""
    try:
        rows = load(read_text(path, MOST_BYTES, "Name another directory"))
    except (DocumentProblem, UnreadableInput) as problem:
        raise SiteTableError(f"{path}: {problem}") from None
    if not isinstance(rows, dict):
        raise SiteTableError(f"{path}: must be 'key: value' lines as in the shipped table")
    if path.name in TABLES and made_here(path):
        return newer_rows(path.name, rows)
    return rows


def made_here(path: Path) -> bool:
    """Whether gpucheck wrote a file of rows."""
    with path.open(encoding="utf-8") as file:
        return file.readline() == MADE
