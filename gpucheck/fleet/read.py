"""Files, directories and streams -> rows, on all processors when there are many files. Nothing is dropped silently.

A document comes from a host that may be broken or hostile. A file is one report; a stream holds many, as they are
printed by ``srun --label`` (``12: {``), ``kubectl logs --prefix`` (``[pod/gpucheck-x2x/gpucheck] {``) or ``cat``.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import IO, Literal

import msgspec

from gpucheck.fleet.row import LONGEST, REPORT, row
from gpucheck.foreign import UnreadableInput, opened
from gpucheck.model import Report, System, Topology, TopologyGpu, Verdict
from gpucheck.model.answer import Answer
from gpucheck.model.compute import SCHEMA as COMPUTE_SCHEMA
from gpucheck.model.compute import ComputeReport
from gpucheck.model.fleet import SCHEMA as FLEET_SCHEMA
from gpucheck.model.fleet import FleetRow
from gpucheck.model.measurements import COMPUTE
from gpucheck.model.record import SCHEMA as REPORT_SCHEMA

# Written by provisioning next to the reports, by name and schema: what it did to each host, and what it would do.
NO_REPORTS = (("provision", "gpucheck.provision/1"), ("plan", "gpucheck.dry-run/1"))
# A report of an 8-GPU host is about 100 kB; anything near this is not one.
MAX_BYTES = 16 * 1024 * 1024
# 72 GPUs with a finding a pair have 3,000; beyond this a document only costs time.
MAX_FINDINGS = 20_000
MAX_GPUS = 1024
MAX_HOST_NAME = 253
STREAMS, PACKED = (".ndjson", ".jsonl"), (".gz", ".zst")
ENDINGS = (".json", *STREAMS)
REPORTS = tuple(f"{ending}{packed}" for ending in ENDINGS for packed in ("", *PACKED))
# What may be a name of an inventory.
HOST_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9_])?")
# Below this many files a second process costs more than it saves.
PARALLEL = 400
BATCH = 100

_ENCODER = msgspec.msgpack.Encoder()
_ROWS = msgspec.msgpack.Decoder(list[FleetRow])


class _Head(msgspec.Struct):
    """The part of a document that identifies its kind."""

    schema: str | None = None
    host: str | None = None
    msg: str | None = None
    unreachable: bool = False


class _Verified(Report, frozen=True, kw_only=True):
    """Only what calls itself a report is one."""

    schema: Literal["gpucheck.report/1"]


class _Computed(ComputeReport, frozen=True, kw_only=True):
    """The report of a burn-in, or of another run of ``gpucheck compute``."""

    schema: Literal["gpucheck.compute/1"]


_HEAD = msgspec.json.Decoder(_Head)
_VERIFIED, _COMPUTED = msgspec.json.Decoder(_Verified), msgspec.json.Decoder(_Computed)
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError)


def rows_of(document: bytes, name: str, host: str | None = None, *, folder: str = "") -> Sequence[FleetRow]:
    """Return the row of a report, none for a document of provisioning, or one UNKNOWN row with the reason.

    name: the file or place in a stream, for messages. host: what its file is called; without it, the name in the report
    counts. folder: of the file, which distinguishes files of one name whose reports are of another host.
    """
    if len(document) > MAX_BYTES:
        reason = f"larger than {MAX_BYTES // 2**20} MiB, so it is not a host report"
        return (unreadable(name, reason, host=host, code="fleet.report-oversized"),)
    try:
        report = _report(document)
    except UNREADABLE as error:
        return _no_report(document, name, host, _words(error))
    if not 0 < len(report.host) <= MAX_HOST_NAME:
        return _no_report(document, name, host, f"it names no host, or in more than {MAX_HOST_NAME} characters")
    gpus = report.topology.gpus if report.topology else ()
    for count, most, what in ((len(report.findings), MAX_FINDINGS, "findings"), (len(gpus), MAX_GPUS, "GPUs")):
        if count > most:
            return (unreadable(name, f"{count:,} {what}, and at most {most:,} are read", host=host),)
    stated = None if host is None or _is_same(host, report.host) else report.host
    source = f"{folder}/{name}" if folder and stated is not None else name
    digest = hashlib.sha256(document).hexdigest()[:16]
    return (row(report, host=host or report.host, stated=stated, source=source, digest=digest),)


def verified(document: bytes) -> Report:
    """Read a report of ``gpucheck verify``. Raises ValueError with the reason."""
    try:
        return _VERIFIED.decode(document)
    except UNREADABLE as error:
        raise ValueError(_words(error)) from error


def _report(document: bytes) -> Report:
    """Read the report of a host, or that of ``gpucheck compute`` as one without a system. Raises one of UNREADABLE."""
    try:
        return _VERIFIED.decode(document)
    except msgspec.ValidationError:
        if _HEAD.decode(document).schema != COMPUTE_SCHEMA:
            raise
    found = _COMPUTED.decode(document)
    gpus = tuple(
        TopologyGpu(index=gpu.index, name=gpu.name, uuid=gpu.uuid, pci_bus_id=gpu.bus_id)
        for gpu in found.gpus
        if gpu.is_gpu
    )
    return Report(
        **{name: getattr(found, name) for name in Answer.__struct_fields__ if name != "schema"},
        system=System(hostname=found.host, os_id="", os_version="", os_name="", arch="", kernel=""),
        versions=found.versions,
        measurements={COMPUTE: msgspec.to_builtins(found)},
        topology=Topology(simulated=found.simulated, source="", gpus=gpus, matrix=()),
    )


def unreadable(name: str, reason: str, *, host: str | None = None, code: str = "fleet.report-unreadable") -> FleetRow:
    """An UNKNOWN row for a file or stream without a report."""
    finding = REPORT.unknown(code, f"{name}: {reason}"[:LONGEST])
    return FleetRow(host=(host or name)[:MAX_HOST_NAME], verdict=Verdict.UNKNOWN, problems=(finding,), source=name)


def _no_report(document: bytes, name: str, host: str | None, reason: str) -> Sequence[FleetRow]:
    """host: never the one that a broken document names where its file has a name."""
    try:
        head = _HEAD.decode(document)
    except UNREADABLE as broken:
        return (unreadable(name, f"not a host report: {_words(broken)}", host=host),)
    if (_bare(name), head.schema) in NO_REPORTS:
        return ()
    host, code = host or head.host, "fleet.report-unreadable"
    if head.schema == FLEET_SCHEMA:
        reason, code = "a merged fleet report, not a host's", "fleet.report-merged"
    elif head.schema is None and (head.msg or head.unreachable):
        reason, code = f"the host gave no report: {head.msg or 'unreachable'}", "fleet.host-unreachable"
    elif head.schema != REPORT_SCHEMA:
        found = "no schema" if head.schema is None else f"schema {head.schema!r}"
        reason = f"not a host report: {found}, this gpucheck reads {REPORT_SCHEMA!r}"
        code = "fleet.schema-unknown"
    else:
        reason = f"not a host report: {reason}"
    return (unreadable(name, reason, host=host, code=code),)


def _words(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if "truncated" in str(error):
        return "it is cut off, or it is not JSON"
    if "trailing characters" in str(error):
        return "it holds more than one document. Name a file of several .ndjson"
    return str(error) or type(error).__name__


def _bare(name: str) -> str:
    """Return the file name without what a report's file ends in."""
    for ending in (*PACKED, *ENDINGS):
        name = name.removesuffix(ending)
    return name


