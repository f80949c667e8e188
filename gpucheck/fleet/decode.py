"""One JSON document -> rows. The document comes from a host that may be broken or hostile."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gpucheck.fleet import document as documents
from gpucheck.fleet.document import UNREADABLE
from gpucheck.fleet.row import LONGEST, PROBLEMS, REPORT, row
from gpucheck.model import Verdict
from gpucheck.model.fleet import SCHEMA as FLEET_SCHEMA
from gpucheck.model.fleet import FleetRow
from gpucheck.model.record import SCHEMA as REPORT_SCHEMA

# Written by provisioning next to the reports, by name and schema: what it did to each host, and what it would do.
NO_REPORTS = (("provision", "gpucheck.provision/1"), ("plan", "gpucheck.dry-run/1"))
# A report of an 8-GPU host is about 100 kB; anything near this is not one.
MAX_BYTES = 16 * 1024 * 1024
OVERSIZED = f"larger than {MAX_BYTES // 2**20} MiB, so it is not a host report"
# 72 GPUs with a finding a pair have 3,000; beyond this a document only costs time.
MAX_FINDINGS = 20_000
MAX_GPUS = 1024


class _Head(msgspec.Struct):
    """The part of a document that identifies its kind."""

    schema: str | None = None
    host: str | None = None
    msg: str | None = None
    unreachable: bool = False


_HEAD = msgspec.json.Decoder(_Head)


def rows_of(document: bytes, name: str, names: Sequence[str] = (), *, folder: str | None = None) -> Sequence[FleetRow]:
    """Return the row of a report, none for a document of provisioning, or one UNKNOWN row with the reason.

    name: the file or stream, for messages. names: what the host may be called, by its file or inventory; without any,
    name in the report counts. folder: of the file, which distinguishes equal names in several directories.
    """
    if len(document) > MAX_BYTES:
        return _no_report(document, name, names, None)
    try:
        report = documents.read(document)
        problems = documents.findings_of(document) if any(one.verdict in PROBLEMS for one in report.findings) else ()
    except UNREADABLE as error:
        return _no_report(document, name, names, error)
    if not 0 < len(report.host) <= MAX_HOST_NAME:
        return _no_report(document, name, names, None)
    for count, most, what in (
        (len(report.findings), MAX_FINDINGS, "findings"),
        (len(report.gpus), MAX_GPUS, "GPUs"),
    ):
        if count > most:
            return (unreadable(name, f"{count:,} {what}, and at most {most:,} are read", host=_host(names)),)
    host, stated = known_as(report.host, names)
    source = f"{folder}/{name}" if folder and (stated is not None or bare(name) not in names[:1]) else name
    digest = hashlib.sha256(document).hexdigest()[:16]
    return (row(report, problems, host=host, stated=stated, source=source, digest=digest),)


def unreadable(name: str, reason: str, *, host: str | None = None, code: str = "fleet.report-unreadable") -> FleetRow:
    """An UNKNOWN row for a file or stream without a report."""
    finding = REPORT.unknown(code, f"{name}: {reason}"[:LONGEST])
    known = (host or bare(name))[:MAX_HOST_NAME]
    return FleetRow(host=known, verdict=Verdict.UNKNOWN, problems=(finding,), source=name)


def _host(names: Sequence[str], stated: str | None = None) -> str | None:
    """Whose report it should be: never the one that a broken document names where its file has a name."""
    return names[0] if names else stated


def _no_report(document: bytes, name: str, names: Sequence[str], error: Exception | None) -> Sequence[FleetRow]:
    try:
        head = _HEAD.decode(document)
    except UNREADABLE as broken:
        return (unreadable(name, f"not a host report: {_words(broken)}", host=_host(names)),)
    if (bare(name), head.schema) in NO_REPORTS:
        return ()
    host = _host(names, head.host or None)
    if len(document) > MAX_BYTES:
        return (unreadable(name, OVERSIZED, host=host),)
    if head.schema == FLEET_SCHEMA:
        reason, code = "a merged fleet report, not a host's", "fleet.report-merged"
        return (unreadable(name, reason, host=_host(names), code=code),)
    if head.schema is None and (head.msg or head.unreachable):
        reason, code = f"the host gave no report: {head.msg or 'unreachable'}", "fleet.host-unreachable"
        return (unreadable(name, reason, host=_host(names), code=code),)
    if head.schema != REPORT_SCHEMA:
        found = "no schema" if head.schema is None else f"schema {head.schema!r}"
        reason = f"not a host report: {found}, this gpucheck reads {REPORT_SCHEMA!r}"
        return (unreadable(name, reason, host=host, code="fleet.schema-unknown"),)
    reason = _words(error) if error else f"it names no host, or in more than {MAX_HOST_NAME} characters"
    return (unreadable(name, f"not a host report: {reason}", host=host),)


def _words(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if "truncated" in str(error):
        return "it is cut off, or it is not JSON"
    return str(error) or type(error).__name__


MAX_HOST_NAME = 253
PACKED = (".gz", ".zst")
ENDINGS = (*PACKED, ".json", ".ndjson", ".jsonl")
# One host's reports over time: node01-2026-11-21.json, 2026-11-21/node01.json, node01/20261121T0300Z.json.
DATE = re.compile(r"(?:^|(?<=/)|[-_.@])\d{4}-?\d\d-?\d\d(?:[-_.T]?\d\d[-:.]?\d\d(?:[-:.]?\d\d)?Z?)?(?=/|$)")
# A file whose directory is named after the host.
OUR_FILE = "report"
# What may be a name of an inventory: the label of a stream that is one is the host's name.
HOST_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9_])?")


def bare(name: str) -> str:
    """Return the file name without what a report's file ends in."""
    for ending in ENDINGS:
        name = name.removesuffix(ending)
    return name


def names_of(path: Path) -> tuple[str, ...]:
    """Return the host names that the place of a report file stands for, the one that counts first."""
    name, folder = bare(path.name), path.absolute().parent.name
    undated = DATE.sub("", name)
    own = [] if undated in ("", OUR_FILE) else [undated, name]
    return tuple(dict.fromkeys(filter(None, (*own, folder, name))))


def known_as(host: str, names: Sequence[str]) -> tuple[str, str | None]:
    """Return the row's name, and the name in the report if they differ. names: from its place, or none."""
    if not names:
        return host, None
    found = next((name for name in names if _is_same(name, host)), None)
    return (names[0], host) if found is None else (found, None)


def origin(source: str | None) -> str:
    """Return what the reports of one host over time have in common: the file's or stream's name without a date."""
    return DATE.sub("", bare(source or "")).strip("/")


def _is_same(one: str, other: str) -> bool:
    """Whether two names are equal, or one is the short form of the other."""
    one, other = one.casefold(), other.casefold()
    return one == other or one == other.partition(".")[0] or one.partition(".")[0] == other
