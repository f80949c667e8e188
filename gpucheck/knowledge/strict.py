"""Typed values out of a YAML document, each mistake named with its line.

The document is composed, not loaded: every scalar stays as it was written, and every value knows where it stands.
``null``, ``~`` and the word ``unknown`` all mean "unknown" and are read as None.
"""

import difflib
import math
import re
from collections.abc import Callable, Iterable
from typing import Any

import yaml

from gpucheck.foreign import bounded, text_of
from gpucheck.foreign.documents import DocumentProblem, compose
from gpucheck.printable import excerpt

UNKNOWN = {"", "~", "null", "unknown", "n/a", "?"}
NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?\Z")
WITH_UNIT = re.compile(r"[-+]?\d[\d.]*\s*([A-Za-z%/]+)\Z")
TRUE, FALSE = {"true", "yes", "on"}, {"false", "no", "off"}
LARGEST, SMALLEST = 1e12, 1e-9
# Seven matrices of 64 GPUs have 28,672 cells.
MOST_NODES = 100_000
QUOTE = 40


class InputProblem(ValueError):
    """Input that cannot be understood. As text it is one line: where, what is wrong, what to do.

    line: in the document, None where the whole of it is meant. path: keys from the top. what: the rest of the text.
    """

    def __init__(self, what: str, line: int | None = None, path: str = "") -> None:
        self.what, self.line, self.path = what, line, path = bounded(what), line, bounded(path)
        where = ": ".join(filter(None, (f"line {line}" if line else "", self.path)))
        super().__init__(f"{where}: {self.what}" if where else self.what)

    def inside(self, name: str) -> str:
        """The same as one line about a file: ``name:3: key: what``."""
        return ": ".join(filter(None, (f"{name}:{self.line}" if self.line else name, self.path, self.what)))


class EmptyDocument(InputProblem):
    """There is nothing in it but comments."""


