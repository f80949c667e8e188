"""Read the data files of the simulator."""

from pathlib import Path
from typing import TypeVar

from gpucheck.foreign.documents import parse
from gpucheck.printable import meant

HERE = Path(__file__).parent
Shape = TypeVar("Shape")


def unknown(what: str, name: str, names: tuple[str, ...]) -> str:
    return f"unknown {what} {name!r}.{meant(name, names)} Available: {', '.join(names)}"


def read(path: Path, shape: type[Shape]) -> Shape:
    """Return a YAML file of the simulator as ``shape``. Raises ValueError with file, line and reason."""
    return parse(path.read_text(encoding="utf-8"), path.name, shape, trusted=True)
