"""Measurements of other tools: which tool it was is recognised, as with topologies."""

from importlib import import_module
from pkgutil import iter_modules

from gpucheck import imports
from gpucheck.imports._kind import MeasuredKind
from gpucheck.imports._problem import ImportProblem
from gpucheck.imports._text import decode, plain, quoted
from gpucheck.model.observations import Import


def measured_kinds() -> tuple[MeasuredKind, ...]:
    """Every kind of measurements in this room, ordered by name."""
    names = (m.name for m in iter_modules(imports.__path__) if not m.name.startswith("_"))
    kinds = (import_module(f"{imports.__name__}.{name}").KIND for name in names)
    return tuple(sorted((kind for kind in kinds if isinstance(kind, MeasuredKind)), key=lambda kind: kind.name))


def read_measured(data: str | bytes) -> Import:
    """Recognise which tool printed this and read it. Raises ImportProblem, and nothing else, for any input."""
    text = plain(decode(data if isinstance(data, bytes) else data.encode("utf-8", errors="replace")))
    kinds = measured_kinds()
    for kind in kinds:
        if kind.recognise(text):
            return kind.parse(text)
    wanted = " or ".join(kind.title for kind in kinds)
    first = next((line for line in text.splitlines() if line.strip()), "")
    raise ImportProblem(
        "no measurements in the input",
        where="line 1",
        why=f"it starts with {quoted(first)}, which is not {wanted}",
        do="Save the whole output of the tool again, and import that",
    )
