"""From a text of several tools' output to its parts, each read by its own kind, and the lines that nothing read."""

import re
from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from msgspec.structs import replace

from gpucheck.imports._kind import AnyCase, Kind
from gpucheck.imports._text import QUOTE_LIMIT, WHOLE, ImportProblem, first_line, quoted, regex
from gpucheck.imports._unwrap import Lines
from gpucheck.model.diagnosis import ReadRange, UnreadRange, is_output
from gpucheck.model.paste import Part, Reading
from gpucheck.printable import excerpt, meant

Mark = str | re.Pattern[str]

AGAIN = "Give the complete output as the tool printed it"
LONGEST_PROMPT = 600
# A shell prompt and the command after it. The host is that of user@host.
PROMPT = regex(
    r"\s{0,8}(?:\([\w.-]{1,40}\) ?)?(?:"
    r"\[?[\w.-]{1,40}@(?P<host>[\w.-]{1,80})[: ][^$#%>]{0,200}[$#%>]|\$|(?:PS )?[A-Za-z]:\\[^>]{0,200}>"
    r"|[\u276f\u279c])(?:\s+(?P<command>\S.*)|\s*$)"
)
# A bare prompt of root, or a command that was pasted with nothing before it.
BARE = regex(
    r"\s{0,8}(?:[#%>]\s+)?(?:sudo\s+)?(?:\./|/\S{1,200}/)?(?:nvidia-smi|lspci|dmesg|journalctl|dcgmi|nvbandwidth|"
    r"\w{2,20}_perf|p2pBandwidthLatencyTest|bandwidthTest|simpleP2P|ibstat|ibv_devinfo|rdma|mpirun|srun|nvcc|"
    r"modprobe|dkms|ib_\w{2,20}|cat|uname|docker|kubectl)\b[^:|=]{0,300}$"
)
# Names that do not identify the host: those of containers.
NO_NAME = regex(r"[0-9a-f]{12}|localhost|docker|container|pod", re.IGNORECASE)


class Section(NamedTuple):
    """Lines of one kind. at: their indices in the text, in order; host: the machine that printed them, if known."""

    kind: Kind
    at: list[int]
    host: str | None = None


class Taken(NamedTuple):
    """All sections of a text in order, and the indices of lines that belong to none."""

    sections: list[Section]
    left: list[int]


LARGE = 1 << 21
NO_DIGITS = str.maketrans("", "", "0123456789")


