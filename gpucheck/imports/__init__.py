"""Other tools' output -> model. One module here is one kind of dump; there is no list to keep.

A kind's module holds ``KIND``. Modules that start with an underscore are shared parts.
"""

from importlib import import_module
from pkgutil import iter_modules

from gpucheck.imports._kind import Kind, MeasuredKind
from gpucheck.imports._problem import ImportProblem
from gpucheck.imports._text import MAX_BYTES, decode, plain, quoted
from gpucheck.model.observations import Import
from gpucheck.model.topology import Topology

__all__ = ["MAX_BYTES", "ImportProblem", "Kind", "all_kinds", "read", "read_measured", "recognise"]


def all_kinds() -> tuple[Kind, ...]:
    """Every KIND here in the order in which they are asked: strict before loose, then by name.

    Raises AttributeError if a module defines none.
    """
    names = (m.name for m in iter_modules(__path__) if not m.name.startswith("_"))
    kinds = (import_module(f"{__name__}.{name}").KIND for name in names)
    return tuple(sorted(kinds, key=lambda kind: (kind.loose, kind.name)))


def recognise(data: str | bytes) -> tuple[Kind | None, str]:
    """Which kind of dump this is, None if none, and its text ready for parsing.

    Raises ImportProblem if it is no text.
    """
    text = plain(decode(data if isinstance(data, bytes) else data.encode("utf-8", errors="replace")))
    return next((kind for kind in all_kinds() if kind.recognise(text)), None), text


def read(data: str | bytes) -> Topology:
    """Recognise what kind of dump this is and read its topology.

    Raises ImportProblem, and nothing else, for any input.
    """
    kind, text = recognise(data)
    if kind is not None and kind.holds == "topology":
        topology: Topology = kind.parse(text)
        return topology
    if kind is not None:
        raise ImportProblem(
            "no topology in the input",
            where="whole input",
            why=f"this is {kind.title}, which holds {kind.holds} and does not say how the GPUs are connected",
            do=f"Read it with: {kind.command}",
        )
    wanted = " or ".join(kind.title for kind in reversed(all_kinds()) if kind.holds == "topology")
    first = next((line for line in text.splitlines() if line.strip()), "")
    raise ImportProblem(
        "no topology in the input",
        where="line 1",
        why=f"it starts with {quoted(first)}, which is not {wanted}",
        do="Save the dump again and import that: nvidia-smi topo -m > topo.txt",
    )


def read_measured(data: str | bytes) -> Import:
    """Recognise which tool's measurements these are and read them. Raises ImportProblem, and nothing else."""
    kind, text = recognise(data)
    if isinstance(kind, MeasuredKind):
        measured: Import = kind.parse(text)
        return measured
    wanted = " or ".join(kind.title for kind in all_kinds() if isinstance(kind, MeasuredKind))
    first = next((line for line in text.splitlines() if line.strip()), "")
    raise ImportProblem(
        "no measurements in the input",
        where="line 1",
        why=f"it starts with {quoted(first)}, which is not {wanted}",
        do="Save the whole output of the tool again, and import that",
    )
