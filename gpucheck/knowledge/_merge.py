"""A shipped table with a site's rows: which row replaces which."""

from typing import Any

from packaging.version import InvalidVersion, Version

# Keys that identify a row of a list; rows that agree in those that they have are the same row.
IDENTITY = ("id", "name", "branch", "version", "cuda", "cuda_major", "os", "branches", "flavour", "kernel")
# Statements about a table that a site's file may make of itself.
HEAD = ("as_of", "source", "notes", "unconfirmed")


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
