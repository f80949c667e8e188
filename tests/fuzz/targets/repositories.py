"""Indexes of package repositories: a signature proves who made them, not that they are well made."""

import gzip
import lzma
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

from gpucheck.repositories import apt, dnf
from gpucheck.repositories.index import Catalog, Index, Kind, Package, UnusableIndex, newest_first
from tests.fuzz.oracles import Wrong
from tests.fuzz.target import target

INDEXES = Path(__file__).parent.parent.parent / "data/repositories/indexes/nvidia.github.io/nvidia-docker"
NOW = datetime(2025, 11, 23, tzinfo=timezone.utc)
NESTED = b"<a>" * 100_000
ENTITIES = b'<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa">' + b'<!ENTITY b "&a;&a;&a;">' + b"]><a>&b;</a>"


def _releases() -> tuple[bytes, ...]:
    return tuple(path.read_bytes().partition(b"\n\n")[2] for path in sorted(INDEXES.glob("*/*/InRelease")))


def _lists() -> tuple[bytes, ...]:
    return tuple(lzma.decompress(path.read_bytes())[:4000] for path in sorted(INDEXES.glob("*/*/Packages.xz")))


def _repomds() -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted(INDEXES.glob("*/*/repodata/repomd.xml")))


def _primaries() -> tuple[bytes, ...]:
    lists = [gzip.decompress(path.read_bytes()) for path in sorted(INDEXES.glob("*/*/repodata/*primary.xml.gz"))]
    return tuple(text[: text.index(b"</package>", 4000) + 10] + b"</metadata>" for text in lists)


@target(seeds=_releases, format="text")
def apt_release(data: bytes) -> None:
    """A release file."""
    with _rejecting():
        release = apt.read_release(data.decode("utf-8", "replace"), NOW)
        apt.package_list(release, "", "amd64")


@target(seeds=_lists, format="text")
def apt_packages(data: bytes) -> None:
    """A package list, and the order of its versions."""
    with _rejecting():
        _looked_up("apt", apt.read_packages(apt.lines_of([data])))


@target(seeds=_repomds, format="text", attacks=lambda: (NESTED, ENTITIES))
def dnf_repomd(data: bytes) -> None:
    """repomd.xml."""
    with _rejecting():
        dnf.read_repomd(data)


@target(seeds=_primaries, format="text", attacks=lambda: (NESTED, ENTITIES))
def dnf_primary(data: bytes) -> None:
    """A primary list."""
    with _rejecting():
        _looked_up("dnf", dnf.read_primary([data]))


def _looked_up(kind: Kind, packages: dict[str, tuple[Package, ...]]) -> None:
    catalog = Catalog(kind, [Index(kind, packages, "", None)], "x86_64" if kind == "dnf" else "amd64")
    for rows in packages.values():
        newest_first({row.version for row in rows}, kind)
        for row in rows:
            for alternatives in row.requires:
                for relation in alternatives:
                    catalog.candidates(relation)


@contextmanager
def _rejecting() -> Iterator[None]:
    """Around a reader of an index, which may reject it in one line with advice."""
    try:
        yield
    except UnusableIndex as error:
        if not error.do or "\n" in str(error):
            raise Wrong("an error of several lines or without advice", ascii(str(error))[:200]) from None
