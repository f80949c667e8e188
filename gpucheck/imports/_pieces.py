"""From a text of several tools' output to its parts, each read by its own kind, and the lines that nothing read."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from msgspec.structs import replace

from gpucheck.imports._kind import Found, Kind
from gpucheck.imports._problem import WHOLE, ImportProblem, left_out
from gpucheck.imports._sections import Section, taken_apart
from gpucheck.imports._text import QUOTE_LIMIT, first_line, quoted
from gpucheck.imports._unwrap import Lines
from gpucheck.model.diagnosis.observations import Observations
from gpucheck.model.diagnosis.paste import Part, Reading, ReadRange, UnreadRange
from gpucheck.model.finding.verdict import Verdict
from gpucheck.model.host.readings import KernelLog
from gpucheck.model.topology import Topology
from gpucheck.printable import counted, excerpt

LINE = re.compile(r"\bline (\d{1,9})\b")
MOST_MENTIONS = 2000  # lines that are searched for words of people about an Xid
MENTION = re.compile(r"\b(?:Xid|XID)\b[ :#(]{0,3}(\d{1,3})\b")


def read_pieces(lines: Lines, source: str, kinds: Sequence[Kind], as_: str | None) -> Reading:
    """See gpucheck.imports.read_all."""
    if as_ is not None:
        return _forced(lines.text, source, [kind for kind in kinds if kind.name == as_], as_)
    taken = taken_apart(lines, kinds)
    parts: list[Part] = []
    unread = list(_unread(lines.text, taken.left, source, ""))
    problems: list[ImportProblem] = []
    for section in taken.sections:
        found = _tried(section, lines.text, source)
        if isinstance(found, Part):
            parts.append(found)
            unread += found.unread
        else:
            problems.append(found)
            unread += _unread(lines.text, section.at, source, f"{section.kind.title}: {found.what}: {found.why}")
    if not parts:
        raise problems[0] if problems else _nothing(lines.text)
    return Reading(parts=tuple(parts), unread=tuple(sorted(unread, key=lambda row: row.first_line)))


def _forced(text: list[str], source: str, kinds: list[Kind], name: str) -> Reading:
    """The whole text as one kind; the first of its modules that can read it."""
    if not kinds:
        raise ImportProblem(
            f"unknown kind {quoted(name)}",
            where="--as",
            why="no tool output has this name",
            do="List them: gpucheck diagnose --kinds",
        )
    likely, *others = sorted(kinds, key=lambda kind: not kind.takes(text))
    try:
        return _whole(likely, text, source)
    except ImportProblem as problem:
        for kind in others:
            with suppress(ImportProblem):
                return _whole(kind, text, source)
        raise problem from None


def _whole(kind: Kind, text: list[str], source: str) -> Reading:
    part = _read(Section(kind, list(range(len(text)))), text, source)
    return Reading(parts=(part,), unread=part.unread)


def _tried(section: Section, text: list[str], source: str) -> Part | ImportProblem:
    try:
        return _read(section, text, source)
    except ImportProblem as problem:
        return problem


def _read(section: Section, text: list[str], source: str) -> Part:
    """One section as its kind reads it, with the lines where it stands. Raises ImportProblem."""
    try:
        found = section.kind.parse([text[i] for i in section.at])
    except ImportProblem as problem:
        raise _moved(problem, section.at) from None
    part = as_part(found)
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


def as_part(found: Found) -> Part:
    """What a kind's parse gave, in the one form that is evaluated."""
    if isinstance(found, Part):
        return found
    if isinstance(found, KernelLog):
        return Part(kernel=found, looked_at=(f"{counted(len(found.lines), 'line')} of a kernel log",))
    if isinstance(found, Observations):
        return Part(observations=found)
    count = len(found.gpus)
    about = (f"how {count} GPUs are connected",) if count > 1 else ()
    return Part(observations=found.observations(), looked_at=about, unread=tuple(_damage(found)))


def _damage(found: Topology) -> Iterator[UnreadRange]:
    """Rows of a matrix that could not be used, and pairs that are missing in it."""
    for one in found.findings:
        if one.verdict is not Verdict.SKIP:
            lines = [int(match[1]) for text in one.evidence if (match := LINE.search(text))] or [1]
            why = f"{one.seen}, expected {one.wanted}: {one.why}"
            yield left_out(min(lines), max(lines), why, "; ".join(one.evidence))


def _moved(problem: ImportProblem, at: list[int]) -> ImportProblem:
    """The same problem with lines of the whole input in place of those of the section."""

    def whole(match: re.Match[str]) -> str:
        number = int(match[1])
        return f"line {at[number - 1] + 1}" if 0 < number <= len(at) else match[0]

    where = LINE.sub(whole, problem.where)
    if where == WHOLE:
        where = f"lines {at[0] + 1}-{at[-1] + 1}"
    return ImportProblem(problem.what, where=where, why=problem.why, do=problem.do)


def _runs(at: Iterable[int], text: list[str]) -> Iterator[tuple[int, int]]:
    """Stretches of these indices; blank lines do not part them."""
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
        shown = excerpt(text[first], QUOTE_LIMIT)
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
