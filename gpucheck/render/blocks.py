"""What a report shows, before it has a format: a document of blocks, which a writer each for terminals, pages and
Markdown puts into words. All text is printable (gpucheck.printable) and no markup."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from gpucheck.model import Verdict
from gpucheck.render.findings import Group, worst_first

LOW_TEXT = "below the low end of what is expected"


class Cell(NamedTuple):
    """A text and, smaller, its detail.

    tone: its color and sign: a verdict, ``low`` (below what is expected), ``off`` (wrong), or a class of path.
    verdict: a badge, which leads to the first finding about `about`, a bus id. command: it can be copied to a shell.
    """

    text: str
    detail: str = ""
    tone: str = ""
    verdict: Verdict | None = None
    about: str = ""
    command: bool = False


Row: TypeAlias = list[Cell | str]


class Column(NamedTuple):
    """kind: what a page calls it: ``mono``, ``wordy`` (never narrow)."""

    title: str
    unit: str = ""
    number: bool = False
    kind: str = ""


class Table(NamedTuple):
    """rows: a shorter one has a last cell as wide as the rest. about: a note below. kind: what a page calls it."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell | str]]
    title: str = ""
    about: str = ""
    kind: str = ""


class Matrix(NamedTuple):
    """Numbers of ordered pairs, row to column; None was not measured.

    verdicts: SKIP without an expectation. low: places below the low end of what is expected.
    """

    name: str
    title: str
    labels: Sequence[str]
    cells: Sequence[Sequence[float | None]]
    verdicts: Sequence[Sequence[Verdict | None]]
    low: frozenset[tuple[int, int]] = frozenset()


class Matrices(NamedTuple):
    """Matrices of the same devices. pairs: what a page shows about a cell that is pointed at."""

    matrices: Sequence[Matrix]
    pairs: Mapping[str, Any]


class Box(NamedTuple):
    """kind: what a page calls it. tone: of its border, as of a cell. inside: the boxes in it."""

    kind: str
    title: str
    lines: Sequence[Cell] = ()
    tone: str = ""
    inside: Sequence["Box"] = ()


class Drawing(NamedTuple):
    """Boxes, on a page only."""

    boxes: Sequence[Box]
    label: str


class Lines(NamedTuple):
    """A line each. title: of all of them, a line of its own."""

    lines: Sequence[Cell | str]
    title: str = ""


class Properties(NamedTuple):
    """Names and values."""

    pairs: Sequence[tuple[str, str]]


class Findings(NamedTuple):
    """Groups of findings, the worst first. each_pass: what each pass saw. check: with the name of the check."""

    groups: Sequence[Group]
    each_pass: bool = True
    check: bool = True


class Folded(NamedTuple):
    """What few readers want: a terminal shows it with -v. name: one word, of each line."""

    name: str
    title: str
    block: "Block"


class SideBySide(NamedTuple):
    """Parts next to each other where there is room."""

    parts: Sequence[Sequence["Block"]]


class Section(NamedTuple):
    """name: its anchor. about: next to the title. lines: below it."""

    name: str
    title: str
    blocks: Sequence["Block"]
    about: str = ""
    lines: Sequence[str] = ()


Block: TypeAlias = Table | Matrices | Drawing | Lines | Properties | Findings | Folded | SideBySide | Section


class Document(NamedTuple):
    """A whole report. host: what it is about. simulated: what of it, None for real hardware; components: the simulated.

    recorded: where a replayed report comes from. framed: with a heading and the verdict on a terminal. lines: below
    the heading. unread: what SIMULATED means. unproven: what a PASS does not cover.
    summary: the counts of findings where it is empty. body: between what is wrong and what passed; foot: after both.
    """

    command: str
    host: str
    verdict: Verdict
    counts: Mapping[str, int]
    schema: str
    started: str = ""
    time: str = ""
    simulated: str | None = None
    unread: str = "No real GPU was read."
    components: Sequence[str] = ()
    recorded: str = ""
    framed: bool = True
    lines: Sequence[str] = ()
    unproven: Sequence[str] = ()
    summary: str = ""
    findings: Findings | None = None
    body: Sequence[Block] = ()
    foot: Sequence[Block] = ()


def document_of(report: Any, command: str, **fields: Any) -> Document:
    """A document with what every report has; fields: the others, or instead."""
    made = report.simulation
    faults = f" with {', '.join(made.faults)}" if made and made.faults else ""
    common: dict[str, Any] = {
        "host": report.host,
        "verdict": report.verdict,
        "counts": report.counts,
        "schema": report.schema,
        "started": report.started,
        "time": f"in {report.seconds:.1f} s",
        "simulated": f"hardware: {made.profile}{faults}" if made else "hardware" if report.simulated else None,
        **({} if "findings" in fields else {"findings": Findings(worst_first(report.findings))}),
    }
    return Document(command=command, **{**common, **fields})


def words(*titles: str, kind: str = "") -> list[Column]:
    """Columns of text."""
    return [Column(title, kind=kind) for title in titles]


def numbers(*titles: str, unit: str = "") -> list[Column]:
    """Columns of numbers with one unit."""
    return [Column(title, unit, number=True) for title in titles]


def cells(row: Iterable[Cell | str]) -> list[Cell]:
    return [Cell(cell) if isinstance(cell, str) else cell for cell in row]
