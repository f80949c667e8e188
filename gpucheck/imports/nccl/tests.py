"""nccl-tests (all_reduce_perf and the others) as text, with NCCL's own log between the lines, and as JSON (-J)."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from gpucheck.imports._kind import Kind
from gpucheck.imports._numbers import AGAIN, MOST_GPUS, cell, refuse_gib
from gpucheck.imports._text import absent, bus_id, json_object, left_out, objects, regex, rows_of, spans, string_of
from gpucheck.model.diagnosis.observations import Collective, Measured, Observations, ObservedGpu
from gpucheck.model.facts import Facts
from gpucheck.model.paste import Part

# What nccl-tests' text and JSON have in common: which collective it was, on how many GPUs, and the row that counts.
TOOL = "nccl-tests"
OPERATIONS = {
    **{name: name for name in ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "sendrecv")},
    **{name: name for name in ("scatter", "gather", "reduce")},
    "alltoall": "all_to_all",
}
# NCCL_DEBUG=INFO: "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", "via SHM/direct/direct", "via NET/IB/0".
VIA = regex(r"\bvia (P2P/\w+|SHM/\w+|NET/\w+)")
SET_BY_ENVIRONMENT = regex(r"\b(NCCL_[A-Z0-9_]{1,60}) set by environment to ([^\n]*)")
SLOWEST_FIRST = ("NET", "SHM", "P2P")
LONGEST_VALUE = 200
# The JSON holds the whole environment; nothing but these is looked at.
ENVIRONMENT = regex(r"(NCCL_\w{1,60}|CUDA_\w{1,60}|LD_PRELOAD)=(.{0,500})", re.DOTALL)
NO_NAME = regex(r"[0-9a-f]{12}|localhost|(?:host|node)(?:name)?|container|pod", re.IGNORECASE)
NO_LEFTOVER = {"NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE", "NCCL_VERSION", "NCCL_HOME"}


class Row(NamedTuple):
    """One message size, the better of out of place and in place. wrong: both together, None = not checked."""

    bytes: int
    algbw_gb_s: float | None
    busbw_gb_s: float | None
    wrong: int | None


class Rank(NamedTuple):
    """Where a rank ran."""

    host: str
    gpu: ObservedGpu


def imported(
    rows: list[Row],
    ranks: list[Rank],
    operation: str | None,
    transport: str | None,
    environment: dict[str, str],
    out_of_bounds: int | None = None,
    own: dict[str, str] | None = None,
) -> Observations:
    """Return the largest message of the run: an average over sizes is meaningless.

    out_of_bounds: number of results that the summary calls wrong. own: variables that the command line sets. A run on
    one GPU has no bus bandwidth, only whether results were right.
    """
    good = [row for row in rows if row.busbw_gb_s] or [row for row in rows if row.algbw_gb_s and len(ranks) == 1]
    if not good:
        raise absent(
            f"{TOOL} result",
            "there is no row with a bus bandwidth; the run ended early or the paste is cut short",
            AGAIN,
        )
    largest = max(good, key=lambda row: row.bytes)
    hosts = {rank.host for rank in ranks}
    checked = [row.wrong for row in rows if row.wrong is not None]
    wrong = sum(checked) if checked else None
    if out_of_bounds is not None:
        wrong = max(out_of_bounds, wrong or 0)
    collective = Collective(
        op=operation or _guess(largest, len(ranks)),
        ranks=len(ranks) or None,
        bytes=largest.bytes,
        busbw_gb_s=largest.busbw_gb_s or None,
        transport=transport,
        wrong=wrong,
        environment=own or {},
    )
    return Observations(
        # Ranks of several hosts, or more than one host can have GPUs, are not one machine's GPUs.
        gpus=_distinct(ranks) if len(hosts) == 1 and len(ranks) <= MOST_GPUS else (),
        environment=environment,
        measured=Measured(collectives=(collective,)),
    )


def _distinct(ranks: list[Rank]) -> tuple[ObservedGpu, ...]:
    """The GPUs of the ranks. Old versions print the bus alone: where two GPUs have the same they are in two domains."""
    buses = [rank.gpu.bus_id for rank in ranks]
    unsure = len(set(buses)) != len(buses)
    return tuple(replace(rank.gpu, bus_id=None) if unsure else rank.gpu for rank in ranks)


def only_host(hosts: Iterable[str]) -> str | None:
    """Return the name of the host that all ranks ran on; None for several, and for a name that many hosts have."""
    names = set(hosts)
    name = names.pop() if len(names) == 1 else ""
    return None if not name or NO_NAME.fullmatch(name) else name


def operation_in(text: str) -> str | None:
    found = re.search(rf"\b({'|'.join(OPERATIONS)})_perf\b", text)
    return OPERATIONS[str(found[1])] if found else None


def _guess(row: Row, ranks: int) -> str | None:
    """Only all_reduce has a bus bandwidth of 2(n-1)/n times the algorithm bandwidth."""
    if ranks < 3 or not row.algbw_gb_s or not row.busbw_gb_s:
        return None
    return "all_reduce" if abs(row.busbw_gb_s / row.algbw_gb_s - 2 * (ranks - 1) / ranks) < 0.02 else None


def slowest(transports: Iterable[str]) -> str | None:
    """Return the slowest of these transports: one pair over the network stack slows the whole ring."""
    named = sorted(set(transports))
    return next((one for kind in SLOWEST_FIRST for one in named if one.startswith(kind)), None)


def set_by_environment(text: str) -> list[tuple[str, str]]:
    found = ((name, value.rstrip().removesuffix(".")) for name, value in SET_BY_ENVIRONMENT.findall(text))
    return [(name, value) for name, value in found if len(value) <= LONGEST_VALUE]


def leftovers(pairs: list[tuple[str, str]]) -> dict[str, str]:
    return {name: value for name, value in pairs if name not in NO_LEFTOVER}


def bus_id_of(address: str) -> str | None:
    """``0000:07:00`` or ``0x07`` as Linux writes it."""
    long = re.fullmatch(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})", address.strip().lower())
    if long:
        return bus_id(*long.groups())
    short = re.fullmatch(r"0x([0-9a-f]{1,2})", address.strip().lower())
    return bus_id("0", short[1], "0") if short else None


# nccl-tests (all_reduce_perf and the others) as they print to a terminal, with NCCL's own log between the lines.
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
STEPS = regex(r"\bmaxBytes (\d{1,18}) step: (\d{1,18})\((factor|bytes)\)")
SUMMARY = regex(r"^#?\s{0,9}Out of bounds values\s{0,9}: {0,9}(\d{1,12})\b")
# Of -T: when the row was printed.
STAMP = regex(r"\s+\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\s*$")
# The last numbers of a row: time, algbw, busbw, errors, twice. redop and root may be blank before them.
NUMBERS = 8
MOST_PIECES = 1000  # characters of a line that ranks are taken out of


def text_parse(lines: list[str]) -> Part:
    text = "\n".join(lines)
    lines = [_plain(line) for line in lines]
    words: dict[int, list[str]] = {}
    numbers: dict[int, int] = {}
    ranks, columns, out_of_bounds, steps = [], _Columns(), None, None
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
        elif found := STEPS.search(line):
            steps = found
        elif found := RANK.match(line.strip()):
            gpu = ObservedGpu(model=found[4].strip(), bus_id=bus_id_of(found[3]))
            ranks.append(Rank(found[2], gpu))
            numbers[int(found[1][:6])] = number
    cut = _cut(words, columns.width)
    rows = [_text_row(row, number, columns) for number, row in words.items() if number not in cut]
    unread = [left_out(number, number, "the row breaks off", lines[number - 1]) for number in cut]
    if words and out_of_bounds is None and steps and not cut and _next(rows[-1].bytes, steps) <= int(steps[1]):
        unread.append(left_out(max(words), len(lines), "the run ended early, or its end is missing", lines[-1]))
    if not out_of_bounds and all(row.count("N/A") > 1 for row in words.values()):
        out_of_bounds = None  # the summary of a run without comparison is 0, too
    if set(numbers) != set(range(len(numbers))):  # a count of what is left would be a smaller run
        unread.append(left_out(min(numbers.values()), max(numbers.values()), "lines of ranks are missing", ""))
        ranks = []
    environment = leftovers(set_by_environment("\n".join(lines)))
    own = leftovers([pair for line in lines if COMMAND.search(line) for pair in ON_COMMAND.findall(line[:LONGEST])])
    seen = imported(rows, ranks, operation_in(text), slowest(VIA.findall(text)), environment, out_of_bounds, own)
    return Part(facts=Facts(observed=seen), ran_on=only_host(rank.host for rank in ranks), unread=tuple(unread))


def _next(size: int, steps: re.Match[str]) -> int:
    return size * int(steps[2]) if steps[3] == "factor" else size + int(steps[2])


def _plain(line: str) -> str:
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
        return (NUMBERS if self.errors else NUMBERS - 2) + self.extra


def _cut(found: dict[int, list[str]], width: int) -> list[int]:
    numbers = {at: words[4:] if words[3].isalpha() else words[3:] for at, words in found.items() if len(words) > 3}
    # With a root before them there is one word more.
    sound = {
        at
        for at, rest in numbers.items()
        if len(rest) == width + 1 or (len(rest) == width and not rest[0].startswith("-"))
    }
    most = max((len(found[at]) for at in sound), default=0)
    return [at for at, words in found.items() if at not in sound or len(words) < most]


def _text_row(words: list[str], number: int, columns: _Columns) -> Row:
    tail, half = words[-columns.width :], columns.width // 2
    sides = [tail[:half], tail[half:]]
    found = [(cell(side[1], number), cell(side[2], number), _errors(side, columns, number)) for side in sides]
    best = max(found, key=lambda numbers: numbers[1] or 0.0, default=(None, None, None))
    wrong = [numbers[2] for numbers in found if numbers[2] is not None]
    return Row(int(words[0]), best[0], best[1], sum(wrong) if wrong else None)


def _errors(side: list[str], columns: _Columns, number: int) -> int | None:
    word = side[3] if columns.counted else "N/A"
    return None if word.upper() == "N/A" else int(cell(word, number) or 0)


FIRST = regex(r"^#?\s*nThread\s+\d|^# nccl-tests version ")
NEXT = regex(rf"{FIRST.pattern}|^#\s*Collective test starting: ")
INSIDE = regex(
    rf"^\s*#|{RESULT.pattern}|{UNITS.pattern}|{SUMMARY.pattern}"
    r"|^\s*(?:out-of-place\s+in-place|Avg bus bandwidth\s*:|Using devices\s*$|Rank\s+\d+\s+(?:Group|Pid)\b)"
)
BEGIN = regex(
    rf"{FIRST.pattern}|{HEADING.pattern}|^#?\s*out-of-place\s+in-place"
    r"|^#\s*(?:Collective test starting|Using devices|Rank\s+\d)"
)
COMMAND = regex(rf"\b(?:{'|'.join(OPERATIONS)})_perf\b")
# Before the program, or as mpirun -x and --env take them.
ON_COMMAND = regex(r"(?<![\w-])((?:NCCL|CUDA)_\w{1,60})=([^\s'\"]{1,200})")
LONGEST = 4000
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
    for first, last in spans(lines, BEGIN, INSIDE, NEXT):
        if pending is not None and all(HEAD.match(line) for line in lines[pending[0] : pending[1] + 1]):
            first = pending[0]
        elif pending is not None:
            end = pending[1]
            yield pending
        pending = _with_command(lines, first, end), last
    if pending is not None:
        yield pending


def _with_command(lines: Sequence[str], first: int, end: int) -> int:
    others = 0
    for at in range(first - 1, max(end, first - LOOK_BACK), -1):
        if COMMAND.search(lines[at]) and not lines[at].lstrip().startswith("#"):
            return at
        others += bool(lines[at].strip())
        if others > BETWEEN:
            break
    return first


TEXT = Kind(TOOL, "the output of nccl-tests", text_parse, hints=("busbw", "nThread"), blocks=blocks)


# nccl-tests -J: config.devices, results, and an environment of which only NCCL's and CUDA's variables are read.
LARGEST = 1 << 60


def json_parse(lines: list[str]) -> Part:
    root = json_object(lines, TOOL)
    config = root.get("config")
    devices = rows_of(config.get("devices") if isinstance(config, dict) else root.get("devices"))
    ranks = [
        Rank(
            string_of(row.get("hostname")),
            ObservedGpu(
                model=string_of(row.get("device_info"))[:100] or None,
                bus_id=bus_id_of(string_of(row.get("device_hex"))),
            ),
        )
        for row in devices
    ]
    rows = [row for result in rows_of(root.get("results")) if (row := _json_row(result)) is not None]
    program = root.get("args")
    name = string_of(program[0]) if isinstance(program, list) and program else ""
    entries = root.get("env")
    found = [ENVIRONMENT.fullmatch(string_of(entry)) for entry in entries] if isinstance(entries, list) else []
    environment = leftovers([(match[1], match[2]) for match in found if match])
    seen = imported(rows, ranks, operation_in(name), None, environment)
    return Part(facts=Facts(observed=seen), ran_on=only_host(rank.host for rank in ranks))


def _json_row(result: dict[str, Any]) -> Row | None:
    size = result.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < LARGEST:
        return None
    sides = [side for name in ("out_of_place", "in_place") if isinstance(side := result.get(name), dict)]
    found = [(_number(side.get("alg_bw")), _number(side.get("bus_bw"))) for side in sides]
    wrong = [number for side in sides if (number := side.get("nwrong")) is not None]
    counts = [int(number) for number in wrong if isinstance(number, int | float) and 0 <= number < LARGEST]
    best = max(found, key=lambda numbers: numbers[1] or 0.0, default=(None, None))
    return Row(size, best[0], best[1], sum(counts) if counts else None)


def _number(value: Any) -> float | None:
    return cell(str(value)) if value is not None else None


JSON = Kind(
    TOOL,
    "the JSON of nccl-tests",
    json_parse,
    hints=('"bus_bw"', '"nccl_version"'),
    blocks=lambda lines: objects(lines, '"bus_bw"', '"nccl_version"'),
)
