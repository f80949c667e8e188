"""Files, folders and streams -> rows, on all processors when there are many files. Nothing is dropped silently."""

import gzip
import io
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import IO

import msgspec

from gpucheck.fleet.decode import MAX_BYTES, MAX_SHARD_BYTES, bare, rows_of, unreadable
from gpucheck.fleet.stream import Found, documents
from gpucheck.model import FleetRow

ENDINGS = (".json", ".ndjson", ".jsonl")
PACKED = (".gz", ".zst")
# What a packed file may grow to. Reports shrink 10 to 40 times, so more than this from one file is an attack.
MAX_UNPACKED = 1024 * 1024 * 1024
MAX_RATIO = 400
CHUNK = 1024 * 1024
# Below this many files a second process costs more than it saves.
PARALLEL = 400
BATCH = 100

_ENCODER = msgspec.msgpack.Encoder()
_ROWS = msgspec.msgpack.Decoder(list[FleetRow])


class _Bomb(ValueError):
    """A packed file grew beyond any report."""


def report_files(folder: Path) -> list[Path]:
    """The report files in a folder, by name: ``*.json``, packed or not; hidden ones are being written."""
    names = (entry.name for entry in os.scandir(folder) if not entry.name.startswith(".") and entry.is_file())
    return [folder / name for name in sorted(names) if _is_report(name)]


def read_reports(paths: Iterable[Path]) -> Iterator[FleetRow]:
    """Rows of every file. A file that is no report becomes an UNKNOWN row that says why."""
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
    """Rows of a stream of documents, as ansible, kubectl or srun print it. An empty stream is a row that says so."""
    any_ = False
    for found in documents(_lines(stream)):
        any_ = True
        yield from _found(found, name)
    if not any_:
        yield unreadable(name, "it holds no JSON document")


def read_file(path: Path) -> Sequence[FleetRow]:
    """Rows of one file: a report, a shard, or a stream that was saved."""
    try:
        if path.suffix in PACKED:
            return _packed(path)
        size = path.stat().st_size
        if size > MAX_SHARD_BYTES:
            return (unreadable(path.name, f"larger than {MAX_SHARD_BYTES // 2**20} MiB, so it is no host report"),)
        return _content(path.read_bytes(), path.name)
    except _Bomb as error:
        return (unreadable(path.name, str(error), fix="look at where this file comes from"),)
    except OSError as error:
        return (unreadable(path.name, error.strerror or str(error)),)
    except (EOFError, zlib.error, ValueError) as error:
        return (unreadable(path.name, f"cannot be unpacked: {error}"),)
    except ModuleNotFoundError as error:
        fix = f"install it: python -m pip install {error.name}"
        return (unreadable(path.name, f"needs the Python package {error.name}", fix=fix),)


def _batch(paths: list[Path]) -> bytes:
    return _ENCODER.encode([row for path in paths for row in read_file(path)])


def _content(content: bytes, name: str) -> Sequence[FleetRow]:
    rows = rows_of(content, name)
    if len(rows) != 1 or rows[0].digest or not content.strip():
        return rows
    # Not one report: perhaps many in one file. A file that is cut off is told from one that holds none.
    found = list(documents(io.BytesIO(content)))
    if not found or (len(found) == 1 and (found[0].document is not None or len(content) > MAX_BYTES)):
        return rows
    return [row for each in found for row in _found(each, name)]


def _found(found: Found, name: str) -> Sequence[FleetRow]:
    where = f"{name}, {found.label}" if found.label else name
    if found.document is None:
        return (unreadable(where, found.reason, host=found.label or bare(name)),)
    rows = rows_of(found.document, where)
    if found.label and len(rows) == 1 and rows[0].digest is None and rows[0].host == bare(where):
        return (msgspec.structs.replace(rows[0], host=found.label),)
    return rows


def _packed(path: Path) -> Sequence[FleetRow]:
    return _content(unpacked(path), path.name)


def unpacked(path: Path) -> bytes:
    """The content of a packed file, in pieces and refused where it grows too far: a few kB can hold terabytes.

    Raises ValueError, OSError, EOFError or zlib.error where it is broken.
    """
    limit = min(MAX_UNPACKED, max(MAX_BYTES, path.stat().st_size * MAX_RATIO))
    parts, size = [], 0
    with path.open("rb") as raw:
        for piece in _unpacked(raw, path.suffix):
            size += len(piece)
            if size > limit:
                raise _Bomb(f"unpacks to more than {limit // 2**20} MiB, so it is no host report")
            parts.append(piece)
    return b"".join(parts)


def _unpacked(raw: IO[bytes], suffix: str) -> Iterator[bytes]:
    """The content in pieces. Raises ValueError, OSError, EOFError or zlib.error where it is broken."""
    if suffix == ".gz":
        with gzip.GzipFile(fileobj=raw) as stream:
            yield from iter(lambda: stream.read(CHUNK), b"")
        return
    import zstandard

    try:
        # max_window_size: what a frame may ask for; the format would allow 2 GiB.
        unpacker = zstandard.ZstdDecompressor(max_window_size=2**27)
        with unpacker.stream_reader(raw, read_across_frames=True) as reader:
            yield from iter(lambda: reader.read(CHUNK), b"")
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error


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
