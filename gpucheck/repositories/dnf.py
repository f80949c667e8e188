"""Read the index of a dnf repository: repomd.xml, which is what may be signed, and the primary list that it names.

Sources: createrepo_c's output, and the element names of libsolv's and dnf's readers of it.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import NamedTuple
from xml.parsers import expat

from gpucheck.repositories import index

DEEPEST = 32
MOST_TOKEN = 20 << 20
_OPERATORS: Mapping[str, index.Operator] = {"LT": "<", "LE": "<=", "EQ": "=", "GE": ">=", "GT": ">"}
# Not packages: what rpm itself provides, shared objects, files.
_OF_RPM = ("rpmlib(", "/", "config(")


class Primary(NamedTuple):
    """The package list as repomd.xml names it. made: ISO 8601 time, empty if it states none."""

    location: str
    checksum: index.Checksum
    made: str


class _Xml:
    """A pass over an XML document of foreign origin: no entities, no document type, a bounded depth."""

    def __init__(self) -> None:
        self.parser = expat.ParserCreate("UTF-8", " ")
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters
        self.parser.StartDoctypeDeclHandler = self._doctype
        self.depth, self.pieces = 0, []  # type: int, list[str]
        self.length = self.silent = 0
        self.bounds = index.Bounds()

    def run(self, content: Iterable[bytes], what: str) -> None:
        try:
            for piece in content:
                self.silent += len(piece)
                self.parser.Parse(piece, False)
                # Expat before 2.6 reads an unfinished token again with every piece.
                if self.silent > MOST_TOKEN:
                    text = f"{what} has a tag or comment of more than {MOST_TOKEN >> 20} MiB"
                    raise index.UnusableIndex(text, index.DISTRUST)
            self.parser.Parse(b"", True)
        except expat.ExpatError as error:
            cut = error.code in (expat.errors.codes[expat.errors.XML_ERROR_NO_ELEMENTS], 3, 5)
            why = "cut off" if cut else f"not XML: line {error.lineno}: {expat.ErrorString(error.code)}"
            do = "Fetch it again; if it stays so, synchronize the mirror again"
            raise index.UnusableIndex(f"{what} is {why}", do) from None

    def _doctype(self, *_: object) -> None:
        raise index.UnusableIndex("the index declares a document type, which no index needs", index.DISTRUST)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self.depth += 1
        if self.depth > DEEPEST:
            raise index.UnusableIndex(f"the index nests deeper than {DEEPEST} elements", index.DISTRUST)
        self.bounds.count("elements")
        self._no_text()
        self.start(name.rpartition(" ")[2], attributes)

    def _end(self, name: str) -> None:
        self.depth -= 1
        self.end(name.rpartition(" ")[2], "".join(self.pieces).strip())
        self._no_text()

    def _no_text(self) -> None:
        self.pieces = []
        self.length = self.silent = 0

    def _characters(self, text: str) -> None:
        self.pieces.append(text)
        self.length += len(text)
        self.silent = 0
        if self.length > index.MOST_TEXT:
            raise index.UnusableIndex(f"the index has a text of more than {index.MOST_TEXT >> 20} MiB", index.DISTRUST)

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Take the start of an element."""

    def end(self, name: str, text: str) -> None:
        """Take the end of an element with its own text."""


class _Repomd(_Xml):
    def __init__(self) -> None:
        super().__init__()
        self.kind, self.checksum_kind = "", ""
        self.rows: dict[str, dict[str, str]] = {}
        self.stated: set[str] = set()

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "data":
            self.kind = attributes.get("type", "")
            self._once(self.kind)
        elif name == "checksum":
            self._once(f"{self.kind} checksum")
            self.checksum_kind = attributes.get("type", "")
        elif name == "location":
            self._once(f"{self.kind} location")
            self.rows.setdefault(self.kind, {})["location"] = attributes.get("href", "")

    def _once(self, name: str) -> None:
        if name in self.stated and name.startswith("primary"):
            raise index.UnusableIndex(f"repomd.xml states {name} twice", index.DISTRUST)
        self.stated.add(name)

    def end(self, name: str, text: str) -> None:
        if name == "checksum" and self.checksum_kind in index.ALGORITHMS:
            self.rows.setdefault(self.kind, {})["checksum"] = text.lower()
            self.rows[self.kind]["algorithm"] = self.checksum_kind
        elif name == "timestamp":
            self.rows.setdefault(self.kind, {})["timestamp"] = text
        elif name == "data":
            self.kind = ""


