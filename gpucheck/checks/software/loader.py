"""Loader: would a program find exactly one copy of each CUDA library?

Source: what the dynamic loader finds, in its order: LD_LIBRARY_PATH first, then its cache. With two copies of a
library, the one that a program loads depends on how it was started; a copy in LD_LIBRARY_PATH also overrides the one
that a framework's wheel contains and was built for.
"""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePosixPath

from gpucheck.knowledge.codes import Subject
from gpucheck.model import Check, Finding, LoaderLibrary
from gpucheck.model.facts import Facts

NAME = "loader"
LIBRARIES = ("libcudart", "libcublas", "libcudnn", "libnccl", "libcuda", "libnvidia-ml")
FRAMEWORKS = ("torch", "tensorflow")
FROM_ENVIRONMENT = "LD_LIBRARY_PATH"


def evaluate(facts: Facts) -> Iterator[Finding]:
    """One finding for each library with two copies, one for libraries that override a framework's, else one."""
    if facts.libraries is None:
        yield Subject(check=NAME).unknown("software.loader-cache-unreadable")
        return
    # In the loader's order; other checks may have asked for other libraries.
    every = [library for library in facts.libraries if library.soname.partition(".so")[0] in LIBRARIES]
    frameworks = tuple(name for name in FRAMEWORKS if facts.python_packages[name] is not None)
    copies = defaultdict(list)
    for library in every:
        copies[library.soname].append(library)
    folders = {soname: {PurePosixPath(one.path).parent for one in places} for soname, places in copies.items()}
    twice = {soname: places for soname, places in copies.items() if len(folders[soname]) > 1}
    for soname, places in twice.items():
        seen = f"{len(places)} copies of {soname}"
        yield _subject(places).warns("software.library-copies", seen, "1 copy", library=soname)
    # One that is there twice is reported once.
    found = (library for library in every if library.soname not in twice)
    overruling = [library for library in found if library.source == FROM_ENVIRONMENT]
    if overruling and frameworks:
        names = sorted({library.soname for library in overruling})
        seen, code = f"LD_LIBRARY_PATH contains {', '.join(names)}", "software.library-path-overrides"
        yield _subject(overruling).warns(code, seen, libraries=names, frameworks=frameworks)
    if not twice and not (overruling and frameworks):
        subject = Subject(check=NAME, evidence=tuple(f"{library.soname}: {library.path}" for library in every))
        if every:
            yield subject.passes(f"{len(copies)} CUDA librar{'y' if len(copies) == 1 else 'ies'}, one copy each")
        else:
            yield subject.skips("software.no-cuda-libraries")


def _subject(libraries: list[LoaderLibrary]) -> Subject:
    return Subject(check=NAME, evidence=tuple(f"{library.source}: {library.path}" for library in libraries))


NEEDS = (*(f"library:{name}" for name in LIBRARIES), *(f"python:{name}" for name in FRAMEWORKS))
CHECK = Check(NAME, frozenset({"software", "quick"}), evaluate=evaluate, needs=NEEDS)
