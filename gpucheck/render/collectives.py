"""A collectives report as text and as JSON (``gpucheck.collectives/1``), and what a host's page shows of one."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from gpucheck.model import Report
from gpucheck.model.collectives import CollectiveResult, CollectivesReport
from gpucheck.printable import of_printable
from gpucheck.render.findings.text import blocks
from gpucheck.render.json import to_json
from gpucheck.render.words import (
    describe_size,
    first_line,
    last_line,
    list_versions,
    paragraphs,
    simulated_mark,
    table,
)

__all__ = ["Ran", "of_report", "to_json", "to_text"]
STEP = "collectives"


class Ran(NamedTuple):
    """What ran between ranks, for a page. sizes: of the results, as text. expects: whether any has an expectation."""

    kind: str
    results: tuple[CollectiveResult, ...]
    sizes: list[str]
    expects: bool
    transports: str
    algorithms: str
    notes: tuple[str, ...]


class _Kept(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a CollectivesReport that the page needs. Fields as there."""

    kind: str = ""
    results: tuple[CollectiveResult, ...] = ()
    transports: dict[str, int] = {}
    algorithms: dict[str, tuple[str, ...]] = {}
    notes: tuple[str, ...] = ()


def of_report(report: Report) -> Ran | None:
    """Return the section of the step ``collectives``, None if it has no results or another form of them."""
    try:
        kept = msgspec.convert(report.measurements.get(STEP, {}), _Kept)
    except msgspec.ValidationError:
        return None
    if not kept.results:
        return None
    return Ran(
        kept.kind,
        kept.results,
        [describe_size(one.size_bytes) for one in kept.results],
        any(one.expected_busbw_gb_s is not None for one in kept.results),
        _transports(kept.transports),
        "; ".join(f"{name} {', '.join(chosen)}" for name, chosen in kept.algorithms.items()),
        kept.notes,
    )


@of_printable
def to_text(report: CollectivesReport, *, width: int | None = None) -> str:
    """Who took part, one line a collective and size, what NCCL took, and the findings, worst first.

    width: columns of the terminal.
    """
    return paragraphs(
        [
            _head(report),
            _results(report.results, width),
            _taken(report),
            blocks(report.findings, passes=True),
            [_last(report)],
        ]
    )


def _head(report: CollectivesReport) -> Iterator[str]:
    mark = simulated_mark("hardware; the traffic between CPU ranks is real") if report.simulated else ""
    yield first_line("collectives", report.host, mark)
    hosts = f", {report.nodes} hosts, {report.ranks} ranks in all" if report.nodes > 1 else ""
    yield "; ".join(filter(None, (f"{report.kind}{hosts}", ", ".join(list_versions(report.versions)))))
    yield from (f"note: {note}" for note in report.notes)


def _results(results: Sequence[CollectiveResult], width: int | None) -> Iterator[str]:
    if not results:
        return
    expects = any(one.expected_busbw_gb_s is not None for one in results)
    header = ["collective", "size", "run", "time us", "MAD", "algbw GB/s", "busbw GB/s", "checked", "wrong"]
    rows = [
        [
            result.operation,
            describe_size(result.size_bytes),
            result.variant,
            _number(result.time_us),
            f"{result.mad_percent:.1f} %" if result.mad_percent is not None else "-",
            _number(result.algbw_gb_s),
            _number(result.busbw_gb_s),
            str(result.checked),
            str(result.wrong) if result.note is None else result.note,
        ]
        for result in results
    ]
    if expects:
        header.insert(7, "expected GB/s")
        for row, result in zip(rows, results, strict=True):
            row.insert(7, _number(result.expected_busbw_gb_s))
    yield from table(header, rows, width)
    yield "algbw is size over time, busbw comparable with link rates (nccl-tests' definitions); the slowest rank counts"


def _number(number: float | None) -> str:
    return "-" if number is None else f"{number:.2f}"


def _transports(channels: Mapping[str, int]) -> str:
    return ", ".join(f"{kind} on {count} channels" for kind, count in channels.items())


def _taken(report: CollectivesReport) -> Iterator[str]:
    if report.transports:
        yield f"transport: {_transports(report.transports)}"
    for name, chosen in report.algorithms.items():
        yield f"algorithm: {name} {', '.join(chosen)}"


def _last(report: CollectivesReport) -> str:
    mark = simulated_mark() if report.simulated else ""
    return last_line(report.verdict, report.counts, f"in {report.seconds:.1f} s", mark)
