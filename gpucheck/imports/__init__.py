"""Read the output of other tools into model types.

Each module is one kind of output and holds ``KIND``; directories only group them, and there is no list to maintain.
Modules that start with an underscore are shared.
"""

from contextlib import suppress
from functools import cache
from importlib import import_module
from pkgutil import walk_packages

from gpucheck.imports._kind import Kind, MeasuredKind
from gpucheck.imports._pieces import read_pieces
from gpucheck.imports._problem import ImportProblem
from gpucheck.imports._text import MAX_BYTES, decode, plain, quoted
from gpucheck.model.observations import Import
from gpucheck.model.paste import Reading
from gpucheck.model.topology import Topology

__all__ = ["MAX_BYTES", "ImportProblem", "Kind", "all_kinds", "read", "read_all", "read_measured", "recognise"]


@cache
def all_kinds() -> tuple[Kind, ...]:
    """Every KIND here in the order in which they are tried: strict before loose, then by name.

    Raises AttributeError if a module defines none.
    """
    found = walk_packages(__path__, prefix=f"{__name__}.")
    names = (m.name for m in found if not m.ispkg and not any(part.startswith("_") for part in m.name.split(".")))
    kinds = (import_module(name).KIND for name in names)
    return tuple(sorted(kinds, key=lambda kind: (kind.loose, kind.name)))


def read_all(data: bytes, source: str, as_: str | None = None) -> Reading:
    """Everything that is understood in a text, whatever tools printed it, and the lines that are not.

    source: the name of the input for messages. as_: the name of the kind that the whole text is, if the user says so.
    Raises ImportProblem, and nothing else: for no text at all, for a text in which nothing is understood, and for a
    text that is not of the kind as_.
    """
    return read_pieces(plain(decode(data)), source, all_kinds(), as_)


def recognise(data: str | bytes) -> tuple[Kind | None, str]:
    """Which kind of dump this is, None if none, and its text ready for parsing.

    Raises ImportProblem if it is no text.
    """
    text = plain(decode(data if isinstance(data, bytes) else data.encode("utf-8", errors="replace")))
    return next((kind for kind in all_kinds() if _may_be(kind, text) and kind.recognise(text)), None), text


def _may_be(kind: Kind, text: str) -> bool:
    """Whether one of the texts is in it that every dump of the kind holds."""
    return not kind.hints or any(hint in text for hint in kind.hints)


def read(data: str | bytes) -> Topology:
    """Recognise what kind of dump this is and read its topology.

    Raises ImportProblem, and nothing else, for any input.
    """
    kind, text = recognise(data)
    if kind is not None and kind.holds == "topology":
        found = kind.parse(text)
        if isinstance(found, Topology):
            return found
    if kind is not None:
        # There may be other output around the dump, as that of topo -p2p often does.
        for other in (one for one in all_kinds() if one.holds == "topology" and one.recognise(text)):
            with suppress(ImportProblem):
                found = other.parse(text)
                if isinstance(found, Topology):
                    return found
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
        found = kind.parse(text)
        if isinstance(found, Import):
            return found
    wanted = " or ".join(kind.title for kind in all_kinds() if isinstance(kind, MeasuredKind))
    first = next((line for line in text.splitlines() if line.strip()), "")
    raise ImportProblem(
        "no measurements in the input",
        where="line 1",
        why=f"it starts with {quoted(first)}, which is not {wanted}",
        do="Save the whole output of the tool again, and import that",
    )
