"""Find JSON documents in what fleet tools print: NDJSON, concatenated JSON, and lines with a prefix a host.

Known: ``srun --label`` (``12: {``), ``kubectl logs --prefix`` (``[pod/gpucheck-x2x/gpucheck] {``) and ``ansible``
(``node07 | CHANGED | rc=0 >>`` before the document). Lines of several hosts may be interleaved where each carries its
prefix. Nothing larger than one document per prefix is held.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gpucheck.fleet.decode import MAX_BYTES

SRUN = re.compile(rb"^ *(\d{1,7}): ?")
KUBECTL = re.compile(rb"^\[(?:pod/)?([^\]\s]{1,253})\] ?")
ANSIBLE = re.compile(rb"^(\S{1,253}) \| ([A-Z]+)!?(?: \| rc=-?\d+)?(?: \| \(stdout\))? ?(?:>>|=>)?\s*")
# Braces that count: outside of strings. In JSON a string never spans lines.
TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}]')
MAX_PREFIXES = 200_000
MAX_LINE = MAX_BYTES
# What all that is open may hold together, looked at every so many lines.
MAX_HELD = 1024 * 1024 * 1024
LOOK = 1000


class Found(NamedTuple):
    """A document, or the reason why it is missing (document is None).

    label: the prefix before it. number: which of the stream's documents it is, from 1.
    """

    label: str
    document: bytes | None
    reason: str = ""
    number: int = 0


class _Open:
    """What is open behind one prefix: the bytes so far and how many braces wait to be closed."""

    __slots__ = ("depth", "parts", "size")

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.depth = 0
        self.size = 0


def documents(lines: Iterable[bytes]) -> Iterator[Found]:
    """Every document in order of its end; then what was still open when the input ended. Other text is passed over."""
    return (found._replace(number=number) for number, found in enumerate(_documents(lines), 1))


def _documents(lines: Iterable[bytes]) -> Iterator[Found]:
    open_: dict[str, _Open] = {}
    current = ""
    for number, line in enumerate(lines):
        if number % LOOK == 0 and sum(state.size for state in open_.values()) > MAX_HELD:
            largest = max(open_, key=lambda label: open_[label].size)
            del open_[largest]
            yield Found(largest, None, "not read: too many reports are interleaved in this stream")
        if len(line) > MAX_LINE:
            yield Found(current, None, f"a line of more than {MAX_LINE // 2**20} MiB, so it is not a host report")
            open_.pop(current, None)
            continue
        header = None if current in open_ else ANSIBLE.match(line)
        if header is None and line[:1] not in b'{}[" \t' and current in open_:
            # A new host's header while a document is open: the one before was cut off.
            header = ANSIBLE.match(line)
            if header:
                open_.pop(current)
                yield _cut(current)
        if header:
            current = _text(header[1])
            label, rest = current, line[header.end() :]
            if b"UNREACHABLE" in header[0] and not rest.strip():
                yield Found(current, None, "unreachable")
        else:
            label, rest = _prefix(line, current)
        yield from _feed(open_, label, rest)
    for label in open_:
        yield _cut(label)


def _feed(open_: dict[str, _Open], label: str, text: bytes) -> Iterator[Found]:
    """Add a line to what is open behind the label; a document ends where its braces are all closed."""
    state = open_.get(label)
    if state is None:
        if not text.lstrip().startswith(b"{") or len(open_) >= MAX_PREFIXES:
            return
        state = open_[label] = _Open()
    start = 0
    for token in TOKEN.finditer(text):
        brace = token[0]
        if brace == b"{":
            if not state.depth:
                start = token.start()
            state.depth += 1
        elif brace == b"}" and state.depth:
            state.depth -= 1
            if not state.depth:
                yield Found(label, b"".join((*state.parts, text[start : token.end()])))
                state.parts, state.size, start = [], 0, token.end()
    if not state.depth:
        del open_[label]
        return
    state.parts.append(text[start:])
    state.size += len(text) - start
    if state.size > MAX_BYTES:
        del open_[label]
        yield Found(label, None, f"larger than {MAX_BYTES // 2**20} MiB, so it is not a host report")


def _prefix(line: bytes, current: str) -> tuple[str, bytes]:
    for pattern, name in ((SRUN, "task "), (KUBECTL, "")):
        found = pattern.match(line)
        if found:
            return name + _text(found[1]), line[found.end() :]
    return current, line


def _cut(label: str) -> Found:
    return Found(label, None, "the report is cut off: its end is missing")


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")