class _Whole:
    """The text in one piece, for a look at what can be in it; each look is taken once.

    Lines of large logs differ in little but numbers: their digits are left out, and equal lines are looked at once.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines
        self.text = "\n".join(lines)
        self.reported: dict[Mark, bool] = {}

    def holds(self, mark: Mark) -> bool:
        """Whether it may stand anywhere: never False where it does."""
        if mark not in self.reported:
            if isinstance(mark, str):
                letters = mark.translate(NO_DIGITS) if len(self.text) > LARGE else mark
                self.reported[mark] = letters in (self.lower if isinstance(mark, AnyCase) else self.gist)
            else:
                self.reported[mark] = mark.search(self.text) is not None
        return self.reported[mark]

    @cached_property
    def gist(self) -> str:
        if len(self.text) <= LARGE:
            return self.text
        return "\n".join(dict.fromkeys(line.translate(NO_DIGITS) for line in self.lines))

    @cached_property
    def lower(self) -> str:
        return self.gist.lower()


def taken_apart(lines: Lines, kinds: Sequence[Kind]) -> Taken:
    """Every line goes to one kind at most, strict kinds first."""
    whole = _Whole(lines.text)
    here = [kind for kind in kinds if not kind.hints or any(map(whole.holds, kind.hints))]
    free = [bool(line) and not line.isspace() for line in lines.text]
    _take(free, lines.wrapping)
    sections: list[Section] = []
    for kind in here:
        if kind.line is not None:
            for section in _of_lines(kind, lines, free, whole):
                sections.append(section)
                _take(free, section.at)
    for kind in here:
        if kind.blocks is not None:
            for section in _of_blocks(kind, lines, free):
                sections.append(section)
                _take(free, section.at)
    left = [i for i, is_free in enumerate(free) if is_free]
    # The command above an output may belong to its section, as the output does not name the device.
    first = {section.at[0] for section in sections if section.kind.blocks is not None}
    typed = _prompts(lines.text, sorted({*left, *first})) if sections else {}
    _take(free, typed)
    return Taken(_with_hosts(sections, typed), [i for i in left if free[i]])


def _take(free: list[bool], at: Iterable[int]) -> None:
    for i in at:
        free[i] = False


def _of_lines(kind: Kind, lines: Lines, free: list[bool], whole: _Whole) -> list[Section]:
    """All lines together, those of each host by themselves where a launcher named the hosts."""
    assert kind.line is not None  # noqa: S101 - for the type checker
    places: Iterable[int] = range(len(free))
    if kind.marks:
        places = _holding(lines.text, (mark for mark in kind.marks if whole.holds(mark)), free)
    at = [i for i in places if free[i] and kind.line(lines.text[i])]
    of: dict[str | None, list[int]] = {None: at} if at else {}
    if lines.hosts:
        of = {}
        for i in at:
            of.setdefault(lines.hosts.get(i), []).append(i)
    return [Section(kind, found, host) for host, found in of.items()]


def _holding(text: list[str], marks: Iterable[Mark], free: list[bool]) -> list[int]:
    """Indices of the free lines that hold one of the marks, in order."""
    found: set[int] = set()
    most = sum(free)
    for mark in marks:
        if len(found) >= most:
            break
        if isinstance(mark, AnyCase):
            found.update([i for i, line in enumerate(text) if free[i] and mark in line.lower()])
        elif isinstance(mark, str):
            found.update([i for i, line in enumerate(text) if free[i] and mark in line])
        else:
            found.update([i for i, line in enumerate(text) if free[i] and mark.search(line)])
    return sorted(found)


def _of_blocks(kind: Kind, lines: Lines, free: list[bool]) -> Iterator[Section]:
    assert kind.blocks is not None  # noqa: S101 - for the type checker
    for stream in _streams(lines.labels, free):
        # Blank lines stay between the lines of a stream: they part blocks.
        for first, last in kind.blocks([lines.text[i] if free[i] else "" for i in stream]):
            yield Section(kind, list(stream[first : last + 1]), lines.hosts.get(stream[first]))


def _streams(labels: dict[int, str], free: list[bool]) -> list[Sequence[int]]:
    """The indices of every stream that has free lines; lines without a label are one more stream."""
    if not labels:
        return [range(len(free))]
    found: dict[str | None, list[int]] = {}
    for i in range(len(free)):
        found.setdefault(labels.get(i), []).append(i)
    return [stream for stream in found.values() if any(free[i] for i in stream)]


def _with_hosts(sections: list[Section], typed: dict[int, str | None]) -> list[Section]:
    named = sorted((i, host) for i, host in typed.items() if host)
    found = sections
    if len({host for _, host in named}) > 1:
        places = [i for i, _ in named]
        found = []
        for section in sections:
            of: dict[str | None, list[int]] = {}
            whole = section.at[:1] * len(section.at) if section.kind.line is None else section.at
            for i, place in zip(section.at, whole, strict=True):
                before = bisect(places, place)
                of.setdefault(named[before - 1][1] if before else None, []).append(i)
            found += [Section(section.kind, at, section.host or host) for host, at in of.items()]
    return sorted(found, key=lambda section: section.at[0])


def _prompts(text: list[str], at: list[int]) -> dict[int, str | None]:
    found: dict[int, str | None] = {}
    for i in at:
        line = text[i]
        if len(line) < LONGEST_PROMPT:
            if match := PROMPT.match(line):
                found[i] = _machine(match["host"])
            elif BARE.match(line):
                found[i] = None
    return found


def _machine(host: str | None) -> str | None:
    if host is None or NO_NAME.fullmatch(host):
        return None
    return host.partition(".")[0]


MOST_MENTIONS = 2000  # lines that are searched for words of people about an Xid
MENTION = regex(r"\b(?:Xid|XID)\b[ :#(]{0,3}(\d{1,3})\b")


def read_pieces(lines: Lines, source: str, kinds: Sequence[Kind], as_: str | None) -> Reading:
    """as_: only this kind is looked for, and where nothing shows it, the whole text is read as it."""
    chosen = [kind for kind in kinds if as_ in (None, kind.name)]
    if not chosen:
        near = meant(as_ or "", sorted({kind.name for kind in kinds}), cutoff=0.4)
        raise ImportProblem(
            f"unknown kind {quoted(as_ or '')}",
            where="--as",
            why="no tool output has this name",
            do=f"List them: gpucheck diagnose --kinds.{near}",
        )
    sections, left = taken_apart(lines, chosen)
    if as_ is not None and not sections:
        sections, left = [Section(kind, list(range(len(lines.text)))) for kind in chosen], []
    parts: list[Part] = []
    unread = list(_unread(lines.text, left, source, ""))
    problems: list[ImportProblem] = []
    for section in sections:
        try:
            parts.append(_read(section, lines.text, source))
            unread += parts[-1].unread
        except ImportProblem as problem:  # noqa: PERF203 - a bad section hides no other
            problems.append(problem)
            unread += _unread(lines.text, section.at, source, f"{section.kind.title}: {problem.what}: {problem.why}")
    if not parts:
        raise problems[0] if problems else _nothing(lines.text)
    return Reading(parts=tuple(parts), unread=tuple(sorted(unread, key=lambda row: row.first_line)))


def _read(section: Section, text: list[str], source: str) -> Part:
    try:
        part = section.kind.parse([text[i] for i in section.at])
    except ImportProblem as problem:
        raise _moved(problem, section.at) from None
    if part is None:
        raise _moved(ImportProblem("no result", why=f"lines of {section.kind.title} are missing", do=AGAIN), section.at)
    messages = tuple(replace(m, line=section.at[m.line - 1] + 1) for m in part.messages if m.line <= len(section.at))
    ranges = tuple(
        ReadRange(kind=section.kind.name, source=source, first_line=first + 1, last_line=last + 1)
        for first, last in _runs(section.at, text)
    )
    unread = tuple(
        replace(
            row,
            source=source,
            first_line=section.at[row.first_line - 1] + 1,
            last_line=section.at[min(row.last_line, len(section.at)) - 1] + 1,
            why=f"{section.kind.title}: {row.why}",
            text=row.text or excerpt(text[section.at[row.first_line - 1]], QUOTE_LIMIT),
        )
        for row in part.unread
        if row.first_line <= len(section.at)
    )
    machine = part.machine or section.host
    return replace(part, messages=messages, ranges=ranges, machine=machine, unread=unread)


def _moved(problem: ImportProblem, at: list[int]) -> ImportProblem:
    """The same problem with lines of the whole input in place of those of the section."""
    where, line = problem.where, problem.line
    if where == WHOLE:
        where = f"lines {at[0] + 1}-{at[-1] + 1}"
    if line is not None and line <= len(at):
        line = at[line - 1] + 1
    return ImportProblem(problem.what, where=where, line=line, why=problem.why, do=problem.do)


def _runs(at: Iterable[int], text: list[str]) -> Iterator[tuple[int, int]]:
    first = last = -1
    for i in at:
        if not text[i].strip():
            continue
        if first < 0:
            first = last = i
        elif i > last + 1 and any(text[j].strip() for j in range(last + 1, i)):
            yield first, last
            first = last = i
        else:
            last = i
    if first >= 0:
        yield first, last


def _unread(text: list[str], at: list[int], source: str, why: str) -> Iterator[UnreadRange]:
    for first, last in _runs(at, text):
        lines = [text[i][: 4 * QUOTE_LIMIT] for i in range(first, last + 1)] if not why else ()
        shown = excerpt(next((line for line in lines if is_output(line)), text[first]), QUOTE_LIMIT)
        yield UnreadRange(source=source, first_line=first + 1, last_line=last + 1, why=why, text=shown)


def _nothing(text: list[str]) -> ImportProblem:
    first = first_line(text)
    mention = next((match for line in text[:MOST_MENTIONS] if (match := MENTION.search(line))), None)
    if mention is not None:
        return ImportProblem(
            "nothing in the input is recognized",
            why=f"it mentions Xid {mention[1]}, but contains no line of a kernel log",
            do=f"Give the log itself: sudo dmesg > kernel.txt. What the code means: gpucheck explain xid:{mention[1]}",
        )
    return ImportProblem(
        "nothing in the input is recognized",
        why=f"it starts with {quoted(first)}, and no line is from a supported tool",
        do="Give the output as the tool printed it; what is read: gpucheck diagnose --kinds",
    )
