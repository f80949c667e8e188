"""YAML (or JSON) that a person writes, read by its type: mistakes name file, line, key and what is valid.

Scalars stay as they were written until their type is known: 13.10 is a version in one place and a number in another.
"""

import math
import re
from collections.abc import Callable, Iterable
from functools import cache
from types import MappingProxyType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec
import yaml

from gpucheck.foreign import text_of
from gpucheck.foreign.documents import NO_BLOCK, DocumentProblem, compose, line_of, located, words_of
from gpucheck.printable import excerpt, meant

T = TypeVar("T")
Hooks = dict[str, Callable[[Any], Any]]

UNKNOWN = {"", "~", "null", "unknown", "n/a", "?"}
NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?\Z")
WITH_UNIT = re.compile(r"[-+]?\d[\d.]*\s*([A-Za-z%/]+)\Z")
TRUE, FALSE = {"true", "yes", "on"}, {"false", "no", "off"}
LARGEST, SMALLEST = 1e12, 1e-9
MOST_COUNT = 1 << 60
# Seven matrices of 64 GPUs have 28,672 cells.
MOST_NODES = 100_000
MOST_KEYS, MOST_ENTRIES = 256, 1 << 14
MOST_KEY, QUOTE = 100, 40


class Misplaced(ValueError):
    """A mistake below the value that a hook was given. step: its key or index there."""

    def __init__(self, step: str | int, what: str) -> None:
        super().__init__(what)
        self.step = step


