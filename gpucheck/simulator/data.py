"""The simulator's data files: where they are, and how they are read."""

from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

from gpucheck.foreign.documents import parse

HERE = Path(__file__).parent
Shape = TypeVar("Shape")


def unknown(what: str, name: str, names: tuple[str, ...]) -> str:
    """The message for a name that nothing has."""
    near = get_close_matches(name, names, n=1)
    guess = f" Did you mean {near[0]}?" if near else ""
    return f"no {what} is called {name!r}.{guess} There are: {', '.join(names)}"


def read(path: Path, shape: type[Shape]) -> Shape:
    """A YAML file of ours as ``shape``. Raises ValueError naming the file, the line and what is wrong with it."""
    return parse(path.read_text(encoding="utf-8"), path.name, shape, trusted=True)
