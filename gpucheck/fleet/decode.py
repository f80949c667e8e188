"""One JSON document -> rows. The document comes from a host that may be broken or hostile."""

import hashlib
from collections.abc import Sequence

import msgspec

from gpucheck.fleet.alike import Alike
from gpucheck.fleet.row import row
from gpucheck.model import Finding, FleetRow, Report, Verdict
from gpucheck.model.fleet import SCHEMA as FLEET_SCHEMA
from gpucheck.model.fleet import SHARD_SCHEMA
from gpucheck.model.report import SCHEMA as REPORT_SCHEMA

# What provisioning writes beside the reports: what it did to each host, and no verdict on any.
BESIDE_SCHEMA = "gpucheck.provision/1"
# A report of an 8-GPU host is about 60 kB; anything near this is not one.
MAX_BYTES = 16 * 1024 * 1024
# A shard holds thousands of hosts.
MAX_SHARD_BYTES = 1024 * 1024 * 1024
MAX_HOST_NAME = 253


class _Shard(msgspec.Struct):
    """A shard whose rows are decoded one by one: all at once they take four times what is kept of them."""

    rows: tuple[msgspec.Raw, ...]


_REPORT = msgspec.json.Decoder(Report)
_SHARD = msgspec.json.Decoder(_Shard)
_ROW = msgspec.json.Decoder(FleetRow)


class _Head(msgspec.Struct):
    """Enough of a document to say what it is."""

    schema: str | None = None
    host: str | None = None
    msg: str | None = None
    unreachable: bool = False


_HEAD = msgspec.json.Decoder(_Head)


def rows_of(document: bytes, name: str) -> Sequence[FleetRow]:
    """The row of a report, the rows of a shard, or one UNKNOWN row that says why there is none.

    name: the file or stream, for messages; also the host's name where the document does not say it.
    """
    if len(document) <= MAX_BYTES:
        try:
            report = _REPORT.decode(document)
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError) as error:
            return _no_report(document, name, error)
        if report.schema == REPORT_SCHEMA and 0 < len(report.host) <= MAX_HOST_NAME:
            return (row(report, source=name, digest=hashlib.sha256(document).hexdigest()[:16]),)
    return _no_report(document, name, None)


def unreadable(name: str, reason: str, *, host: str | None = None, fix: str = "run verify again") -> FleetRow:
    """An UNKNOWN row for a file or stream without a report."""
    finding = problem(f"{name}: {reason}", "this holds no report that can be merged", fix)
    known = (host or bare(name))[:MAX_HOST_NAME]
    return FleetRow(host=known, verdict=Verdict.UNKNOWN, problems=(finding,), source=name)


def problem(seen: str, why: str, fix: str) -> Finding:
    """A finding about the report itself."""
    return Finding(check="report", verdict=Verdict.UNKNOWN, subject="host", seen=seen[:500], why=why, fix=fix)


def bare(name: str) -> str:
    """The file name without what a report's file ends in."""
    for ending in (".gz", ".zst", ".json"):
        name = name.removesuffix(ending)
    return name


def _no_report(document: bytes, name: str, error: Exception | None) -> Sequence[FleetRow]:
    """Say what the document is instead: a shard is as good as reports, everything else is named."""
    try:
        head = _HEAD.decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError) as broken:
        return (unreadable(name, f"not a host report: {_words(broken)}"),)
    if head.schema == SHARD_SCHEMA:
        return _shard(document, name)
    if head.schema == BESIDE_SCHEMA:
        return ()
    host = head.host if head.host else None
    if len(document) > MAX_BYTES:
        return (unreadable(name, f"larger than {MAX_BYTES // 2**20} MiB, so it is no host report", host=host),)
    if head.schema == FLEET_SCHEMA:
        fix = "give the hosts' reports, and this file with --previous"
        return (unreadable(name, "a merged fleet report, not a host's", fix=fix),)
    if head.schema is None and (head.msg or head.unreachable):
        reason = f"the host gave no report: {head.msg or 'unreachable'}"
        return (unreadable(name, reason, fix="repair the way to the host, then run verify again"),)
    if head.schema is not None and head.schema != REPORT_SCHEMA:
        reason = f"schema {head.schema!r}, this gpucheck reads {REPORT_SCHEMA!r}"
        return (unreadable(name, reason, host=host, fix="use one version of gpucheck on all hosts and here"),)
    if host is not None and len(host) > MAX_HOST_NAME:
        return (unreadable(name, f"a host name of {len(host)} characters, {MAX_HOST_NAME} are allowed"),)
    reason = _words(error) if error else "it names no host"
    return (unreadable(name, f"not a host report: {reason}", host=host),)


def _shard(document: bytes, name: str) -> Sequence[FleetRow]:
    alike = Alike()
    rows: list[FleetRow] = []
    try:
        rows.extend(alike.row(_ROW.decode(raw)) for raw in _SHARD.decode(document).rows)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError) as error:
        reason = f"a broken shard, after {len(rows)} good rows: {_words(error)}"
        return (unreadable(name, reason, fix="make the shard again"),)
    return rows


def _words(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if "truncated" in str(error):
        return "it is cut off, or it is not JSON"
    return str(error) or type(error).__name__
