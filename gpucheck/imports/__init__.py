"""Other tools' output -> model. One module here is one kind of dump; there is no list to keep.

A kind's module holds ``KIND``. Modules that start with an underscore are shared parts.
"""

from importlib import import_module
from pkgutil import iter_modules

from gpucheck.imports._kind import Kind
from gpucheck.imports._problem import ImportProblem
from gpucheck.imports._text import MAX_BYTES, decode, plain, quoted
from gpucheck.model.observations import Import
from gpucheck.model.topology import Topology

__all__ = ["MAX_BYTES", "ImportProblem", "Kind", "all_kinds", "read", "read_measured"]


def all_kinds() -> tuple[Kind, ...]:
    """Every KIND of topology here, ordered by name. Raises AttributeError if a module defines none."""
    names = (m.name for m in iter_modules(__path__) if not m.name.startswith("_"))
    kinds = (import_module(f"{__name__}.{name}").KIND for name in names)
    return tuple(sorted((kind for kind in kinds if isinstance(kind, Kind)), key=lambda kind: kind.name))


def read(data: str | bytes) -> Topology:
    """Recognise what kind of dump this is and read it. Raises ImportProblem, and nothing else, for any input."""
    text = plain(decode(data if isinstance(data, bytes) else data.encode("utf-8", errors="replace")))
    for kind in all_kinds():
        if kind.recognise(text):
            return kind.parse(text)
    wanted = " or ".join(kind.title for kind in all_kinds())
    first = next((line for line in text.splitlines() if line.strip()), "")
    raise ImportProblem(
        "no topology in the input",
        where="line 1",
        why=f"it starts with {quoted(first)}, which is not {wanted}",
        do="Save the dump again and import that: nvidia-smi topo -m > topo.txt",
    )


def read_measured(data: str | bytes) -> Import:
    """Recognise which tool's measurements these are and read them. Raises ImportProblem, and nothing else."""
    from gpucheck.imports import _measured

    return _measured.read_measured(data)
