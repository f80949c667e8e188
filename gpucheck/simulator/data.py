"""Read the data files of the simulator, and profiles in a file of the user."""

from pathlib import Path
from typing import TypeVar

from gpucheck.foreign import read_text
from gpucheck.printable import meant

HERE = Path(__file__).parent
MOST_BYTES = 16 << 20  # of a profile
Shape = TypeVar("Shape")


def unknown(what: str, name: str, names: tuple[str, ...]) -> str:
    return f"unknown {what} {name!r}.{meant(name, names)} Available: {', '.join(names)}"


def read(path: Path, shape: type[Shape]) -> Shape:
    """Return a YAML file of the simulator as ``shape``. Raises ValueError with file, line and reason."""
    from gpucheck.foreign.documents import parse  # a cached machine needs no YAML parser

    return parse(path.read_text(encoding="utf-8"), path.name, shape, trusted=True)


def is_file(name: str) -> bool:
    """Whether the name of a profile is a path: names from ``profiles/`` have neither directory nor suffix."""
    return "/" in name or name.endswith((".yml", ".yaml"))


def profile_text(name: str) -> str:
    """Return the text of the file. Raises UnreadableInput."""
    return read_text(name, MOST_BYTES, "Give a profile like those of gpucheck/simulator/profiles")