class Written:
    """A document. Raises DocumentProblem, whose text begins with the name and the line, for any other input.

    Hooks are by place, such as ``host.acs[].control`` or ``repositories.*.url``, or by the name of a field (``gpu``;
    ``pairs[]``: each of its list). They get a scalar as text, a block or a list, and return what stands for it. They
    raise ValueError or Misplaced. unknown: whether fields that are null or unknown are as if they were not there.
    """

    def __init__(self, data: bytes | str, name: str, *, unknown: bool = False) -> None:
        self.name, self.unknown, self.node = name, unknown, None
        self.hooks: dict[type, Hooks] = {}
        try:
            self.node = compose(text_of(data) if isinstance(data, bytes) else data, MOST_NODES)
        except UnicodeDecodeError as error:
            raise self.problem(f"byte {error.start}: not UTF-8 text. Save the file as UTF-8") from None
        except DocumentProblem as problem:
            raise located(str(problem), name, problem.line) from None

    def read(self, type_: type[T], texts: Hooks, blocks: Hooks, lists: Hooks, schema: str | None = None) -> T:
        """Return the document as a value of a struct. schema: what its key ``schema`` must be, if it is there."""
        self.hooks = {str: texts, dict: blocks, list: lists}
        tree = self._tree(self.node)
        if isinstance(tree, dict) and schema and (stated := tree.pop("schema", schema)) != schema:
            raise self.problem(f"{excerpt(str(stated), QUOTE)} is not {schema}, the only one known", "schema")
        try:
            return msgspec.convert(self._typed(tree, type_, (), ""), type_)
        except msgspec.ValidationError as error:
            what, path = words_of(error)
            raise self.problem(what, *path) from None

    def line(self, *steps: str | int) -> int:
        """Where a value stands, counted from 1; the place of its parent if it is not there."""
        return line_of(self.node, steps)

    def problem(self, what: str, *steps: str | int) -> DocumentProblem:
        return located(what, self.name, self.line(*steps) if self.node else None, steps)

    def _tree(self, node: Any, *at: str | int) -> Any:
        """The document as text, lists and blocks. A duplicate key is rejected."""
        most = MOST_ENTRIES if isinstance(node, yaml.SequenceNode) else MOST_KEYS
        if not isinstance(node, yaml.ScalarNode) and len(node.value) > most:
            raise self.problem(f"has {len(node.value)} entries, more than the {most} that are possible here", *at)
        if isinstance(node, yaml.SequenceNode):
            return [self._tree(item, *at, index) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            return node.value.strip()
        found: dict[str, Any] = {}
        for key, inner in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise located("a key must be one word", self.name, key.start_mark.line + 1, at)
            name = excerpt(key.value, MOST_KEY)
            if name in found:
                raise located("stated twice; keep one", self.name, key.start_mark.line + 1, (*at, name))
            found[name] = self._tree(inner, *at, name)
        return found

    def _typed(self, given: Any, type_: Any, at: tuple[str | int, ...], where: str, field: str = "") -> Any:
        if (hooks := self.hooks.get(type(given))) is None:
            return given
        options = _options(type_)
        try:
            if hook := hooks.get(where) or hooks.get(field):
                given = hook(given)
            if isinstance(given, str):
                return _scalar(given, options)
            if isinstance(given, dict):
                return self._block(given, options, at, where)
            if not isinstance(given, list):
                return given
            inner, where, field = _inner(options, tuple), f"{where}[]", f"{field}[]"
            return [self._typed(item, inner, (*at, i), where, field) for i, item in enumerate(given)]
        except Misplaced as error:
            raise self.problem(str(error), *at, error.step) from None
        except DocumentProblem:
            raise
        except ValueError as error:
            raise self.problem(str(error), *at) from None

    def _block(self, given: dict[str, Any], options: Any, at: tuple[str | int, ...], where: str) -> dict[str, Any]:
        types = next((_fields(option) for option in options if _is_struct(option)), None)
        if types is None:
            inner = _inner(options, dict)
            return {
                key: self._typed(one, inner, (*at, key), f"{where}.*", f"{where}.{key}") for key, one in given.items()
            }
        for key in given:
            must_be_key(key, types)
        return {
            key: self._typed(one, types[key], (*at, key), f"{where}.{key}".lstrip("."), key)
            for key, one in given.items()
            if not (self.unknown and is_unknown(one))
        }


def _scalar(text: str, options: tuple[Any, ...]) -> Any:
    if words := [word for option in options if get_origin(option) is Literal for word in get_args(option)]:
        return choose(text, words)
    for kind, reader in ((bool, flag), (int, whole(0, MOST_COUNT)), (float, number), (str, str)):
        if kind in options:
            return reader(text)
    raise ValueError("must be a list" if any(get_origin(option) is tuple for option in options) else NO_BLOCK)


def _options(type_: Any) -> tuple[Any, ...]:
    """A type, or those of a union."""
    if get_origin(type_) is Annotated:
        type_ = get_args(type_)[0]
    return get_args(type_) if get_origin(type_) in (Union, UnionType) else (type_,)


def _inner(options: tuple[Any, ...], kind: type) -> Any:
    """The type of the values of a list (tuple) or of a block of free keys (dict). Raises ValueError without one."""
    for option in options:
        if get_origin(option) is kind:
            return get_args(option)[kind is dict]
    if any(_is_struct(option) or get_origin(option) is dict for option in options):
        raise ValueError(NO_BLOCK)
    is_list = any(get_origin(option) is tuple for option in options)
    raise ValueError("must be a list" if is_list else "must be a single value, not a list or a block")


def _is_struct(type_: Any) -> bool:
    return isinstance(type_, type) and issubclass(type_, msgspec.Struct)


@cache
def _fields(type_: type[msgspec.Struct]) -> MappingProxyType[str, Any]:
    return MappingProxyType({field.encode_name: field.type for field in msgspec.structs.fields(type_)})


# --- Values ----------------------------------------------------------------------------------------------------------


def is_unknown(given: Any) -> bool:
    return isinstance(given, str) and given.lower() in UNKNOWN


def known(found: dict[str, Any]) -> dict[str, Any]:
    """A block without what is unknown."""
    return {key: one for key, one in found.items() if not is_unknown(one)}


def number(text: str) -> float:
    """A finite number, not below zero. Raises ValueError, as all here."""
    text = text.replace("_", "")
    said = excerpt(text, QUOTE)
    if not NUMBER.match(text):
        raise ValueError(f"{said} {_no_number(text)}")
    found = float(text)
    if not math.isfinite(found) or found > LARGEST or 0 < found < SMALLEST:
        raise ValueError(f"{said} is out of any range")
    if found < 0:
        raise ValueError(f"{said} is negative, which no measurement can be. Write null for not measured")
    return found


def _no_number(text: str) -> str:
    unit = WITH_UNIT.match(text)
    if unit and unit[1].lower().startswith("gi"):
        return "is in GiB. Write the plain number in GB/s (10**9 bytes/s): GiB/s x 1.0737"
    if unit:
        return "has a unit. Write the plain number in the unit that the key names"
    measured = "measurement" if text.lower().lstrip("+-.") in ("nan", "inf", "infinity") else "number"
    return f"is not a {measured}. Write null for not measured"


def whole(low: int, high: int) -> Callable[[str], int]:
    """A whole number between the two; hexadecimal (0x1d) is accepted."""

    def read_whole(text: str) -> int:
        said = excerpt(text, QUOTE)
        try:
            found = int(text, 0) if not re.fullmatch(r"0\d+", text) else int(text)
        except ValueError:
            raise ValueError(f"{said} is not a whole number") from None
        if not low <= found <= high:
            raise ValueError(f"{said} is not between {low} and {high}")
        return found

    return read_whole


def flag(text: str) -> bool:
    """True or false, as YAML spells them."""
    if text.lower() in TRUE | FALSE:
        return text.lower() in TRUE
    raise ValueError(f"{excerpt(text, QUOTE)} is neither true nor false. Write unknown where it was not looked at")


def choose(text: str, known: Iterable[str]) -> str:
    """One of these words."""
    if text.lower() in known:
        return text.lower()
    raise ValueError(f"{excerpt(text, QUOTE)} is not possible. {did_you_mean(text.lower(), known)}")


def must_be_key(name: str, known: Iterable[str]) -> None:
    """Raise Misplaced for an unknown key, which would be ignored."""
    if name not in known:
        hint = did_you_mean(name, known)
        every = f" Known here: {', '.join(known)}" if hint.startswith("Did you mean") else ""
        raise Misplaced(name, f"no such key. {hint}{every}")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The nearest known word, or all of them."""
    if "gib" in word.lower():
        return "Bandwidth is in GB/s (10**9 bytes/s) here: multiply GiB/s by 1.0737"
    return meant(word, known, cutoff=0.5).strip() or f"Known here: {', '.join(filter(None, known))}"
