"""YAML of unknown origin: what it may hold is decided from its events, before anything is composed of them.

The C parser composes recursively, so a deep document ends the process; aliases let a few hundred bytes stand for a
thousand million values. Neither is in any file that a person writes for gpucheck.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec
import yaml

from gpucheck.foreign import bounded

T = TypeVar("T")

MOST_DEPTH = 32
MOST_NODES = 500_000
# Each is compared with all before it.
MOST_DIRECTIVES = 8
NO_BLOCK = "this must be 'key: value' lines"
STRING_TAG = "tag:yaml.org,2002:str"
# The C parser is eight times faster; some builds of PyYAML lack it.
Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class DocumentProblem(ValueError):
    """Text that is not a YAML document, or a rejected one. line: counted from 1, None if unknown."""

    def __init__(self, what: str, line: int | None = None) -> None:
        super().__init__(bounded(what))
        self.line = line


def compose(text: str, most_nodes: int = MOST_NODES) -> Any:
    return _guarded(lambda: yaml.compose(text, Loader=Loader), text, most_nodes)


def load(text: str, most_nodes: int = MOST_NODES) -> Any:
    return _guarded(lambda: _load(text), text, most_nodes)


def parse(text: str, name: str, type_: type[T], *, trusted: bool = False) -> T:
    """Return the document as a value of a type. trusted: a file of gpucheck, which is not searched for attacks.

    Raises DocumentProblem, whose text begins with the name, and the line where one is known.
    """
    try:
        return msgspec.convert(_load(text) if trusted else load(text), type_)
    except msgspec.ValidationError as error:
        what, steps = words_of(error)
        raise located(what, name, line_of(yaml.compose(text, Loader=Loader), steps), steps) from None
    except yaml.YAMLError as error:
        problem = _not_yaml(error)
    except DocumentProblem as found:
        problem = found
    raise located(str(problem), name, problem.line)


def located(what: str, name: str, line: int | None, steps: Iterable[str | int] = ()) -> DocumentProblem:
    """Return the problem as one line: ``name:3: key: what``."""
    place = f"{name}:{line}" if line else name
    return DocumentProblem(": ".join(filter(None, (place, path_of(steps), what))), line)


def words_of(error: msgspec.ValidationError) -> tuple[str, list[str | int]]:
    """Return msgspec's message with the words of YAML (its objects are Python's), and the steps to its place."""
    what, _, path = str(error).partition(" - at `")
    what = re.sub(r"Object missing required field `([^`]*)`", r"required key \1 is missing", what)
    what = re.sub(r"Object contains unknown field `([^`]*)`", r"no such key: \1", what)
    what = re.sub(r"Expected `object`.*", NO_BLOCK, what)
    # Inside a block of free keys msgspec names no key: [...].
    steps = re.findall(r"\.([^.\[`]+)|\[(\d+|\.\.\.)\]", path)
    return what, [key or (int(index) if index.isdigit() else index) for key, index in steps]


def path_of(steps: Iterable[str | int]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) or step == "..." else f".{step}" for step in steps).lstrip(".")


def _load(text: str) -> Any:
    return yaml.load(text, Loader=Loader)  # noqa: S506 - CSafeLoader is a safe loader


def _guarded(work: Callable[[], Any], text: str, most_nodes: int) -> Any:
    try:
        _refuse(text, most_nodes)
        return work()
    except yaml.YAMLError as error:
        raise _not_yaml(error) from None
    except DocumentProblem:
        raise
    except (ValueError, LookupError, AttributeError, OverflowError) as error:
        # A date of month 13, a number of 5000 digits: PyYAML converts them unchecked.
        raise DocumentProblem(f"a value cannot be read: {' '.join(str(error).split())[:80]}") from None


def _not_yaml(error: yaml.YAMLError) -> DocumentProblem:
    mark = getattr(error, "problem_mark", None)
    what = getattr(error, "problem", None) or getattr(error, "reason", None) or "unreadable"
    return DocumentProblem(f"not YAML: {' '.join(str(what).split())}", mark.line + 1 if mark else None)


def _refuse(text: str, most_nodes: int) -> None:
    """Raises DocumentProblem for aliases, tags, too deep nesting and too many values, and YAMLError."""
    if text.count("\n%") > MOST_DIRECTIVES:
        raise DocumentProblem(f"more than {MOST_DIRECTIVES} lines begin with %")
    depth = nodes = 0
    for event in yaml.parse(text, Loader=Loader):
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.NodeEvent):
            nodes += 1
            depth += isinstance(event, yaml.CollectionStartEvent)
            what = _refused(event, depth, nodes, most_nodes)
            if what:
                raise DocumentProblem(what, event.start_mark.line + 1 if event.start_mark else None)


def _refused(event: Any, depth: int, nodes: int, most_nodes: int) -> str | None:
    if event.anchor is not None:
        return "anchors (&name) and aliases (*name) are not accepted: write the value out"
    if getattr(event, "tag", None) not in (None, "!", STRING_TAG):
        return "tags (!name) are not accepted: write the plain value"
    if depth > MOST_DEPTH:
        return f"nested more than {MOST_DEPTH} deep"
    return f"more than {most_nodes} values" if nodes > most_nodes else None


def line_of(node: Any, steps: Iterable[str | int]) -> int:
    """The 1-based line of a value in a composed document: of its key, or of its parent if it is not there."""
    line: int = node.start_mark.line + 1 if node else 1
    for step in steps:
        if isinstance(step, int) and isinstance(node, yaml.SequenceNode):
            start = node = node.value[step]
        elif isinstance(node, yaml.MappingNode):
            start, node = next(((key, value) for key, value in node.value if key.value == step), (None, None))
        else:
            break
        if node is None:
            break
        line = start.start_mark.line + 1
    return line
