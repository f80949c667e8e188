"""A search for bad nodes: what was found, the rounds, and the nodes that are not good."""

from collections.abc import Sequence

from gpucheck.model import Verdict
from gpucheck.model.isolation import GroupTest, IsolationReport
from gpucheck.printable import of_printable
from gpucheck.render.blocks import (
    Cell,
    Document,
    Folded,
    Row,
    Section,
    Table,
    document_of,
    numbers,
    words,
)
from gpucheck.render.words import plural

FEW = 20  # nodes in a round that are named
IN_MATRIX = 16


@of_printable
def document(report: IsolationReport) -> Document:
    """What was found, a line a round, and every test with -v."""
    reference = ""
    if report.reference_gb_s and report.limit_gb_s:
        reference = f"; two healthy nodes reach {report.reference_gb_s:.3g} GB/s, below {report.limit_gb_s:.3g} is slow"
    return document_of(
        report,
        "isolate",
        simulated="fleet; nothing was measured" if report.simulated else None,
        unread="No node was tested.",
        lines=[f"{plural(len(report.nodes), 'node')}, {plural(report.tests, 'test')}{reference}"],
        unproven=report.unproven,
        body=[Section("rounds", "Rounds", [_rounds(report)]), *_nodes(report), *_pairs(report)],
        foot=[Folded("tests", "Tests", _tests(report))],
    )


def _rounds(report: IsolationReport) -> Table:
    rows: list[Row] = []
    for number, results in enumerate(report.results, start=1):
        pairs = [one for one in results if len(one.nodes) == 2]
        rates = sorted(one.busbw_gb_s for one in results if one.busbw_gb_s is not None)
        others = ", ".join(str(len(one.nodes)) for one in results if len(one.nodes) != 2)
        ended = sum(one.state == "done" for one in results)
        span = f"{rates[0]:.3g} to {rates[-1]:.3g}" if rates else ""
        rows.append([str(number), str(len(pairs)), others, f"{ended} of {len(results)}", span])
    columns = [*numbers("round", "pairs"), *words("groups of"), *numbers("complete"), *numbers("busbw", unit="GB/s")]
    return Table(columns, rows)


def _nodes(report: IsolationReport) -> list[Section]:
    """Nodes that are not good, and their tests; more than a few of one kind are counted in the findings."""
    bad = [one for one in report.nodes if one.verdict is not Verdict.PASS][: 5 * FEW]
    tests = _of_two(report)
    rows: list[Row] = [
        [
            one.name,
            Cell(one.verdict.name, tone=one.verdict.value),
            one.cause or "",
            ", ".join(f"{_partner(test, one.name)} {_result(test)}" for test in tests if one.name in test.nodes),
        ]
        for one in bad
    ]
    columns = [*words("node", "verdict", "cause"), *words("tests with one other node (GB/s)")]
    return [Section("nodes", "Nodes that are not good", [Table(columns, rows)])] if rows else []


def _of_two(report: IsolationReport) -> list[GroupTest]:
    return [one for each in report.results for one in each if len(one.nodes) == 2]


def _partner(test: GroupTest, name: str) -> str:
    return test.nodes[test.nodes[0] == name]


def _result(test: GroupTest) -> str:
    return _number(test.busbw_gb_s) if test.state == "done" else test.state


def _pairs(report: IsolationReport) -> list[Section]:
    """The worst test of each pair, as a matrix; of a large fleet, of nodes that are not good and their partners."""
    tests = _of_two(report)
    names, about = [one.name for one in report.nodes], "GB/s, the worst test of each pair"
    if len(names) > IN_MATRIX:
        bad = [one.name for one in report.nodes if one.verdict is not Verdict.PASS]
        near = {name: [_partner(one, name) for one in tests if name in one.nodes] for name in bad}
        names = list(dict.fromkeys(one for name in bad for one in (name, *near[name])))[:IN_MATRIX]
        left = len(set(bad) - set(names))
        about += f"; without {left} more nodes that are not good" if left else ""
    shown: dict[tuple[str, str], Cell] = {}
    for one in sorted(tests, key=lambda one: -(one.busbw_gb_s or 0.0) if one.state == "done" else 1.0):
        a, b = one.nodes
        is_bad = one.state != "done" or (one.busbw_gb_s or 0.0) < (report.limit_gb_s or 0.0)
        shown[a, b] = shown[b, a] = Cell(_result(one), tone="fail" if is_bad else "")
    shown = {pair: cell for pair, cell in shown.items() if {*pair} <= {*names}}
    rows: list[Row] = [[name, *(shown.get((name, other), "") for other in names)] for name in names]
    return [Section("pairs", "Pairs", [Table([*words("node"), *numbers(*names)], rows, about=about)])] if shown else []


def _tests(report: IsolationReport) -> Table:
    def names(nodes: Sequence[str]) -> str:
        return " ".join(nodes) if len(nodes) <= FEW else f"{len(nodes)} nodes: {nodes[0]} ... {nodes[-1]}"

    rows: list[Row] = [
        [str(number), names(one.nodes), one.state, _number(one.busbw_gb_s), _number(one.latency_us), one.detail]
        for number, results in enumerate(report.results, start=1)
        for one in results
    ]
    columns = [*numbers("round"), *words("nodes", "ended"), *numbers("busbw", unit="GB/s"), *numbers("time", unit="us")]
    return Table([*columns, *words("detail")], rows)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
