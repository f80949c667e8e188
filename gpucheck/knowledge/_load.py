"""Read one of this room's YAML tables into typed, frozen values: once per process, and only when asked for.

A damaged table is the only thing that can go wrong here, and it always names the file and the line.
"""

from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

T = TypeVar("T")

FOLDER = Path(__file__).parent
# The C parser is eight times faster; some builds of PyYAML lack it.
Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class KnowledgeError(Exception):
    """A table of this room cannot be read. The message names the file, the line and what is wrong."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where a block of facts was read. url is None for a measurement of published files."""

    what: str
    url: str | None = None


def line_of(node: Any, path: str) -> int:
    """The 1-based line of a msgspec error path (``$.items[3].name``) in a composed YAML document.

    The deepest part of the path that exists is used: a missing key is reported at its parent.
    """
    line: int = node.start_mark.line + 1
    for step in path.removeprefix("$").replace("[", ".[").split("."):
        if not step:
            continue
        child = None
        if step == "[...]":
            break  # msgspec names no key inside a mapping of free keys
        if step.startswith("[") and isinstance(node, yaml.SequenceNode):
            child = node.value[int(step.strip("[]"))]
        elif isinstance(node, yaml.MappingNode):
            child = next((value for key, value in node.value if key.value == step), None)
        if child is None:
            break
        node = child
        line = node.start_mark.line + 1
    return line


def parse(text: str, name: str, type_: type[T]) -> T:
    """YAML text as a value of ``type_``. Raises KnowledgeError naming ``name`` and the line."""
    try:
        raw = yaml.load(text, Loader=Loader)  # noqa: S506 - CSafeLoader is a safe loader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{name}:{mark.line + 1}" if mark else name
        problem = getattr(error, "problem", None) or "not YAML"
        raise KnowledgeError(f"{where}: {problem}. The data file is damaged: reinstall gpucheck") from None
    try:
        return msgspec.convert(raw, type_)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `")
        line = line_of(yaml.compose(text, Loader=Loader), path.rstrip("`") or "$")
        raise KnowledgeError(f"{name}:{line}: {problem}. The data file is damaged: reinstall gpucheck") from None


_parsed: dict[str, Any] = {}


def table(name: str, type_: type[T]) -> T:
    """The table ``name`` (``gpus.yml``) of this folder, parsed once per process. Raises KnowledgeError."""
    if name not in _parsed:
        _parsed[name] = _read(FOLDER / name, type_)
    value: T = _parsed[name]
    return value


def _read(path: Path, type_: type[T]) -> T:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise KnowledgeError(f"{path}: {error}. The data file is damaged or missing: reinstall gpucheck") from None
    return parse(text, str(path), type_)