def read_repomd(content: bytes) -> Primary:
    """Read repomd.xml. Raises UnusableIndex if it is damaged or names no primary list with a checksum."""
    document = _Repomd()
    document.run([content], "repomd.xml")
    row = document.rows.get("primary", {})
    if not row.get("location") or not row.get("checksum"):
        raise index.UnusableIndex(
            "repomd.xml names no primary list with a SHA-256 or SHA-512",
            "Make the mirror's index again with createrepo_c",
        )
    stamp = row.get("timestamp", "").partition(".")[0]
    # Bounded: a year that datetime does not know would raise.
    made = (
        datetime.fromtimestamp(int(stamp), timezone.utc).isoformat() if stamp.isdecimal() and len(stamp) <= 11 else ""
    )
    return Primary(row["location"], index.Checksum(row["algorithm"], row["checksum"]), made)


class _PrimaryList(_Xml):
    def __init__(self) -> None:
        super().__init__()
        self.packages: dict[str, list[index.Package]] = {}
        self.inside = False
        self.begin()

    def begin(self) -> None:
        self.name = self.arch = self.version = self.section = self.algorithm = self.digest = ""
        self.size = 0
        self.requires: list[tuple[index.Relation, ...]] = []
        self.provides: list[index.Relation] = []

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "package":
            # One in another one would leave open to which of them an element belongs.
            self._once(not self.inside, name)
            self.begin()
            self.inside = True
        elif name == "version":
            self._once(not self.version, name)
            self.version = _version(attributes)
        elif name == "size":
            self.size = index.number(attributes.get("package", ""))
        elif name == "checksum":
            self.algorithm = attributes.get("type", "")
        elif name in ("requires", "provides"):
            self.section = name
        elif name == "entry" and self.section:
            self._entry(attributes)

    def _entry(self, attributes: dict[str, str]) -> None:
        name = attributes.get("name", "")
        # Rich dependencies, "(kernel-64k-devel if kernel-64k-core)", depend on the host: dnf decides them there.
        if not name or name.startswith(("(", *_OF_RPM)) or ".so" in name:
            return
        operator = _OPERATORS.get(attributes.get("flags", ""), "")
        self.bounds.count("dependencies")
        relation = index.Relation(name, operator, _version(attributes) if operator else "")
        if self.section == "requires":
            self.requires.append((relation,))
        elif name != self.name or relation.version != self.version:
            self.provides.append(relation)

    def end(self, name: str, text: str) -> None:
        if name in ("requires", "provides"):
            self.section = ""
        elif name == "name":
            self._once(not self.name, name)
            self.name = text
        elif name == "arch":
            self._once(not self.arch, name)
            self.arch = text
        elif name == "checksum" and self.algorithm in index.ALGORITHMS:
            self._once(not self.digest, name)
            self.digest = text.lower()
        elif name == "package":
            self.inside = False
            if self.name and self.arch and self.version and self.arch != "src":
                self.bounds.count("packages")
                needs, provides = tuple(self.requires), tuple(self.provides)
                row = index.Package(self.name, self.version, self.arch, self.size, needs, provides, self.digest)
                self.packages.setdefault(self.name, []).append(row)

    def _once(self, first: bool, name: str) -> None:
        if not first:
            raise index.UnusableIndex(f"a package of the primary list states {name} twice", index.DISTRUST)


def read_primary(content: Iterable[bytes]) -> dict[str, tuple[index.Package, ...]]:
    """Read the primary list, which comes in pieces: name -> its versions.

    Raises UnusableIndex if it is damaged, holds no package, or more than any repository.
    """
    document = _PrimaryList()
    document.run(content, "the primary list")
    if not document.packages:
        raise index.UnusableIndex(
            "the primary list holds no package", "Make the mirror's index again with createrepo_c"
        )
    return {name: tuple(rows) for name, rows in document.packages.items()}


def _version(attributes: dict[str, str]) -> str:
    epoch, release = attributes.get("epoch") or "0", attributes.get("rel", "")
    upstream = attributes.get("ver", "") + (f"-{release}" if release else "")
    return upstream if epoch == "0" else f"{epoch}:{upstream}"
