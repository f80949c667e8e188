"""Files, directories and streams -> rows, on all processors when there are many files. Nothing is dropped silently."""

import io
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import IO

import msgspec

from gpucheck.fleet.decode import HOST_NAME, MAX_BYTES, PACKED, bare, known_as, names_of, rows_of, unreadable
from gpucheck.fleet.stream import Found, documents
from gpucheck.foreign import UnreadableInput, opened
from gpucheck.model import FleetRow

ENDINGS = (".json", ".ndjson", ".jsonl")
# The beginning of a file, which shows whether it is text. A saved stream may be larger than a report.
PEEK = 4096
MAX_STREAM_BYTES = 1024 * 1024 * 1024
# Below this many files a second process costs more than it saves.
PARALLEL = 400
BATCH = 100
OVERSIZED = "fleet.report-oversized"

_ENCODER = msgspec.msgpack.Encoder()
_ROWS = msgspec.msgpack.Decoder(list[FleetRow])


def report_files(folder: Path) -> list[Path]:
    """The report files in a directory, by name: ``*.json``, also packed ones; hidden ones are being written.

    Names that are not files (a FIFO, a directory, a broken link) are included: their rows state what they are.
    """
    names = (entry.name for entry in os.scandir(folder) if not entry.name.startswith("."))
    return [folder / name for name in sorted(names) if _is_report(name)]


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
        is_text = b"\0" not in file.read(PEEK)
        most = MAX_STREAM_BYTES if is_text else MAX_BYTES
        reason = f"larger than {most // 2**20} MiB, so it is not a host report"
        if size > most:
            return (unreadable(path.name, reason, host=names[0], code=OVERSIZED),)
        file.seek(0)
        found = documents(_lines(file))
        start = next(found, None)
        # One document that is too large: what is inside it are no documents of their own.
        if start is None or start.document is None:
            reason = f"larger than {MAX_BYTES // 2**20} MiB, so it is not a host report"
            return (unreadable(path.name, reason, host=names[0], code=OVERSIZED),)
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


def _is_report(name: str) -> bool:
    for ending in PACKED:
        name = name.removesuffix(ending)
    return name.endswith(ENDINGS)
