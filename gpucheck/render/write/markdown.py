"""A document as GitHub-flavored Markdown: a host's text has no meaning in it, and every table has a header."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from gpucheck.printable import folded
from gpucheck.render.blocks import (
    Block,
    Cell,
    Document,
    Drawing,
    Findings,
    Folded,
    Lines,
    Matrices,
    Matrix,
    Properties,
    Section,
    SideBySide,
    Table,
    cells,
)
from gpucheck.render.findings import TROUBLE, Group, deciding
from gpucheck.render.words import counts_line

Change = Callable[[str], str]
# What Markdown, or HTML inside it, would read as more than text.
SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&!@$])")
# Paths of the kernel, which contain no user-defined name; a pattern in them does not end a path.
KERNEL_PATH = re.compile(r"(/(?:sys|proc)/[\w./*:-]*)")
BOLD = ("fail", "warn", "unknown", "off", "low")
NOTHING = "\u2013"


def write(document: Document, change: Change | None = None) -> str:
    """Return the page. change: redaction of every text that may name a host or a user."""
    page = Markdown(change)
    parts = [part for part in page.document(document) if part]
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


class Markdown:
    """Parts of one page. change: what is done to every text of a host, such as redaction."""

    def __init__(self, change: Change | None = None) -> None:
        self.change = change

    def document(self, document: Document) -> Iterator[list[str]]:
        """Yield the lines of each part."""
        host = f", {self.text(document.host)}" if document.host else ""
        yield [f"## {document.verdict.name}: gpucheck {document.command}{host}"]
        if document.simulated is not None:
            yield [f"**SIMULATED** {self.text(document.simulated)}. {document.unread}"]
        if document.recorded:
            yield [self.text(f"{document.recorded[0].upper()}{document.recorded[1:]}.")]
        yield from ([self.text(line)] for line in document.lines)
        begin = f"{document.started}: " if document.started else ""
        unproven = f" Not proven: {'; '.join(document.unproven)}." if document.unproven else ""
        yield [self.text(f"{begin}{document.summary or counts_line(document.counts)}.{unproven}")]
        yield from self.blocks([*([document.findings] if document.findings else []), *document.body, *document.foot])

    def blocks(self, blocks: Iterable[Block]) -> Iterator[list[str]]:
        """Yield the lines of each part of the blocks."""
        for block in blocks:
            match block:
                case Section():
                    yield [f"### {self.text(block.title)}" + (f" ({self.text(block.about)})" if block.about else "")]
                    yield [f"- {self.text(line)}" for line in block.lines]
                    yield from self.blocks(block.blocks)
                case SideBySide():
                    for part in block.parts:
                        yield from self.blocks(part)
                case Matrices():
                    for one in block.matrices:
                        yield [f"**{self.text(one.title)}**"]
                        yield list(self._matrix(one))
                case Folded():
                    yield from self.blocks([block.block])
                case Findings():
                    for group in (one for one in block.groups if not _is_quiet(one)):
                        yield from self._group(group)
                    yield [f"- {self._headline(group)}" for group in block.groups if _is_quiet(group)]
                case Table() | Lines() | Properties():
                    yield from self._leaf(block)
                case Drawing():
                    pass

    def _leaf(self, block: Table | Lines | Properties) -> Iterator[list[str]]:
        match block:
            case Table():
                yield [f"**{self.text(block.title)}**"] if block.title else []
                yield list(self._table(block))
                yield [self.text(block.about)] if block.about else []
            case Lines():
                yield [self.text(f"{block.title}:")] if block.title else []
                yield [f"- {self.cell(line)}" for line in cells(block.lines)]
            case Properties():
                yield list(table(("part", "value"), ([*map(self.text, pair)] for pair in block.pairs)))

    def _matrix(self, block: Matrix) -> Iterator[str]:
        rows = []
        for i, (label, row) in enumerate(zip(block.labels, block.cells, strict=True)):
            texts = [NOTHING if cell is None else f"{cell:.1f}" for cell in row]
            rows.append([label, *(f"**{one}**" if (i, j) in block.low else one for j, one in enumerate(texts))])
        yield from table(("", *block.labels), rows, range(1, len(block.labels) + 1), keep=True)

    def _table(self, block: Table) -> Iterator[str]:
        header = [self.text(f"{column.title} {column.unit}".rstrip()) for column in block.columns]
        rows = ([*map(self.cell, cells(row)), *([""] * (len(header) - len(row)))] for row in block.rows)
        yield from table(header, rows, [i for i, column in enumerate(block.columns) if column.number])

    def _headline(self, group: Group) -> str:
        return f"**{group.verdict.name}** {self.text(', '.join(group.checks))}: {self.text(group.headline)}"

    def _group(self, group: Group) -> Iterator[list[str]]:
        yield [self._headline(group)]
        lines = [f"why: {self.text(group.why)}"] if group.why else []
        for step in group.steps:
            words = self.code(step.command, in_table=False) if step.command else self.text(step.text or "")
            lines.append(f"fix: {words}")
        lines += [f"cause: {self.text(group.cause)}"] if group.cause else []
        lines += [f"or: {self.text(one.cause)}: {self.text(one.would_show)}" for one in group.others]
        command = deciding(group)
        lines += [f"confirm: {self.code(command, in_table=False)}"] if command else []
        yield [f"- {line}" for line in lines]

    def cell(self, cell: Cell) -> str:
        """Return the words of a cell; bold where something is wrong."""
        if cell.command:
            return self.code(cell.text) if cell.text else ""
        text = self.text(f"{cell.text} ({cell.detail})" if cell.text and cell.detail else cell.text or cell.detail)
        bold = f"**{text}**" if text and cell.tone in BOLD else text
        return f"**{cell.verdict.name}** {bold}".rstrip() if cell.verdict else bold

    def text(self, text: str) -> str:
        """Return the text on one line, nothing in it of a meaning to Markdown."""
        return SPECIAL.sub(r"\\\1", folded(self._changed(text)))

    def code(self, command: str, *, in_table: bool = True) -> str:
        """Return the command as code. in_table: a pipe in code must be escaped there, and may not be elsewhere."""
        shown = folded(self._changed(command)).strip()
        # A code span that holds backticks is fenced by more of them than it holds in a row.
        fence = "`" * (1 + max(map(len, re.findall("`+", shown)), default=0))
        inner = f" {shown} " if shown.startswith("`") or shown.endswith("`") else shown
        return f"{fence}{inner}{fence}".replace("|", "\\|" if in_table else "|")

    def _changed(self, text: str) -> str:
        """The text after redaction. Split at paths of the kernel: they are few, and a name is never part of one."""
        if (change := self.change) is None:
            return text
        return "".join(part if i % 2 else change(part) for i, part in enumerate(KERNEL_PATH.split(text)))


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = (), *, keep: bool = False
) -> Iterator[str]:
    """Yield the lines of a table; cells are Markdown already. right: columns of numbers.

    Columns that no row has anything in are left out, but for the first, or all are kept.
    """
    found = [list(row) for row in rows]
    kept = [i for i in range(len(header)) if keep or not i or any(row[i] for row in found)]
    yield _row([header[i] for i in kept])
    yield _row(["---:" if i in right else "---" for i in kept])
    yield from (_row([row[i] for i in kept]) for row in found)


def _is_quiet(group: Group) -> bool:
    return group.verdict not in TROUBLE and not group.cause


def _row(row: Iterable[str]) -> str:
    return f"| {' | '.join(row)} |"
