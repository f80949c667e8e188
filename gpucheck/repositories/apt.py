"""Read the index of an apt repository: the release file that is signed, and the package list that it vouches for.

Sources: repository format, https://wiki.debian.org/DebianRepository/Format; control syntax, deb822(5).
"""

import re
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from itertools import chain
from typing import NamedTuple

from gpucheck.printable import excerpt
from gpucheck.repositories import index

# In this order: the first that the release file lists is fetched.
COMPRESSED = (".xz", ".gz", "")
_RELATION = re.compile(r"([^\s(:\[]+)(?::\S+)?\s*(?:\(\s*(<<|<=|=|>=|>>)\s*([^\s)]+)\s*\))?")
_OPERATORS: Mapping[str, index.Operator] = {"<<": "<", "<=": "<=", "=": "=", ">=": ">=", ">>": ">", "": ""}


class Listed(NamedTuple):
    """A file that a release file vouches for. size in bytes."""

    name: str
    checksum: index.Checksum
    size: int


class Release(NamedTuple):
    """A release file. date: ISO 8601, empty if it has none; files: those with a SHA-256 or SHA-512."""

    date: str
    files: Mapping[str, Listed]


def read_release(text: str, now: datetime, suite: str = "") -> Release:
    """Read a release file. suite: of the repository, empty for a flat one.

    Raises UnusableIndex if it is no longer valid at the time `now`, is of another suite, or lists nothing.
    """
    fields = next(paragraphs(text.split("\n")), {})
    stated = [fields[name] for name in ("codename", "suite") if fields.get(name)]
    if suite and stated and suite not in stated:
        # The same key signs all suites, so the signature does not distinguish them.
        raise index.UnusableIndex(
            f"the index is of {', '.join(stated)}, and the repository's suite is {suite}", "Correct the mirror"
        )
    until = _moment(fields.get("valid-until", ""))
    if until is not None and until < now:
        raise index.UnusableIndex(
            f"the index expired on {until:%Y-%m-%d}: the mirror is no longer updated, or this machine's clock is wrong",
            "Synchronize the mirror again, or use another one",
        )
    files: dict[str, Listed] = {}
    for algorithm in index.ALGORITHMS:
        listed: dict[str, Listed] = {}
        for line in fields.get(algorithm, "").splitlines():
            row = line.split()
            if len(row) == 3 and (size := index.number(row[1])):
                one = Listed(row[2], index.Checksum(algorithm, row[0].lower()), size)
                if listed.setdefault(one.name, one) != one:
                    raise index.UnusableIndex(
                        f"the release file lists {excerpt(one.name, 80)} twice, differently", index.DISTRUST
                    )
        files = {**listed, **files}
    if not files:
        raise index.UnusableIndex(
            "the release file lists no file with a SHA-256 or SHA-512", "Check the address of the repository"
        )
    made = _moment(fields.get("date", ""))
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
    raise index.UnusableIndex(
        f"the release file lists no {path}", "Check the suite, component and architecture of the repository"
    )


def lines_of(pieces: Iterable[bytes]) -> Iterator[str]:
    """Yield the lines of a control file that comes in pieces. Raises UnusableIndex for an endless one."""
    decoder, rest = getincrementaldecoder("utf-8")("replace"), ""
    for piece in pieces:
        *lines, rest = (rest + decoder.decode(piece)).split("\n")
        yield from lines
        if len(rest) > index.MOST_TEXT:
            raise index.UnusableIndex(f"the index has a line of more than {index.MOST_TEXT >> 20} MiB", index.DISTRUST)
    yield rest + decoder.decode(b"", final=True)


def paragraphs(lines: Iterable[str]) -> Iterator[dict[str, str]]:
    """Yield the paragraphs of a control file as field -> value; lines of one value are joined by line breaks.

    Names are in lower case, for the format does not distinguish. Raises UnusableIndex for a field that is stated twice:
    which of the two counts is not defined.
    """
    fields: dict[str, list[str]] = {}
    name = ""
    for line in chain(lines, [""]):
        if not line.strip():
            if fields:
                yield {field: "\n".join(values) for field, values in fields.items()}
            fields, name = {}, ""
        elif line[0] in " \t":
            if name:
                fields[name].append(line.strip())
        elif not line.startswith("#"):
            stated, _, value = line.partition(":")
            name = stated.strip().lower()
            if name in fields:
                raise index.UnusableIndex(
                    f"a paragraph of the index states {excerpt(stated, 40)} twice", index.DISTRUST
                )
            fields[name] = [value.strip()]


def read_packages(lines: Iterable[str]) -> dict[str, tuple[index.Package, ...]]:
    """Read a package list: name -> its versions. Raises UnusableIndex for a list with none or too many."""
    found: dict[str, list[index.Package]] = {}
    bounds, empty = index.Bounds(), True
    for row in paragraphs(lines):
        empty = False
        if not {"package", "version", "architecture"} <= row.keys():
            continue
        bounds.count("packages")
        package = index.Package(
            row["package"],
            row["version"],
            row["architecture"],
            index.number(row.get("size", "")),
            (*relations(row.get("pre-depends", "")), *relations(row.get("depends", ""))),
            tuple(one for alternatives in relations(row.get("provides", "")) for one in alternatives),
            (row.get("sha256") or row.get("sha512", "")).lower(),
        )
        bounds.count("dependencies", sum(map(len, package.requires)) + len(package.provides))
        found.setdefault(package.name, []).append(package)
    if not found and not empty:
        raise index.UnusableIndex("the package list holds no package", "Check the address of the repository")
    return {name: tuple(rows) for name, rows in found.items()}


def relations(value: str) -> tuple[tuple[index.Relation, ...], ...]:
    """Read a dependency field: each entry is a tuple of alternatives. What is not understood is left out."""
    entries = []
    for entry in value.replace("\n", " ").split(","):
        found = [match for one in entry.split("|") if (match := _RELATION.match(one.strip()))]
        if found:
            entries.append(tuple(index.Relation(m[1], _OPERATORS[m[2] or ""], m[3] or "") for m in found))
    return tuple(entries)


def _moment(value: str) -> datetime | None:
    """Return the time of a date field; None if there is none or it is not a date."""
    try:
        found = parsedate_to_datetime(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)
