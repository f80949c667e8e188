"""Files, directories and streams -> rows, on all processors when there are many files. Nothing is dropped silently.

In what fleet tools print JSON documents are found: NDJSON, concatenated JSON, and lines with a prefix a host. Known are
``srun --label`` (``12: {``), ``kubectl logs --prefix`` (``[pod/gpucheck-x2x/gpucheck] {``) and ``ansible``
(``node07 | CHANGED | rc=0 >>`` before the document). Lines of several hosts may be interleaved where each carries its
prefix. Nothing larger than one document per prefix is held.
"""

import io
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from gpucheck.fleet.decode import (
    HOST_NAME,
    MAX_BYTES,
    OVERSIZED,
    PACKED,
    bare,
    known_as,
    names_of,
    rows_of,
    unreadable,
)
from gpucheck.foreign import UnreadableInput, opened
from gpucheck.model.fleet import FleetRow

ENDINGS = (".json", ".ndjson", ".jsonl")
REPORTS = tuple(f"{ending}{packed}" for ending in ENDINGS for packed in ("", *PACKED))
# A saved stream may be larger than a report.
MAX_STREAM_BYTES = 1024 * 1024 * 1024
# Below this many files a second process costs more than it saves.
PARALLEL = 400
BATCH = 100

_ENCODER = msgspec.msgpack.Encoder()
_ROWS = msgspec.msgpack.Decoder(list[FleetRow])


# Documents in a stream.
SRUN = re.compile(rb"^ *(\d{1,7}): ?")
KUBECTL = re.compile(rb"^\[(?:pod/)?([^\]\s]{1,253})\] ?")
ANSIBLE = re.compile(rb"^(\S{1,253}) \| ([A-Z]+)!?(?: \| rc=-?\d+)?(?: \| \(stdout\))? ?(?:>>|=>)?\s*")
# Braces that count: outside of strings. In JSON a string never spans lines.
TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}]')
MAX_PREFIXES = 200_000
CUT = "the report is cut off: its end is missing"
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
        if len(line) > MAX_BYTES:
            yield Found(current, None, OVERSIZED)
            open_.pop(current, None)
            continue
        header = None if current in open_ else ANSIBLE.match(line)
        if header is None and line[:1] not in b'{}[" \t' and current in open_:
            # A new host's header while a document is open: the one before was cut off.
            header = ANSIBLE.match(line)
            if header:
                open_.pop(current)
                yield Found(current, None, CUT)
        if header:
            current = _text(header[1])
            label, rest = current, line[header.end() :]
            if b"UNREACHABLE" in header[0] and not rest.strip():
                yield Found(current, None, "unreachable")
        else:
            label, rest = _prefix(line, current)
        yield from _feed(open_, label, rest)
    for label in open_:
        yield Found(label, None, CUT)


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
        yield Found(label, None, OVERSIZED)


def _prefix(line: bytes, current: str) -> tuple[str, bytes]:
    for pattern, name in ((SRUN, "task "), (KUBECTL, "")):
        found = pattern.match(line)
        if found:
            return name + _text(found[1]), line[found.end() :]
    return current, line


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")


# Files and directories.
def report_files(folder: Path) -> list[Path]:
    """The report files in a directory, by name: ``*.json``, also packed ones; hidden ones are being written.

    Names that are not files (a FIFO, a directory, a broken link) are included: their rows state what they are.
    """
    names = (entry.name for entry in os.scandir(folder) if not entry.name.startswith("."))
    return [folder / name for name in sorted(names) if name.endswith(REPORTS)]


def read_reports(paths: Iterable[Path]) -> Iterator[FleetRow]:
    """Return the rows of every file. A file that is not a report becomes an UNKNOWN row with the reason."""
    files = list(paths)
    workers = len(os.sched_getaffinity(0))
    if len(files) < PARALLEL or workers == 1:
        for path in files:
            yield from read_file(path)
        return
    batches = [files[i : i + BATCH] for i in range(0, len(files), BATCH)]
    # fork: a worker needs what is loaded here and nothing else, and starts in a millisecond.
    with ProcessPoolExecutor(min(workers, 16), mp_context=get_context("fork")) as pool:
        for packed in pool.map(_batch, batches):
            yield from _ROWS.decode(packed)


def read_stream(stream: IO[bytes], name: str = "stdin") -> Iterator[FleetRow]:
    """Return rows of a stream of documents, as ansible, kubectl or srun print it. An empty stream is one such row."""
    any_ = False
    for found in documents(_lines(stream)):
        any_ = True
        yield from _found(found, name)
    if not any_:
        yield unreadable(name, "it holds no JSON document")


def read_file(path: Path) -> Sequence[FleetRow]:
    """Rows of one file: a report, or a stream that was saved."""
    names = names_of(path)
    if path.suffix in PACKED:
        return (unreadable(path.name, "is packed", host=names[0], code="fleet.report-packed"),)
    try:
        return _rows(path, names)
    except UnreadableInput as error:
        return (unreadable(path.name, error.what, host=names[0]),)


def _rows(path: Path, names: Sequence[str]) -> Sequence[FleetRow]:
    """One report is held as a whole; a saved stream of any size is read a document at a time."""
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size <= MAX_BYTES:
            # Not MAX_BYTES where the size is known: room for that costs more than all the rest.
            return _content(file.read((size or MAX_BYTES) + 1), path, names)
        # One document that is too large: what is inside it are no documents of their own.
        found = documents(_lines(file)) if size <= MAX_STREAM_BYTES else iter(())
        start = next(found, None)
        if start is None or start.document is None:
            return (unreadable(path.name, OVERSIZED, host=names[0], code="fleet.report-oversized"),)
        return [row for each in (start, *found) for row in _found(each, path.name, names)]


def _batch(paths: list[Path]) -> bytes:
    return _ENCODER.encode([row for path in paths for row in read_file(path)])


def _content(content: bytes, path: Path, names: Sequence[str]) -> Sequence[FleetRow]:
    rows = rows_of(content, path.name, names, folder=path.absolute().parent.name)
    if len(rows) != 1 or rows[0].digest or not content.strip():
        return rows
    # Not one report: perhaps many in one file. A truncated file is distinguished from one without reports.
    found = list(documents(io.BytesIO(content)))
    if not found or (len(found) == 1 and found[0].document is not None):
        return rows
    if len(found) == 1 and not found[0].label:
        return (unreadable(path.name, found[0].reason, host=names[0]),)
    return [row for each in found for row in _found(each, path.name, names)]


def _found(found: Found, name: str, names: Sequence[str] = ()) -> Sequence[FleetRow]:
    """Rows of a document of a stream. names: of the host whose file the stream was saved to, if it is one host's."""
    where = f"{name}, {found.label or f'document {found.number}'}"
    if found.document is None:
        return (unreadable(where, found.reason, host=found.label or bare(name)),)
    if HOST_NAME.fullmatch(found.label):
        return rows_of(found.document, where, (found.label,))
    rows = rows_of(found.document, where)
    if len(rows) != 1:
        return rows
    (row,) = rows
    if row.digest is None and row.host == bare(where):
        return (msgspec.structs.replace(row, host=found.label or bare(name)),)
    if not found.label and names and known_as(row.host, names)[1] is None:
        # One host's file, written to again and again.
        return (msgspec.structs.replace(row, host=known_as(row.host, names)[0], source=name),)
    return rows


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Lines no longer than a document may be; the rest of a longer one is read and thrown away."""
    while line := stream.readline(MAX_BYTES + 1):
        yield line
        while len(line) > MAX_BYTES and not line.endswith(b"\n"):
            line = stream.readline(MAX_BYTES + 1)
