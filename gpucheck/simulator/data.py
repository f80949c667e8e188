"""Read the data files of the simulator."""

from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

from gpucheck.foreign.documents import parse

HERE = Path(__file__).parent
Shape = TypeVar("Shape")


def unknown(what: str, name: str, names: tuple[str, ...]) -> str:
    near = get_close_matches(name, names, n=1)
    guess = f" Did you mean {near[0]}?" if near else ""
    return f"unknown {what} {name!r}.{guess} Available: {', '.join(names)}"


def read(path: Path, shape: type[Shape]) -> Shape:
    """Return a YAML file of the simulator as ``shape``. Raises ValueError with file, line and reason."""
    return parse(path.read_text(encoding="utf-8"), path.name, shape, trusted=True)