class Value:
    """One value of the document. path: its keys from the top, as messages name it."""

    def __init__(self, node: Any, path: str = "") -> None:
        self.node = node
        self.path = path

    def problem(self, what: str) -> InputProblem:
        return InputProblem(what, self.line, self.path)

    @property
    def line(self) -> int:
        """Where it stands, counted from 1."""
        return int(self.node.start_mark.line) + 1

    @property
    def is_known(self) -> bool:
        """False for null and for the word unknown."""
        return not (isinstance(self.node, yaml.ScalarNode) and self.node.value.strip().lower() in UNKNOWN)

    @property
    def is_list(self) -> bool:
        return isinstance(self.node, yaml.SequenceNode)

    @property
    def is_mapping(self) -> bool:
        return isinstance(self.node, yaml.MappingNode)

    def text(self) -> str:
        """The scalar as it was written."""
        if not isinstance(self.node, yaml.ScalarNode):
            raise self.problem("must be a single value, not a list or a block")
        return str(self.node.value)

    def items(self, most: int) -> list["Value"]:
        """The entries of a list of at most so many."""
        if not self.is_list:
            raise self.problem("must be a list")
        if len(self.node.value) > most:
            raise self.problem(f"has {len(self.node.value)} entries, more than the {most} that are possible here")
        return [Value(node, f"{self.path}[{i}]") for i, node in enumerate(self.node.value)]

    def pairs(self, most: int = 256) -> list[tuple[str, "Value"]]:
        """Keys and values of a block, in order. A duplicate key is rejected."""
        if not self.is_mapping:
            raise self.problem("this must be 'key: value' lines")
        if len(self.node.value) > most:
            raise self.problem(f"has {len(self.node.value)} keys, more than the {most} that are possible here")
        found: dict[str, Value] = {}
        for key, node in self.node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise Value(key, self.path).problem("a key must be one word")
            name = _shown(str(key.value))
            if name in found:
                raise Value(key, _below(self.path, name)).problem("stated twice; keep one")
            found[name] = Value(node, _below(self.path, name))
        return list(found.items())

    def fields(self, readers: dict[str, Callable[["Value"], Any]]) -> dict[str, Any]:
        """The block's known keys, read; None where the value is unknown. An unknown key is rejected."""
        found = {}
        for name, value in self.pairs():
            value.must_be_key(name, readers)
            if value.is_known:
                found[name] = readers[name](value)
        return found

    def must_be_key(self, name: str, known: Iterable[str]) -> None:
        """Raise InputProblem for an unknown key, which would be ignored."""
        known = list(known)
        if name not in known:
            hint = did_you_mean(name, known)
            every = f" Known here: {', '.join(known)}" if hint.startswith("Did you mean") else ""
            raise self.problem(f"no such key. {hint}{every}")

    def number(self) -> float:
        """A finite number, not below zero."""
        text = self.text().strip().replace("_", "")
        if not NUMBER.match(text):
            raise self.problem(self._no_number(text))
        number = float(text)
        if not math.isfinite(number) or number > LARGEST or 0 < number < SMALLEST:
            raise self.problem(f"{_shown(text)} is out of any range")
        if number < 0:
            raise self.problem(f"{_shown(text)} is negative, which no measurement can be. Write null for not measured")
        return number

    def _no_number(self, text: str) -> str:
        unit = WITH_UNIT.match(text)
        if unit and unit[1].lower().startswith("gi"):
            return f"{_shown(text)} is in GiB. Write the plain number in GB/s (10**9 bytes/s): GiB/s x 1.0737"
        if unit:
            return f"{_shown(text)} has a unit. Write the plain number in the unit that the key names"
        if text.lower().lstrip("+-.") in ("nan", "inf", "infinity"):
            return f"{_shown(text)} is not a measurement. Write null for not measured"
        return f"{_shown(text)} is not a number. Write null for not measured"

    def integer(self, low: int, high: int) -> int:
        """A whole number between the two; hexadecimal (0x1d) is accepted."""
        text = self.text().strip()
        try:
            number = int(text, 0) if not re.fullmatch(r"0\d+", text) else int(text)
        except ValueError:
            raise self.problem(f"{_shown(text)} is not a whole number") from None
        if not low <= number <= high:
            raise self.problem(f"{_shown(text)} is not between {low} and {high}")
        return number

    def flag(self) -> bool:
        """True or false, as YAML spells them."""
        word = self.text().strip().lower()
        if word in TRUE or word in FALSE:
            return word in TRUE
        raise self.problem(f"{_shown(word)} is neither true nor false. Write unknown where it was not looked at")

    def word(self, *known: str) -> str:
        word = self.text().strip()
        if word.lower() in known:
            return word.lower()
        raise self.problem(f"{_shown(word)} is not possible. {did_you_mean(word.lower(), known)}")


def document(data: bytes | str, *, shape: str, example: str) -> Value:
    """The top of a YAML (or JSON) document. Raises InputProblem with the line for any other input.

    shape: what such documents look like. example: what to write into an empty one.
    """
    try:
        text = text_of(data) if isinstance(data, bytes) else data
    except UnicodeDecodeError as error:
        raise InputProblem(f"byte {error.start}: not UTF-8 text. Save the file as UTF-8") from None
    try:
        node = compose(text, MOST_NODES)
    except DocumentProblem as problem:
        raise InputProblem(f"{problem}. {shape}: write 'key: value' lines", problem.line) from None
    if node is None:
        raise EmptyDocument(f"there is nothing in it. {example}", 1)
    return Value(node)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The nearest known word, or all of them."""
    known = list(known)
    if "gib" in word.lower():
        return "Bandwidth is in GB/s (10**9 bytes/s) here: multiply GiB/s by 1.0737"
    near = difflib.get_close_matches(word[:80], known, n=1, cutoff=0.5)
    return f"Did you mean {near[0]}?" if near else f"Known here: {', '.join(known)}"


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _shown(text: str) -> str:
    return excerpt(text, QUOTE)
