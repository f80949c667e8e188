"""The packages of one repository, as its own index lists them.

Sources: deb-version(7), and rpm's own description of rpmvercmp in rpm-version(7).
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, cmp_to_key
from itertools import zip_longest
from typing import Literal, NamedTuple

from gpucheck.printable import one_line

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
    digest: SHA-256 or SHA-512 of its file in hexadecimal, empty if the index states neither.
    """

    name: str
    version: str
    arch: str
    size: int
    requires: tuple[tuple[Relation, ...], ...] = ()
    provides: tuple[Relation, ...] = ()
    digest: str = ""


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
        own = [row for row in self.packages.get(relation.name, ()) if self.fits(row.version, relation)]
        return own + [row for row, version in self.provided.get(relation.name, ()) if self.fits(version, relation)]

    def knows(self, name: str) -> bool:
        """Whether any package here has or provides this name; others come from the system's own repositories."""
        return name in self.packages or name in self.provided


_DEB = re.compile(r"([^0-9]*)([0-9]*)")
_RPM = re.compile(r"[0-9]+|[a-zA-Z]+|~|\^")
END = 0


def deb_key(version: str) -> tuple[object, ...]:
    """Return what sorts Debian versions: ``580.95.05-0ubuntu1``, ``1:3.3.0-1``."""
    epoch, colon, rest = version.partition(":")
    if not colon:
        epoch, rest = "0", version
    upstream, _, revision = rest.rpartition("-")
    if not upstream:
        upstream, revision = revision, ""
    return (_number(epoch), _deb_part(upstream), _deb_part(revision or "0"))


def _deb_part(part: str) -> tuple[object, ...]:
    """Alternating text and numbers, ended by a text that sorts after ~ and before everything else."""
    found: list[object] = []
    for text, number in _DEB.findall(part):
        found.append((*map(_deb_order, text), END))
        found.append(_number(number))
    return tuple(found)


def _number(digits: str) -> tuple[int, str]:
    """Return what sorts numbers of any length; int rejects those of thousands of digits."""
    plain = digits.lstrip("0")
    return len(plain), plain


def _deb_order(character: str) -> int:
    if character == "~":
        return -1
    return ord(character) if character.isalpha() else ord(character) + 256


def rpm_compare(a: str, b: str) -> int:
    """Compare ``epoch:version-release`` of two rpm packages: negative, 0 or positive. No epoch is epoch 0.

    A version without a release equals every release of it, as in a dependency.
    """
    epoch_a, version_a, release_a = rpm_parts(a)
    epoch_b, version_b, release_b = rpm_parts(b)
    order = (epoch_a > epoch_b) - (epoch_a < epoch_b) or _rpm_order(version_a, version_b)
    return order or (_rpm_order(release_a, release_b) if release_a and release_b else 0)


def rpm_parts(version: str) -> tuple[int, str, str]:
    """Return (epoch, version, release); an absent release is empty."""
    epoch, colon, rest = version.partition(":")
    if not colon:
        epoch, rest = "0", version
    upstream, dash, release = rest.rpartition("-")
    return (int(epoch[:9]) if epoch.isdecimal() else 0, *((upstream, release) if dash else (rest, "")))


def _rpm_order(a: str, b: str) -> int:
    for one, other in zip_longest(_RPM.findall(a), _RPM.findall(b), fillvalue=""):
        if one == other:
            continue
        for mark, sign in (("~", -1), ("^", 1)):
            # Tilde sorts before the end of the version; caret after the end, before any other segment.
            if mark in (one, other):
                if mark == "^" and one and other:
                    sign = -1
                return sign if one == mark else -sign
        if not one or not other:
            return 1 if one else -1
        if one.isdigit() != other.isdigit():
            return 1 if one.isdigit() else -1
        left, right = (_number(one), _number(other)) if one.isdigit() else ((0, one), (0, other))
        if left != right:
            return 1 if left > right else -1
    return 0


def deb_compare(a: str, b: str) -> int:
    left, right = deb_key(a), deb_key(b)
    return (left > right) - (left < right)


def compare_of(kind: str) -> Callable[[str, str], int]:
    return deb_compare if kind == "apt" else rpm_compare


def newest_first(versions: set[str], kind: str) -> list[str]:
    return sorted(versions, key=cmp_to_key(compare_of(kind)), reverse=True)
