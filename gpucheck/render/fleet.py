"""A merged fleet report as a terminal table and as JSON."""

from collections.abc import Iterator

import click
import msgspec

from gpucheck.model import FleetReport, FleetRow
from gpucheck.render.words import counts_line, printable, simulated_mark, table, value, verdict_word


def to_json(fleet: FleetReport) -> str:
    """The outside contract, indented."""
    return msgspec.json.format(msgspec.json.encode(fleet), indent=2).decode()


def to_text(fleet: FleetReport) -> str:
    """One line a host, then the problems by host, then the verdict. Every simulated line says so."""
    header = ("verdict", "host", "system", "GPUs", "driver", "training", "findings", "hardware")
    lines = table(header, (_cells(row) for row in fleet.hosts))
    problems = [line for row in fleet.hosts for line in _problems(row)]
    stands_in = sorted({text for row in fleet.hosts for text in row.stand_ins})
    lines += ["", *problems] if problems else []
    lines += ["", *(f"{simulated_mark()} stands in: {printable(text)}" for text in stands_in)] if stands_in else []
    mark = f"  {simulated_mark()}" if fleet.simulated else ""
    lines += ["", f"{verdict_word(fleet.verdict, 0)}  {len(fleet.hosts)} hosts: {counts_line(fleet.counts)}{mark}"]
    return "\n".join(lines) + "\n"


def _cells(row: FleetRow) -> tuple[str, ...]:
    real = "real" if row.system else "-"
    hardware = simulated_mark(printable(row.simulation or "")) if row.simulated else real
    text = (row.host, row.system, row.gpus, row.driver, row.training, counts_line(row.counts) if row.counts else None)
    return (verdict_word(row.verdict), *(printable(cell) if cell else "-" for cell in text), hardware)


def _problems(row: FleetRow) -> Iterator[str]:
    mark = f"  {simulated_mark()}" if row.simulated else ""
    for finding in row.problems:
        subject = f" {finding.subject}" if finding.subject != "host" else ""
        yield (
            f"{verdict_word(finding.verdict)} "
            + click.style(printable(row.host), bold=True)
            + printable(f"  {finding.check}{subject}: {value(finding, finding.seen)}")
            + mark
        )
        yield f"        why  {printable(finding.why)}"
        yield f"        do   {printable(finding.fix)}"
