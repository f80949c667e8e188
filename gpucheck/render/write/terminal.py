"""A document for a terminal: what is wrong first, tables in columns, matrices in colors, the verdict last."""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import click

from gpucheck.model import Verdict
from gpucheck.printable import indented
from gpucheck.render.blocks import (
    LOW_TEXT,
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
from gpucheck.render.findings import TROUBLE, Group, also
from gpucheck.render.words import counted_names, counts_line, plural

COLOR = {
    Verdict.PASS: "green",
    Verdict.WARN: "yellow",
    Verdict.FAIL: "red",
    Verdict.UNKNOWN: "magenta",
    Verdict.SKIP: "bright_black",
}
TONES = {
    "path-nv": "green", "path-pix": "cyan", "path-pxb": "cyan", "path-phb": "yellow", "path-node": "yellow",
    "path-sys": "red", "path-?": "magenta", "off": "red", "simulated": "cyan",
    **{verdict.value: color for verdict, color in COLOR.items()},
}  # fmt: skip
# Background and digits of a cell of a matrix; their luminance differs as the verdicts do.
HEAT: dict[Verdict, tuple[tuple[int, int, int], str]] = {
    Verdict.FAIL: ((110, 12, 8), "bright_white"),
    Verdict.WARN: ((187, 122, 0), "black"),
    Verdict.PASS: ((226, 245, 233), "black"),
}
# Printable in every locale; a page has its own signs.
SIGN = {Verdict.FAIL: "*", Verdict.WARN: "!"}
MEANING = {Verdict.FAIL: "the pair fails", Verdict.WARN: "the pair has a warning"}
LOW, NOTHING = "<", "-"
INDENT = " " * 8
LABEL = 10
COMMAND = "  "
# Lines of evidence of one fault; -v shows all.
EVIDENCE = 12


class Terminal:
    """verbose: all evidence, what each pass saw, and what is folded. width: columns; None for no limit."""

    def __init__(self, *, verbose: bool = False, width: int | None = None) -> None:
        self.verbose, self.width = verbose, width

    def document(self, document: Document) -> str:
        found = document.findings or Findings(())
        in_trouble = [one for one in found.groups if one.verdict in TROUBLE]
        others = [one for one in found.groups if one.verdict not in TROUBLE]
        # Without anything between them, they are one list.
        first = found._replace(groups=in_trouble) if document.body else found
        last = found._replace(groups=others if document.body else ())
        unproven = f" (not proven: {'; '.join(document.unproven)})" if document.unproven else ""
        mark = "" if document.simulated is None else simulated_mark()
        summary = document.summary or counts_line(document.counts)
        last_line = (verdict_word(document.verdict, 0) + unproven, summary, document.time, mark)
        return paragraphs(
            [
                _head(document),
                self.findings(first),
                *self.blocks(document.body),
                *self.blocks(document.foot if not document.body else ()),
                self.findings(last),
                *self.blocks(document.foot if document.body else ()),
                ["  ".join(filter(None, last_line))] if document.framed else [],
            ]
        )

    def blocks(self, blocks: Iterable[Block]) -> Iterator[list[str]]:
        """Yield the lines of each paragraph."""
        for block in blocks:
            match block:
                case Section():
                    yield from self._section(block)
                case SideBySide():
                    for part in block.parts:
                        yield from self.blocks(part)
                case Matrices():
                    yield from map(matrix, block.matrices)
                case Folded() if not self.verbose:
                    pass
                case Folded(block=Lines(lines)):
                    yield [f"{block.name}: {_line(line)}" for line in lines]
                case Folded():
                    yield from self.blocks([block.block])
                case Table() | Lines() | Properties() | Findings():
                    yield list(self._leaf(block))
                case Drawing():
                    pass

    def _leaf(self, block: Table | Lines | Properties | Findings) -> Iterator[str]:
        match block:
            case Table():
                yield from self._table(block)
            case Lines():
                indent = "  " if block.title else ""
                yield from [f"{block.title}:"] if block.title else []
                yield from (f"{indent}{_line(line)}" for line in block.lines)
            case Properties():
                yield from table(("", ""), block.pairs)[1:]
            case Findings():
                yield from self.findings(block)

    def _section(self, section: Section) -> Iterator[list[str]]:
        first, *others = [*self.blocks(section.blocks)] or [[]]
        title = click.style(section.title, bold=True) + (f"  {section.about}" if section.about else "")
        yield [title, *(f"  {line}" for line in section.lines), *first]
        yield from others

    def _table(self, block: Table) -> Iterator[str]:
        """Units are a second line of the header."""
        if block.title:
            yield block.title
        units = [column.unit for column in block.columns]
        rows = [units] if any(units) else []
        for row in block.rows:
            shown = [_cell(cell) for cell in cells(row)]
            shown += [""] * (len(units) - len(shown))
            pairs = zip(block.columns, shown, strict=True)
            rows.append([text or (NOTHING if column.number else "") for column, text in pairs])
        titles = [column.title for column in block.columns]
        yield from table(titles, rows, self.width)[not any(titles) :]
        if block.about:
            yield block.about

    def findings(self, found: Findings) -> Iterator[str]:
        """Yield the lines of all findings, the worst first; passes are named only, where that is enough."""
        for group in found.groups:
            if group.verdict is Verdict.PASS and not (self.verbose or found.each_pass):
                continue
            if group.verdict is Verdict.SKIP and not (self.verbose or (found.each_pass and group.why)):
                yield _skip(group, check=found.check)
            else:
                yield from self._group(group, check=found.check)
            if group.follow:
                yield f"{verdict_word(Verdict.UNKNOWN)} {click.style(group.not_run, dim=True)}"
        passed = [one.check for group in found.groups if group.verdict is Verdict.PASS for one in group.findings]
        if passed and not (self.verbose or found.each_pass):
            yield f"{verdict_word(Verdict.PASS)} {counted_names(passed)}"

    def _group(self, group: Group, *, check: bool) -> Iterator[str]:
        checks = f"{', '.join(group.checks)}  " if check else ""
        yield f"{verdict_word(group.verdict)} {checks}{indented(group.headline, 8)}"
        if group.why:
            yield _told("why", group.why)
        if group.steps and group.verdict in TROUBLE:
            # A command is indented, and so stays in one piece (cli._shared.width).
            steps = (f"{COMMAND}{step.command}" if step.command else step.text or "" for step in group.steps)
            yield _told("fix", "\n".join(steps))
        if group.action:
            yield _told("action", group.action)
        if group.cause:
            yield _told("cause", group.cause)
            yield from (_told("or", f"{one.cause}: {one.would_show}") for one in group.others)
        yield from (_told("also", line) for line in also(group, verbose=self.verbose))
        lines = group.every_evidence
        most = len(lines) if self.verbose else EVIDENCE if group.verdict in TROUBLE else 0
        yield from (_told("evidence", line) for line in lines[:most])
        if len(lines) > most > 0:
            yield _told("evidence", f"and {plural(len(lines) - most, 'more line')}")


def write(document: Document, *, verbose: bool = False, width: int | None = None) -> str:
    """Return the text, colors included. Arguments as for Terminal."""
    return (f"{document.recorded}\n" if document.recorded else "") + Terminal(verbose=verbose, width=width).document(
        document
    )


def _head(document: Document) -> Iterator[str]:
    if not document.framed and document.simulated is not None:
        yield f"{simulated_mark(document.simulated)}: no real GPU was read"
    if document.framed and document.host:
        mark = "" if document.simulated is None else f"  {simulated_mark(document.simulated)}"
        yield click.style(f"gpucheck {document.command}  {document.host}", bold=True) + mark
    yield from document.lines
    if document.components:
        yield f"{simulated_mark()} components: {'; '.join(document.components)}"


def verdict_word(verdict: Verdict, width: int = 7) -> str:
    """Return the verdict in capitals and color, padded to `width`: readable without color."""
    return click.style(verdict.name.ljust(width), fg=COLOR[verdict], bold=verdict is not Verdict.SKIP)


def simulated_mark(detail: str = "") -> str:
    """The mark that no simulated result may lack."""
    return click.style("SIMULATED", fg="cyan", bold=True) + (f" {detail}" if detail else "")


def paragraphs(parts: Iterable[Iterable[str]]) -> str:
    """Join the lines of each part, and the parts that have any with an empty line between them."""
    return "\n\n".join("\n".join(lines) for part in parts if (lines := list(part))) + "\n"


def table(header: Sequence[str], rows: Iterable[Sequence[str]], room: int | None = None) -> list[str]:
    """Left-aligned columns, two spaces apart; widths ignore color codes.

    room: columns of the terminal; a wider table is continued below itself, with its first column repeated.
    """
    lines = [list(header), *(list(row) for row in rows)]
    lengths = [[len(click.unstyle(cell) if "\x1b" in cell else cell) for cell in line] for line in lines]
    widths = [max(column) for column in zip(*lengths, strict=True)]
    bands: list[list[int]] = [[]]
    for i in range(1, len(header)):
        used = widths[0] + sum(2 + widths[k] for k in (*bands[-1], i))
        if room is not None and bands[-1] and used > room:
            bands.append([])
        bands[-1].append(i)
    shown: list[str] = []
    for number, band in enumerate(bands):
        shown += [""] if number else []
        for line, length in zip(lines, lengths, strict=True):
            shown.append("  ".join(line[i] + " " * (widths[i] - length[i]) for i in (0, *band)).rstrip())
    return shown


def matrix(block: Matrix) -> list[str]:
    """The numbers in cells of one width, colored by verdict, and what the signs mean."""

    def number(cell: float | None, verdict: Verdict | None, low: bool) -> str:
        if cell is None or verdict is None:
            return NOTHING
        return f"{LOW if low and verdict is Verdict.PASS else SIGN.get(verdict, '')}{cell:.1f}"

    shown = [
        [number(cell, block.verdicts[i][j], (i, j) in block.low) for j, cell in enumerate(row)]
        for i, row in enumerate(block.cells)
    ]
    width = max(len(text) for row in (block.labels, *shown) for text in row) + 1
    side = max(map(len, block.labels))
    lines = [block.title, " " * side + "".join(label.rjust(width) for label in block.labels)]
    for label, row, verdicts in zip(block.labels, shown, block.verdicts, strict=True):
        shaded = (_shaded(text.rjust(width), verdict) for text, verdict in zip(row, verdicts, strict=True))
        lines.append(label.rjust(side) + "".join(shaded))
    found = {verdict for row in block.verdicts for verdict in row}
    lines += [f"{SIGN[verdict]} {meaning}" for verdict, meaning in MEANING.items() if verdict in found]
    return [*lines, f"{LOW} {LOW_TEXT}"] if any(text.startswith(LOW) for row in shown for text in row) else lines


def _shaded(text: str, verdict: Verdict | None) -> str:
    if verdict is None or verdict not in HEAT:
        return click.style(text, dim=verdict is None)
    background, digits = HEAT[verdict]
    return click.style(text, fg=digits, bg=background)


@lru_cache(1024)  # a rack has a hundred thousand cells of few kinds
def _cell(cell: Cell) -> str:
    text = f"{cell.text} ({cell.detail})" if cell.detail and cell.text else cell.text or cell.detail
    if cell.tone == "low":
        text = f"{LOW}{text}"
    elif cell.tone in TONES:
        text = click.style(text, fg=TONES[cell.tone])
    elif cell.tone == "path-x":
        text = f" {click.style(text, dim=True)}"
    return f"{text} {verdict_word(cell.verdict, 0)}".lstrip() if cell.verdict else text


def _line(line: Cell | str) -> str:
    if isinstance(line, str):
        return line
    if line.command:
        return f"      {line.text}"
    return f"{verdict_word(line.verdict)} {line.text}" if line.verdict else _cell(line)


def _told(label: str, text: str) -> str:
    return f"{INDENT}{label:<{LABEL}}{indented(text, len(INDENT) + LABEL)}"


def _skip(group: Group, *, check: bool) -> str:
    some = f" ({len(group.findings)})" if len(group.findings) > 1 else ""
    checks = f"{', '.join(group.checks)}{some}: " if check else ""
    return f"{verdict_word(Verdict.SKIP)} {checks}{indented(group.why or group.seen, 8)}"
