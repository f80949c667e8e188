"""The packages of one repository, as its own index lists them."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Literal, NamedTuple

from gpucheck.printable import one_line
from gpucheck.repositories.versions import compare_of

Kind = Literal["apt", "dnf"]
Operator = Literal["", "<", "<=", "=", ">=", ">"]
HOLDS: Mapping[str, Callable[[int], bool]] = {
    "": lambda _: True,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    "=": lambda order: order == 0,
    ">=": lambda order: order >= 0,
    ">": lambda order: order > 0,
}


class UnusableIndex(ValueError):
    """An index that cannot be used. As text it is one sentence: what is wrong with it.

    rejected: whether it was read and is not acceptable (cut off, unsigned, of another system); otherwise it could not
    be read at all. do: what to do about it.
    """

    def __init__(self, what: str, do: str, *, rejected: bool = True) -> None:
        super().__init__(one_line(what))
        self.do, self.rejected = do, rejected


# What an index may hold, and its readers keep: a few kB of xz can be 100 million elements. The largest indexes of
# distributions have 70,000 packages (2026).
MOST = {"packages": 150_000, "dependencies": 2_000_000, "elements": 10_000_000}
MOST_TEXT = 1 << 20
# Each of many packages may require what each of many others provides. NVIDIA's repositories need some thousands.
MOST_COMPARED = 3_000_000
DISTRUST = "Do not trust this mirror"


class Bounds:
    """Counts what a reader finds in one index."""

    def __init__(self) -> None:
        self.left = dict(MOST)

    def count(self, what: str, number: int = 1) -> None:
        """Raise UnusableIndex if the index has more of these than any repository."""
        self.left[what] -= number
        if self.left[what] < 0:
            raise UnusableIndex(f"the index has more than {MOST[what]} {what}", DISTRUST)


# NVIDIA states SHA-256 for CUDA, and SHA-512 alone for the container toolkit.
ALGORITHMS = ("sha256", "sha512")


class Checksum(NamedTuple):
    """A checksum of a file. algorithm: as hashlib calls it; digest in lower-case hexadecimal."""

    algorithm: str
    digest: str

    def matches(self, content: bytes) -> bool:
        """Whether it is the checksum of this content."""
        return hashlib.new(self.algorithm, content).hexdigest() == self.digest


class Relation(NamedTuple):
    """One dependency: a name, an operator and a version. The last two are empty if any version will do."""

    name: str
    operator: Operator
    version: str

    def __str__(self) -> str:
        return f"{self.name} {self.operator} {self.version}" if self.operator else self.name


class Package(NamedTuple):
    """A package of an index. version: with epoch and revision, ``3:580.178.04-1.el9``; no epoch 0.

    size: bytes to download.
    requires: each a tuple of alternatives, of which one is enough. provides: what it is besides its own name.
    """

    name: str
    version: str
    arch: str
    size: int
    requires: tuple[tuple[Relation, ...], ...] = ()
    provides: tuple[Relation, ...] = ()


def number(text: str) -> int:
    """Return a size in bytes as an index states it, 0 for anything else."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 18 else 0


class Index(NamedTuple):
    """What one repository holds. made: ISO 8601 time that the index states, empty if it states none.

    signed_by: fingerprint of the key that vouches for the index, None where its publisher signs packages only.
    """

    kind: Kind
    packages: Mapping[str, tuple[Package, ...]]
    made: str
    signed_by: str | None

    def __len__(self) -> int:
        return sum(map(len, self.packages.values()))


class Catalog:
    """The indexes of all repositories of one plan, seen as one."""

    def __init__(self, kind: Kind, indexes: Iterable[Index], arch: str) -> None:
        """arch: as the package manager calls it (amd64, x86_64, arm64, aarch64); packages of others are not seen."""
        self.kind: Kind = kind
        self.compare = compare_of(kind)
        self.left = MOST_COMPARED
        self.packages: dict[str, list[Package]] = {}
        for index in indexes:
            for name, rows in index.packages.items():
                fitting = [row for row in rows if row.arch in (arch, "all", "noarch")]
                if fitting:
                    self.packages.setdefault(name, []).extend(fitting)

    @cached_property
    def provided(self) -> Mapping[str, list[tuple[Package, str]]]:
        """What packages provide besides their own names -> (package, version of what is provided, or empty)."""
        found: dict[str, list[tuple[Package, str]]] = {}
        for rows in self.packages.values():
            for row in rows:
                for relation in row.provides:
                    found.setdefault(relation.name, []).append((row, relation.version))
        return found

    def fits(self, version: str, relation: Relation) -> bool:
        """Whether a version is within a dependency. What is provided without a version satisfies no versioned one."""
        self.left -= 1
        if self.left < 0:
            raise UnusableIndex(
                f"the dependencies need more than {MOST_COMPARED} comparisons", DISTRUST, rejected=False
            )
        if not relation.operator:
            return True
        return bool(version) and HOLDS[relation.operator](self.compare(version, relation.version))

    def candidates(self, relation: Relation) -> list[Package]:
        """Packages that satisfy a dependency."""
        own = [row for row in self.packages.get(relation.name, ()) if self.fits(row.version, relation)]
        return own + [row for row, version in self.provided.get(relation.name, ()) if self.fits(version, relation)]

    def knows(self, name: str) -> bool:
        """Whether any package here has or provides this name; others come from the system's own repositories."""
        return name in self.packages or name in self.provided
