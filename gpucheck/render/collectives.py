"""A collectives report as text and as JSON (``gpucheck.collectives/1``)."""

from collections.abc import Iterator

import click

from gpucheck.model.collectives import CollectivesReport
from gpucheck.printable import of_printable
from gpucheck.render.findings.text import blocks
from gpucheck.render.json import to_json
from gpucheck.render.words import counts_line, simulated_mark, table, verdict_word

__all__ = ["to_json", "to_text"]


@of_printable
def to_text(report: CollectivesReport) -> str:
    """Who took part, one line a collective and size, what NCCL took, and the findings, worst first."""
    parts = [
        list(_head(report)),
        list(_results(report)),
        list(_taken(report)),
        list(blocks(report.findings, passes=True)),
        [_last(report)],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _head(report: CollectivesReport) -> Iterator[str]:
    mark = f"  {simulated_mark('hardware; the traffic between CPU ranks is real')}" if report.simulated else ""
    yield click.style(f"gpucheck collectives  {report.host}", bold=True) + mark
    hosts = f", {report.nodes} hosts, {report.ranks} ranks in all" if report.nodes > 1 else ""
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items() if version)
    yield f"{report.kind}{hosts}" + (f"; {versions}" if versions else "")
    yield from (f"note: {note}" for note in report.notes)


def _results(report: CollectivesReport) -> Iterator[str]:
    if not report.results:
        return
    header = ("collective", "size", "run", "time us", "MAD", "algbw GB/s", "busbw GB/s", "checked", "wrong")
    rows = [
        [
            result.operation,
            str(result.size_bytes),
            result.variant,
            _number(result.time_us),
            f"{result.mad_percent:.1f} %" if result.mad_percent is not None else "-",
            _number(result.algbw_gb_s),
            _number(result.busbw_gb_s),
            str(result.checked),
            str(result.wrong) if result.note is None else result.note,
        ]
        for result in report.results
    ]
    yield from table(header, rows)
    yield "algbw is size over time, busbw comparable with link rates (nccl-tests' definitions); the slowest rank counts"


def _number(number: float | None) -> str:
    return "-" if number is None else f"{number:.2f}"


def _taken(report: CollectivesReport) -> Iterator[str]:
    if report.transports:
        yield "transport: " + ", ".join(f"{kind} on {n} channels" for kind, n in report.transports.items())
    for name, chosen in report.algorithms.items():
        yield f"algorithm: {name} {', '.join(chosen)}"


def _last(report: CollectivesReport) -> str:
    mark = f"  {simulated_mark()}" if report.simulated else ""
    return f"{verdict_word(report.verdict, 0)}  {counts_line(report.counts)}  in {report.seconds:.1f} s{mark}"
