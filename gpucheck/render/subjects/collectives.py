"""A report of collectives, and what a host's page shows of one."""

from collections.abc import Sequence

from gpucheck.model import Report
from gpucheck.model.collectives import CollectiveResult, CollectivesReport
from gpucheck.model.measurements import collectives_of
from gpucheck.printable import of_printable
from gpucheck.render.blocks import (
    Cell,
    Column,
    Document,
    Lines,
    Row,
    Section,
    Table,
    document_of,
    numbers,
    words,
)
from gpucheck.render.words import describe_size, list_versions

ABOUT = "algbw is size over time, busbw comparable with link rates (nccl-tests' definitions); the slowest rank counts"


@of_printable
def document(report: CollectivesReport) -> Document:
    """Who took part, one row a collective and size, and what NCCL took."""
    hosts = f", {report.nodes} hosts, {report.ranks} ranks in all" if report.nodes > 1 else ""
    return document_of(
        report,
        "collectives",
        simulated="hardware; the traffic between CPU ranks is real" if report.simulated else None,
        lines=[
            "; ".join(filter(None, (f"{report.kind}{hosts}", ", ".join(list_versions(report.versions))))),
            *(f"note: {note}" for note in report.notes),
        ],
        body=[_section(report)] if report.results or report.transports or report.algorithms else [],
    )


def section(report: Report) -> Section | None:
    """Return what the step ``collectives`` measured, None if it has no results or another form of them."""
    kept = collectives_of(report.measurements)
    return None if kept is None else _section(kept)._replace(about=kept.kind, lines=kept.notes)


def _section(one: CollectivesReport) -> Section:
    channels = ", ".join(f"{kind} on {count} channels" for kind, count in one.transports.items())
    algorithms = (f"algorithm: {name} {', '.join(chosen)}" for name, chosen in one.algorithms.items())
    taken = Lines([*([f"transport: {channels}"] if channels else []), *algorithms])
    return Section("collectives", "Collectives", [_results(one.results), taken] if one.results else [taken])


def _results(results: Sequence[CollectiveResult]) -> Table:
    expects = any(one.expected_busbw_gb_s is not None for one in results)
    columns: list[Column] = [
        *words("collective"), *numbers("size"), *words("run"), *numbers("time", unit="us"), *numbers("MAD"),
        *numbers("algbw", "busbw", *(["expected"] if expects else []), unit="GB/s"), *numbers("checked", "wrong"),
    ]  # fmt: skip
    rows: list[Row] = [
        [
            one.operation,
            describe_size(one.size_bytes),
            one.variant,
            _number(one.time_us),
            f"{one.mad_percent:.1f} %" if one.mad_percent is not None else "",
            _number(one.algbw_gb_s),
            _number(one.busbw_gb_s),
            *([_number(one.expected_busbw_gb_s)] if expects else []),
            str(one.checked),
            Cell(str(one.wrong) if one.note is None else one.note, tone="off" if one.wrong else ""),
        ]
        for one in results
    ]
    return Table(columns, rows, about=ABOUT)


def _number(number: float | None) -> str:
    return "" if number is None else f"{number:.2f}"