def _is_same(one: str, other: str) -> bool:
    """Whether two names are equal, or one is the short form of the other."""
    one, other = one.casefold(), other.casefold()
    return one == other or one == other.partition(".")[0] or one.partition(".")[0] == other


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


def _batch(paths: list[Path]) -> bytes:
    return _ENCODER.encode([row for path in paths for row in read_file(path)])


def read_file(path: Path) -> Sequence[FleetRow]:
    """Rows of one file: a report, or a saved stream (``.ndjson``)."""
    host = _bare(path.name)
    if path.suffix in PACKED:
        return (unreadable(path.name, "is packed", host=host, code="fleet.report-packed"),)
    try:
        with opened(path) as file:
            if path.suffix in STREAMS:
                return list(read_stream(file, path.name))
            # Not MAX_BYTES where the size is known: room for that costs more than all the rest.
            size = os.fstat(file.fileno()).st_size
            content = file.read(min(size or MAX_BYTES, MAX_BYTES) + 1)
    except UnreadableInput as error:
        return (unreadable(path.name, error.what, host=host),)
    return rows_of(content, path.name, host, folder=path.absolute().parent.name)


# Streams. Whose a line is, of srun and of kubectl.
LABEL = re.compile(rb"^(?: *(\d{1,7}): ?|\[(?:pod/)?([^\]\s]{1,253})\] ?)")
# What all that is open may hold together.
MAX_HELD = 1024 * 1024 * 1024
CUT = "the report is cut off: its end is missing"


def read_stream(stream: IO[bytes], name: str = "stdin") -> Iterator[FleetRow]:
    """Return rows of a stream of documents. An empty stream is one such row."""
    number = 0
    for number, (label, found) in enumerate(_documents(stream), 1):
        where = f"{name}, {label or f'document {number}'}"
        yield from (unreadable(where, found),) if isinstance(found, str) else rows_of(found, where)
    if not number:
        yield unreadable(name, "it holds no JSON document")


def _documents(stream: IO[bytes]) -> Iterator[tuple[str, bytes | str]]:
    """Yield whose a document is, and the document or the reason why there is none. Other text is passed over.

    In order of their ends, then what was still open. A document is one line, or begins with a line ``{`` and ends with
    a line ``}``, as gpucheck prints it.
    """
    open_: dict[str, bytearray] = {}
    held = 0
    for line in iter(lambda: stream.readline(MAX_BYTES + 1), b""):
        label, text = _labelled(line)
        if text.startswith(b"{"):
            if label in open_:
                held -= len(open_.pop(label))
                yield label, CUT
            open_[label] = bytearray()
        if label not in open_:
            continue
        open_[label] += text
        held += len(text)
        last = text.rstrip()
        is_whole = last == b"}" or (text.startswith(b"{") and last.endswith(b"}"))
        if is_whole or len(open_[label]) > MAX_BYTES:
            held -= len(open_[label])
            yield label, bytes(open_.pop(label))
        if held > MAX_HELD:
            largest = max(open_, key=lambda one: len(open_[one]))
            held -= len(open_.pop(largest))
            yield largest, "not read: too many reports are interleaved in this stream"
    for label in open_:
        yield label, CUT


def _labelled(line: bytes) -> tuple[str, bytes]:
    """Return whose a line is, and the line without that."""
    mark = LABEL.match(line)
    if mark is None:
        return "", line
    task, pod = mark.groups()
    return f"task {task.decode()}" if task else pod.decode("utf-8", "replace"), line[mark.end() :]
