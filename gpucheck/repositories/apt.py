"""Read the index of an apt repository: the release file that is signed, and the package list that it vouches for.

Sources: repository format, https://wiki.debian.org/DebianRepository/Format; control syntax, deb822(5).
"""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from gpucheck.repositories.index import ALGORITHMS, Checksum, Operator, Package, Relation, UnusableIndex, number

# In this order: the first that the release file lists is fetched.
COMPRESSED = (".xz", ".gz", "")
_RELATION = re.compile(r"([^\s(:\[]+)(?::\S+)?\s*(?:\(\s*(<<|<=|=|>=|>>)\s*([^\s)]+)\s*\))?")
_OPERATORS: Mapping[str, Operator] = {"<<": "<", "<=": "<=", "=": "=", ">=": ">=", ">>": ">", "": ""}


class Listed(NamedTuple):
    """A file that a release file vouches for. size in bytes."""

    name: str
    checksum: Checksum
    size: int


class Release(NamedTuple):
    """A release file. date: ISO 8601, empty if it has none; files: those with a SHA-256 or SHA-512."""

    date: str
    files: Mapping[str, Listed]


def read_release(text: str, now: datetime) -> Release:
    """Read a release file. Raises UnusableIndex if it is no longer valid at the time `now`, or lists nothing."""
    fields = next(paragraphs(text), {})
    until = _moment(fields.get("Valid-Until", ""))
    if until is not None and until < now:
        raise UnusableIndex(
            f"the index expired on {until:%Y-%m-%d}: the mirror is no longer updated, or this machine's clock is wrong",
            "Synchronize the mirror again, or use another one",
        )
    files: dict[str, Listed] = {}
    for algorithm in ALGORITHMS:
        for line in fields.get(algorithm.upper(), "").splitlines():
            row = line.split()
            if len(row) == 3 and (size := number(row[1])):
                files.setdefault(row[2], Listed(row[2], Checksum(algorithm, row[0].lower()), size))
    if not files:
        raise UnusableIndex(
            "the release file lists no file with a SHA-256 or SHA-512", "Check the address of the repository"
        )
    made = _moment(fields.get("Date", ""))
    return Release(made.isoformat() if made else "", files)


def package_list(release: Release, component: str, arch: str) -> Listed:
    """Return the package list to fetch. component: as in sources.list, empty for a flat repository.

    arch: as dpkg calls it. Raises UnusableIndex if the repository has none.
    """
    path = f"{component}/binary-{arch}/Packages" if component else "Packages"
    for suffix in COMPRESSED:
        for name in (f"{path}{suffix}", f"./{path}{suffix}"):
            if name in release.files:
                return release.files[name]
    raise UnusableIndex(
        f"the release file lists no {path}", "Check the suite, component and architecture of the repository"
    )


def paragraphs(text: str) -> Iterator[dict[str, str]]:
    """Yield the paragraphs of a control file as field -> value; lines of one value are joined by line breaks."""
    fields: dict[str, str] = {}
    name = ""
    for line in text.split("\n"):
        if not line.strip():
            if fields:
                yield fields
            fields, name = {}, ""
        elif line[0] in " \t":
            if name:
                fields[name] += "\n" + line.strip()
        elif not line.startswith("#"):
            name, _, value = line.partition(":")
            fields[name] = value.strip()
    if fields:
        yield fields


def read_packages(text: str) -> dict[str, tuple[Package, ...]]:
    """Read a package list: name -> its versions. Raises UnusableIndex for a list without any package."""
    found: dict[str, list[Package]] = {}
    for row in paragraphs(text):
        if not {"Package", "Version", "Architecture"} <= row.keys():
            continue
        package = Package(
            row["Package"],
            row["Version"],
            row["Architecture"],
            number(row.get("Size", "")),
            (*relations(row.get("Pre-Depends", "")), *relations(row.get("Depends", ""))),
            tuple(one for alternatives in relations(row.get("Provides", "")) for one in alternatives),
        )
        found.setdefault(package.name, []).append(package)
    if not found and text.strip():
        raise UnusableIndex("the package list holds no package", "Check the address of the repository")
    return {name: tuple(rows) for name, rows in found.items()}


def relations(value: str) -> tuple[tuple[Relation, ...], ...]:
    """Read a dependency field: each entry is a tuple of alternatives. What is not understood is left out."""
    entries = []
    for entry in value.replace("\n", " ").split(","):
        found = [match for one in entry.split("|") if (match := _RELATION.match(one.strip()))]
        if found:
            entries.append(tuple(Relation(m[1], _OPERATORS[m[2] or ""], m[3] or "") for m in found))
    return tuple(entries)


def _moment(value: str) -> datetime | None:
    """Return the time of a date field; None if there is none or it is not a date."""
    try:
        found = parsedate_to_datetime(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)
