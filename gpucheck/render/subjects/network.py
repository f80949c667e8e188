"""A report of network cards: a row for each card or pair with each memory."""

from collections.abc import Iterator, Sequence

from gpucheck.model.network import REDUCED, NetworkReport, NicMeasurement
from gpucheck.printable import of_printable
from gpucheck.render.blocks import (
    Cell,
    Document,
    Folded,
    Lines,
    Row,
    Section,
    Table,
    document_of,
    numbers,
    words,
)

ABOUT = "GB/s: 10^9 bytes of payload per second, in one direction; on the wire: the bytes left the card"
OPERATIONS = ("write", "read", "send")
WIRE = {True: "yes", False: "no", None: "not known"}


@of_printable
def document(report: NetworkReport) -> Document:
    """The numbers with their limits, and what rose at the ports."""
    cards = len({name for row in report.results for name in (row.client, row.server)})
    rose = [f"{port}: {name} +{count}" for port, found in report.counters.items() for name, count in found.items()]
    return document_of(
        report,
        "network",
        lines=[f"{cards} network cards, {report.engine}"] if cards else [],
        body=[
            *([Section("network", "Network cards", [_table(report.results)])] if report.results else []),
            Folded("counter", "Counters that rose", Lines(rose)),
            Folded("method", "How it was measured", Lines(report.method)),
        ],
    )


def _table(results: Sequence[NicMeasurement]) -> Table:
    operations = (*OPERATIONS, *([REDUCED] if any(one.operation == REDUCED for one in results) else []))
    columns = [
        *words("card", "memory", "run"), *numbers(*operations, "limit", unit="GB/s"), *numbers("latency", unit="us"),
        *words("limited by", "on the wire"),
    ]  # fmt: skip
    return Table(columns, list(_rows(results, operations)), about=ABOUT)


def _rows(results: Sequence[NicMeasurement], operations: Sequence[str]) -> Iterator[Row]:
    groups: dict[tuple[str, ...], dict[str, NicMeasurement]] = {}
    for one in results:
        name = one.client if one.client == one.server else f"{one.client} to {one.server}"
        run = "NCCL" if one.operation == REDUCED else "all at once" if one.together else "alone"
        groups.setdefault((name, one.memory, run), {})[one.operation] = one
    for (name, memory, run), found in groups.items():
        first = next((one for one in found.values() if one.expected_gb_s is not None), next(iter(found.values())))
        limit = "" if first.expected_gb_s is None else f"{first.expected_gb_s:.2f}"
        cells = [_cell(found[what]) if what in found else "" for what in (*operations, "latency")]
        yield [name, memory, run, *cells[:-1], limit, cells[-1], first.basis, WIRE[first.wire]]


def _cell(one: NicMeasurement) -> Cell | str:
    if one.value is None:
        return Cell("failed", tone="off")
    return Cell(f"{one.value:.2f}", "" if one.alone is None else f"{one.alone:.2f} again")
