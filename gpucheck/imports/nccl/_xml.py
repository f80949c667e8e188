"""XML of unknown origin -> a small tree, in bounded time and memory.

expat itself, not defusedxml: that package's last release is of 2021, and it bounds neither depth nor the number of
elements.
No document type is accepted, so there are no entities to expand and nothing outside the text is ever opened.
"""

from dataclasses import dataclass, field
from xml.parsers import expat

from gpucheck.imports._problem import ImportProblem
from gpucheck.imports._text import quoted

MOST_ELEMENTS = 50_000
"""The largest multi-node dump has a few thousand."""
MOST_DEPTH = 64
MOST_ATTRIBUTE = 4096
"""Characters; the longest there are is the CPU mask, 9 characters for each 32 CPUs."""


@dataclass
class Element:
    """One element: its attributes, its children, and the line that it starts on (1-based)."""

    tag: str
    attributes: dict[str, str]
    line: int
    children: list["Element"] = field(default_factory=list)

    def get(self, name: str) -> str:
        """An attribute without the blanks around it, empty where it is absent."""
        return self.attributes.get(name, "").strip()

    def all(self, tag: str) -> list["Element"]:
        """The direct children of that name."""
        return [child for child in self.children if child.tag == tag]


def parse(text: str, title: str, first_line: int = 1) -> Element:
    """The root element. title: how a message names the dump. Raises ImportProblem for everything else.

    first_line: where `text` begins in the input. Character data is left out: what comes after the root is not read.
    """
    reader = _Reader(title, first_line)
    try:
        reader.parser.Parse(text.encode("utf-8", errors="replace"), True)
    except expat.ExpatError as error:
        if reader.root is None or reader.open:
            raise reader.problem(expat.ErrorString(error.code), error.lineno) from None
    if reader.root is None:
        raise reader.problem("no element found", 1)
    return reader.root


class _Reader:
    def __init__(self, title: str, first_line: int) -> None:
        self.title, self.first_line = title, first_line
        self.root: Element | None = None
        self.open: list[Element] = []
        self.count = 0
        self.parser = expat.ParserCreate("utf-8")
        self.parser.StartDoctypeDeclHandler = self._doctype
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end

    def problem(self, why: str, line: int) -> ImportProblem:
        return ImportProblem(
            f"{self.title} cannot be read",
            where=f"line {line + self.first_line - 1}",
            why=f"the XML is broken or cut short there: {why}",
            do="Dump it again: NCCL_TOPO_DUMP_FILE=topo.xml, then any NCCL program",
        )

    def _refuse(self, why: str) -> None:
        raise ImportProblem(
            f"{self.title} is rejected",
            where=f"line {self.parser.CurrentLineNumber + self.first_line - 1}",
            why=why,
            do="Import the file as NCCL wrote it: NCCL_TOPO_DUMP_FILE=topo.xml",
        )

    def _doctype(self, name: str, *_: object) -> None:
        self._refuse(f"it declares a document type, {quoted(name)}; NCCL writes none, and entities are never expanded")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self.count += 1
        if self.count > MOST_ELEMENTS:
            self._refuse(f"it has more than {MOST_ELEMENTS} elements; a topology has some thousand at most")
        if len(self.open) >= MOST_DEPTH:
            self._refuse(f"elements are nested more than {MOST_DEPTH} deep; PCI bridges are not")
        if any(len(value) > MOST_ATTRIBUTE for value in attributes.values()):
            self._refuse(f"an attribute of {quoted(tag)} is longer than {MOST_ATTRIBUTE} characters")
        element = Element(tag, attributes, self.parser.CurrentLineNumber + self.first_line - 1)
        if self.open:
            self.open[-1].children.append(element)
        else:
            self.root = element
        self.open.append(element)

    def _end(self, _: str) -> None:
        self.open.pop()
