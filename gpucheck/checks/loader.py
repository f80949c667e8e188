"""Loader: would a program find exactly one copy of each CUDA library?

Source: what the dynamic loader finds, in its order: LD_LIBRARY_PATH first, then its cache. Two copies of one library
mean that the one a program gets depends on how it was started; a copy in LD_LIBRARY_PATH also beats the one that a
framework's wheel brings along and was built for.
"""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePosixPath

import msgspec

from gpucheck.model import Check, Finding, Host, LoaderLibrary
from gpucheck.model.about import About

NAME = "loader"
LIBRARIES = ("libcudart", "libcublas", "libcudnn", "libnccl", "libcuda", "libnvidia-ml")
FROM_ENVIRONMENT = "LD_LIBRARY_PATH"


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """What the loader finds, in its order; frameworks: torch and TensorFlow where they are installed."""

    found: tuple[LoaderLibrary, ...]
    frameworks: tuple[str, ...]


def probe(host: Host) -> Values:
    """Ask the loader."""
    installed = host.python_packages(["torch", "tensorflow"])
    return Values(
        found=host.loader_libraries(LIBRARIES),
        frameworks=tuple(name for name, version in installed.items() if version is not None),
    )


def evaluate(values: Values) -> Iterator[Finding]:
    """One finding for each library with two copies, one for libraries that overrule a framework's, else one."""
    copies = defaultdict(list)
    for library in values.found:
        copies[library.soname].append(library)
    twice = {soname: places for soname, places in copies.items() if len(_folders(places)) > 1}
    for soname, places in twice.items():
        yield _twice(soname, places)
    overruling = [library for library in values.found if library.source == FROM_ENVIRONMENT]
    if overruling and values.frameworks:
        yield _overruled(overruling, values.frameworks)
    if not twice and not (overruling and values.frameworks):
        about = About(check=NAME, evidence=tuple(f"{library.soname}: {library.path}" for library in values.found))
        if values.found:
            yield about.passes(f"{len(copies)} libraries, one copy each")
        else:
            yield about.skips("the loader finds no CUDA library: frameworks bring their own, nothing else is installed")


def _folders(places: list[LoaderLibrary]) -> set[str]:
    return {str(PurePosixPath(library.path).parent) for library in places}


def _twice(soname: str, places: list[LoaderLibrary]) -> Finding:
    about = About(check=NAME, evidence=tuple(f"{library.source}: {library.path}" for library in places))
    why = "which copy a program gets depends on how it was started"
    fix = "remove the older package or the folder from LD_LIBRARY_PATH and /etc/ld.so.conf.d, then run ldconfig"
    return about.warns(f"{soname}: {len(places)} copies", "one", why, fix, "library-mismatch", "likely")


def _overruled(libraries: list[LoaderLibrary], frameworks: tuple[str, ...]) -> Finding:
    about = About(check=NAME, evidence=tuple(f"{library.source}: {library.path}" for library in libraries))
    names = ", ".join(sorted({library.soname for library in libraries}))
    why = f"LD_LIBRARY_PATH beats the libraries that {' and '.join(frameworks)} bring along and were built for"
    return about.warns(names, "none from LD_LIBRARY_PATH", why, "unset LD_LIBRARY_PATH", "library-mismatch", "likely")


CHECK = Check(NAME, frozenset({"software", "quick"}), probe, evaluate)
