"""Read the output of other tools into model types.

Each module holds a ``Kind`` of output, or several; directories only group them, and there is no list to maintain.
Modules that start with an underscore are shared. A file of knowledge/messages with a title is a kind without a module.
"""

from functools import cache
from importlib import import_module
from pkgutil import walk_packages

from gpucheck.imports._kind import Kind, of_messages
from gpucheck.imports._pieces import read_pieces, taken_apart
from gpucheck.imports._text import MAX_BYTES, ImportProblem, absent, decode, first_line, lines_of, quoted
from gpucheck.imports._unwrap import Lines, unwrapped
from gpucheck.knowledge.messages import titles
from gpucheck.model.paste import Reading
from gpucheck.model.topology import Topology

__all__ = ["MAX_BYTES", "ImportProblem", "Kind", "all_kinds", "read", "read_all"]


@cache
def all_kinds() -> tuple[Kind, ...]:
    """Every kind here in the order in which they are tried: strict before loose, then by name."""
    found = walk_packages(__path__, prefix=f"{__name__}.")
    names = (m.name for m in found if not m.ispkg and not any(part.startswith("_") for part in m.name.split(".")))
    kinds = [one for name in names for one in vars(import_module(name)).values() if isinstance(one, Kind)]
    kinds += [of_messages(name, title, exact=exact) for name, (title, exact) in titles().items()]
    return tuple(sorted(kinds, key=lambda kind: (kind.loose, kind.name)))


def read_all(data: bytes, source: str, as_: str | None = None) -> Reading:
    """Everything that is understood in a text, whatever tools printed it, and the lines that are not.

    source: the name of the input for messages. as_: the kind of the entire text, if the user states it.
    Raises ImportProblem, and nothing else: for no text at all, for a text in which nothing is understood, and for a
    text that is not of the kind as_.
    """
    lines = _lines(data)
    del data  # a hundred megabytes, unless the caller still holds them
    return read_pieces(lines, source, all_kinds(), as_)


def read(data: str | bytes) -> Topology:
    """The topology in a text, whatever else is in it. Raises ImportProblem, and nothing else, for any input."""
    lines = _lines(data if isinstance(data, bytes) else data.encode("utf-8", errors="replace"))
    text = "\n".join(lines.text)
    problem: ImportProblem | None = None
    for kind in all_kinds():
        if kind.topology and any(hint in text for hint in kind.hints):
            try:
                part = kind.parse(lines.text)
            except ImportProblem as reason:
                problem = problem or reason
            else:
                if part is not None and part.topology is not None:
                    return part.topology
    raise _no_topology(lines, problem)


def _lines(data: bytes) -> Lines:
    """The lines of an input without quotes, prefixes and markup. Raises ImportProblem for what is not text."""
    return unwrapped(lines_of(decode(data)))


def _no_topology(lines: Lines, problem: ImportProblem | None) -> ImportProblem:
    """problem: why a kind that holds a topology could not be read."""
    found = [section.kind for section in taken_apart(lines, all_kinds()).sections]
    kind = next((kind for kind in all_kinds() if kind in found), None)
    if kind is not None and not any(one.topology for one in found):
        return absent(
            "topology",
            f"this is {kind.title}, which does not contain how the GPUs are connected",
            "Read it with: gpucheck diagnose FILE",
        )
    expected = " or ".join(kind.title for kind in reversed(all_kinds()) if kind.topology)
    return problem or ImportProblem(
        "no topology in the input",
        line=1,
        why=f"it starts with {quoted(first_line(lines.text))}, which is not {expected}",
        do="Save the dump again and import that: nvidia-smi topo -m > topo.txt",
    )
