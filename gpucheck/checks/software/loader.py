"""Loader: would a program find exactly one copy of each CUDA library?

Source: what the dynamic loader finds, in its order: LD_LIBRARY_PATH first, then its cache. With two copies of a
library, the one that a program loads depends on how it was started; a copy in LD_LIBRARY_PATH also overrides the one
that a framework's wheel contains and was built for.
"""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePosixPath

import msgspec

from gpucheck.knowledge.codes import Subject
from gpucheck.model import Check, Finding, Host, LoaderLibrary

NAME = "loader"
LIBRARIES = ("libcudart", "libcublas", "libcudnn", "libnccl", "libcuda", "libnvidia-ml")
FROM_ENVIRONMENT = "LD_LIBRARY_PATH"


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """What the loader finds, in its order, None where its cache cannot be listed; frameworks: the installed ones."""

    found: tuple[LoaderLibrary, ...] | None
    frameworks: tuple[str, ...]


def probe(host: Host) -> Values:
    installed = host.python_packages(["torch", "tensorflow"])
    return Values(
        found=host.loader_libraries(LIBRARIES),
        frameworks=tuple(name for name, version in installed.items() if version is not None),
    )


def evaluate(values: Values) -> Iterator[Finding]:
    """One finding for each library with two copies, one for libraries that override a framework's, else one."""
    if values.found is None:
        yield Subject(check=NAME).unknown("software.loader-cache-unreadable")
        return
    copies = defaultdict(list)
    for library in values.found:
        copies[library.soname].append(library)
    twice = {soname: places for soname, places in copies.items() if len(_folders(places)) > 1}
    for soname, places in twice.items():
        yield _twice(soname, places)
    # One that is there twice is reported once.
    found = (library for library in values.found if library.soname not in twice)
    overruling = [library for library in found if library.source == FROM_ENVIRONMENT]
    if overruling and values.frameworks:
        yield _overruled(overruling, values.frameworks)
    if not twice and not (overruling and values.frameworks):
        subject = Subject(check=NAME, evidence=tuple(f"{library.soname}: {library.path}" for library in values.found))
        if values.found:
            yield subject.passes(f"{len(copies)} CUDA librar{'y' if len(copies) == 1 else 'ies'}, one copy each")
        else:
            yield subject.skips("software.no-cuda-libraries")


def _folders(places: list[LoaderLibrary]) -> set[str]:
    return {str(PurePosixPath(library.path).parent) for library in places}


def _twice(soname: str, places: list[LoaderLibrary]) -> Finding:
    seen = f"{len(places)} copies of {soname}"
    return _subject(places).warns("software.library-copies", seen, "1 copy", library=soname)


def _overruled(libraries: list[LoaderLibrary], frameworks: tuple[str, ...]) -> Finding:
    names = sorted({library.soname for library in libraries})
    seen = f"LD_LIBRARY_PATH contains {', '.join(names)}"
    return _subject(libraries).warns("software.library-path-overrides", seen, libraries=names, frameworks=frameworks)


def _subject(libraries: list[LoaderLibrary]) -> Subject:
    return Subject(check=NAME, evidence=tuple(f"{library.source}: {library.path}" for library in libraries))


CHECK = Check(NAME, frozenset({"software", "quick"}), probe, evaluate)
