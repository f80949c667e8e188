"""nccl-tests (all_reduce_perf and the others) as they print to a terminal, with NCCL's own log between the lines."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpucheck.imports._blocks import spans
from gpucheck.imports._kind import MEASUREMENTS, Kind
from gpucheck.imports._numbers import cell, refuse_gib
from gpucheck.imports._problem import left_out
from gpucheck.imports._regex import regex
from gpucheck.imports.nccl._tests import (
    OPERATIONS,
    TOOL,
    Rank,
    Row,
    bus_id_of,
    imported,
    leftovers,
    only_host,
    operation_in,
    set_by_environment,
    transport_in,
)
from gpucheck.model.diagnosis.observations import ObservedGpu
from gpucheck.model.facts import Facts
from gpucheck.model.paste import Part

# A copied page loses the leading #. Blanks of one line only, and few: \s would walk over ten megabytes of empty lines
# from each of them.
HEADING = regex(r"^#?[ \t]{0,80}size[ \t]+count[ \t]+type\b.*\bbusbw\b", re.MULTILINE)
UNITS = regex(r"^#?\s*\(B\)\s+\(elements\)")
RESULT = regex(r"^\s*\d{1,18}\s+\d{1,18}\s+(?:u?int|float|half|double|bfloat|f8|fp)\w*\s")
RANK = regex(
    r"^#?\s*Rank\s+(\d+)(?:\s+Group\s+\d+)?\s+Pid\s+\d+\s+on\s+(\S{1,255})\s+device\s+\d+\s+\[([0-9a-fx:]{1,20})\]\s+(\S.{0,99})",
    re.IGNORECASE,
)
# MPICH and srun write the rank before every piece that a process printed, in the middle of a row too.
PIECE = regex(r"\[\d{1,6}\] ?")
SUMMARY = regex(r"^#?\s{0,9}Out of bounds values\s{0,9}: {0,9}(\d{1,12})\b")
# Of -T: when the row was printed.
STAMP = regex(r"\s+\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\s*$")
# The last numbers of a row: time, algbw, busbw, errors, twice. redop and root may be blank before them.
NUMBERS = 8
MOST_PIECES = 1000  # characters of a line that ranks are taken out of


def parse(lines: list[str]) -> Part:
    """The largest message of the run. Raises ImportProblem, and nothing else."""
    text = "\n".join(lines)
    lines = [_plain(line) for line in lines]
    words: dict[int, list[str]] = {}
    numbers: dict[int, int] = {}
    ranks, columns, out_of_bounds = [], _Columns(), None
    for number, line in enumerate(lines, start=1):
        if HEADING.match(line):
            heads = line.split()
            columns = _Columns("#wrong" in heads or "error" in heads, "#wrong" in heads, 4 * heads.count("i_min"))
        elif UNITS.match(line):
            refuse_gib(line, number)
        elif RESULT.match(line):
            words[number] = STAMP.sub("", line).split()
        elif summary := SUMMARY.search(line):
            out_of_bounds = max(int(summary[1]), out_of_bounds or 0)
        elif found := RANK.match(line.strip()):
            gpu = ObservedGpu(model=found[4].strip(), bus_id=bus_id_of(found[3]))
            ranks.append(Rank(found[2], gpu))
            numbers[int(found[1][:6])] = number
    cut = _cut(words, columns.width)
    rows = [_row(row, number, columns) for number, row in words.items() if number not in cut]
    unread = [left_out(number, number, "the row breaks off", lines[number - 1]) for number in cut]
    if set(numbers) != set(range(len(numbers))):  # a count of what is left would be a smaller run
        unread.append(left_out(min(numbers.values()), max(numbers.values()), "lines of ranks are missing", ""))
        ranks = []
    environment = leftovers(set_by_environment("\n".join(lines)))
    seen = imported(rows, ranks, operation_in(text), transport_in(text), environment, out_of_bounds)
    return Part(facts=Facts(observed=seen), ran_on=only_host(rank.host for rank in ranks), unread=tuple(unread))


def _plain(line: str) -> str:
    """The line without ranks in brackets, where it begins with one."""
    return PIECE.sub("", line[:MOST_PIECES]) if line.startswith("[") else line


class _Columns(NamedTuple):
    """errors: a fourth column a side. counted: it counts wrong elements; older versions print the largest difference.

    extra: columns of a report by iteration.
    """

    errors: bool = True
    counted: bool = True
    extra: int = 0

    @property
    def width(self) -> int:
        """Numbers of a row after its name."""
        return (NUMBERS if self.errors else NUMBERS - 2) + self.extra


def _cut(found: dict[int, list[str]], width: int) -> list[int]:
    """Line numbers of rows that lost their end. width: numbers of a row; some versions leave redop and root blank."""
    numbers = {at: words[4:] if words[3].isalpha() else words[3:] for at, words in found.items() if len(words) > 3}
    # With a root before them there is one word more.
    sound = {
        at
        for at, rest in numbers.items()
        if len(rest) == width + 1 or (len(rest) == width and not rest[0].startswith("-"))
    }
    most = max((len(found[at]) for at in sound), default=0)
    return [at for at, words in found.items() if at not in sound or len(words) < most]


def _row(words: list[str], number: int, columns: _Columns) -> Row:
    tail, half = words[-columns.width :], columns.width // 2
    where = f"line {number}"
    sides = [tail[:half], tail[half:]]
    found = [(cell(side[1], where), cell(side[2], where), _errors(side, columns)) for side in sides]
    best = max(found, key=lambda numbers: numbers[1] or 0.0, default=(None, None, None))
    wrong = [numbers[2] for numbers in found if numbers[2] is not None]
    return Row(int(words[0]), best[0], best[1], sum(wrong) if wrong else None)


def _errors(side: list[str], columns: _Columns) -> int | None:
    word = side[3] if columns.counted else ""
    return int(float(word)) if re.fullmatch(r"\d{1,15}(\.\d+)?(e\+\d{1,2})?", word) else None


FIRST = regex(r"^#?\s*nThread\s+\d|^# nccl-tests version ")
AGAIN = regex(rf"{FIRST.pattern}|^#\s*Collective test starting: ")
INSIDE = regex(
    rf"^\s*#|{RESULT.pattern}|{UNITS.pattern}|{SUMMARY.pattern}"
    r"|^\s*(?:out-of-place\s+in-place|Avg bus bandwidth\s*:|Using devices\s*$|Rank\s+\d+\s+(?:Group|Pid)\b)"
)
BEGIN = regex(
    rf"{FIRST.pattern}|{HEADING.pattern}|^#?\s*out-of-place\s+in-place"
    r"|^#\s*(?:Collective test starting|Using devices|Rank\s+\d)"
)
COMMAND = regex(rf"\b(?:{'|'.join(OPERATIONS)})_perf\b")
BETWEEN = 2  # lines after a command that are of another program, such as a question for a password
LOOK_BACK = 12  # lines from a table up to the command that printed it
HEAD = regex(r"^#\s*(?:nThread|nccl-tests version|Collective test starting)\b|^\s*$")


def blocks(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield each run with the command line above it, which names the collective.

    The lines of a run's head belong together: newer versions print up to three before the devices.
    """
    end = -1
    pending: tuple[int, int] | None = None
    lines = [_plain(line) for line in lines]
    for first, last in spans(lines, BEGIN, INSIDE, AGAIN):
        if pending is not None and all(HEAD.match(line) for line in lines[pending[0] : pending[1] + 1]):
            first = pending[0]
        elif pending is not None:
            end = pending[1]
            yield pending
        pending = _with_command(lines, first, end), last
    if pending is not None:
        yield pending


def _with_command(lines: Sequence[str], first: int, end: int) -> int:
    """Return the index of the command line close above the first line of a run, or of that first line."""
    others = 0
    for at in range(first - 1, max(end, first - LOOK_BACK), -1):
        if COMMAND.search(lines[at]) and not lines[at].lstrip().startswith("#"):
            return at
        others += bool(lines[at].strip())
        if others > BETWEEN:
            break
    return first


KIND = Kind(TOOL, "the output of nccl-tests", parse, holds=MEASUREMENTS, hints=("busbw", "nThread"), blocks=blocks)
