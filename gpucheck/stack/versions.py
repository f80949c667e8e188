"""Compare versions as numbers, never as text: 12.10 is newer than 12.9, 580.95.05 is older than 580.178.04."""

from functools import lru_cache

import msgspec
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version


@lru_cache(maxsize=4096)
def parse(version: str) -> Version:
    """Return a version as a comparable value. Raises ValueError that quotes an invalid version."""
    try:
        return Version(version)
    except InvalidVersion:
        raise ValueError(f"{version!r} is not a version") from None


def cc(capability: str) -> tuple[int, int]:
    """Return a compute capability as (major, minor): ``"7.5"`` -> (7, 5)."""
    major, _, minor = capability.partition(".")
    return int(major), int(minor)


def sm(arch: int) -> tuple[int, int]:
    """Return the number of an sm_ or compute_ name as (major, minor): 75 -> (7, 5), 120 -> (12, 0)."""
    return arch // 10, arch % 10


def major(version: str) -> int:
    return parse(version).major


def minor(version: str) -> str:
    """Return the first two numbers of a version, as text: ``12.9.1`` -> ``12.9``."""
    release = (*parse(version).release, 0)
    return f"{release[0]}.{release[1]}"


class Request(msgspec.Struct, frozen=True):
    """A requested version: ``auto``, ``none``, a version, the start of one, or a range.

    ``12.9`` means any 12.9.x; ``12.9.1`` that one; ``>=12.8,<13`` a range. A ``+cu126`` or ``-0ubuntu1`` after the
    version is in ``build`` and ``revision``.
    """

    text: str
    prefix: tuple[int, ...] = ()
    specifiers: str = ""
    build: str = ""
    revision: str = ""

    @property
    def auto(self) -> bool:
        return self.text == "auto"

    @property
    def none(self) -> bool:
        return self.text == "none"

    @property
    def explicit(self) -> bool:
        return not self.auto and not self.none

    @property
    def package_revision(self) -> str:
        """Return the text after a package's version, ``0+deb12u1`` of ``535.309.01-0+deb12u1``; it can be empty."""
        return f"{self.revision}+{self.build}" if self.revision and self.build else self.revision

    @property
    def version(self) -> str:
        """Return the version part as it was written, empty for a range, auto or none."""
        return self.text.partition("+")[0].partition("-")[0] if self.prefix else ""

    def matches(self, version: str) -> bool:
        """Return whether a version matches the request. ``auto`` matches everything, ``none`` nothing."""
        if self.auto or self.none:
            return self.auto
        release = parse(version).release
        if self.specifiers:
            return SpecifierSet(self.specifiers).contains(parse(version), prereleases=True)
        return release[: len(self.prefix)] == self.prefix


@lru_cache(maxsize=1024)
def request(text: str) -> Request:
    """Parse a request. Raises ValueError that describes the error."""
    text = text.strip()
    if text in ("auto", "none", "keep"):
        return Request(text)
    if not text:
        raise ValueError("is empty: write auto, none, a version or a range such as >=12.8,<13")
    if text[0] in "<>=!~":
        try:
            return Request(text, specifiers=str(SpecifierSet(text)))
        except InvalidSpecifier:
            raise ValueError(f"{text!r} is not a version range such as >=12.8,<13") from None
    plain, _, build = text.partition("+")
    plain, _, revision = plain.partition("-")
    numbers = plain.split(".")
    if not all(number.isdigit() for number in numbers):
        raise ValueError(f"{text!r} is neither auto, none, a version nor a range such as >=12.8,<13")
    return Request(text, prefix=tuple(int(number) for number in numbers), build=build, revision=revision)
