"""A bandwidth report as text, with heat maps for the terminal."""

from collections.abc import Iterator, Sequence

import click

from gpucheck.model import Verdict
from gpucheck.model.bandwidth import BandwidthReport, Measured, MeasuredPair
from gpucheck.printable import of_printable
from gpucheck.render.copies.cells import (
    LOW,
    LOW_TEXT,
    MARK,
    MEANING,
    TITLES,
    is_low,
    is_sparse,
    low_ends,
    used,
    verdicts,
)
from gpucheck.render.copies.measured import copies_of, peer_words, span
from gpucheck.render.findings.text import TROUBLE, blocks
from gpucheck.render.words import (
    describe_simulation,
    describe_size,
    first_line,
    last_line,
    list_versions,
    paragraphs,
    simulated_mark,
    table,
)

# Background and digits of a cell; their luminance differs as the verdicts do.
HEAT: dict[Verdict, tuple[tuple[int, int, int], str]] = {
    Verdict.FAIL: ((110, 12, 8), "bright_white"),
    Verdict.WARN: ((187, 122, 0), "black"),
    Verdict.PASS: ((226, 245, 233), "black"),
}
MIB = 1 << 20
NOTHING = "-"


@of_printable
def to_text(report: BandwidthReport, *, verbose: bool = False, width: int | None = None) -> str:
    """Who was measured, what is wrong, the matrices, measured against expected, and the findings that are good.

    verbose: how it was measured too. width: columns of the terminal.
    """
    bus_ids = tuple(device.bus_id for device in report.devices if device.bus_id)
    matrices = (name for name in TITLES if name in report.matrices and not is_sparse(report.matrices[name]))
    return paragraphs(
        [
            _head(report),
            blocks((f for f in report.findings if f.verdict in TROUBLE), bus_ids),
            *(_matrix(report, name) for name in matrices),
            _lone_cells(report),
            [*_peer_access(report), *_fabric_handles(report)],
            _pairs(report.pairs, width),
            _rest(report),
            _sizes(report, width),
            [f"method: {line}" for line in report.method] if verbose else [],
            blocks((f for f in report.findings if f.verdict not in TROUBLE), bus_ids, passes=True),
            [_last(report)],
        ]
    )


def _head(report: BandwidthReport) -> Iterator[str]:
    mark = simulated_mark(describe_simulation(report.simulation)) if report.simulated else ""
    yield first_line("bandwidth", report.host, mark)
    yield "; ".join(filter(None, (report.kind, ", ".join(list_versions(report.versions)))))
    yield from (
        f"{device.index}: {device.name}" + (f" {device.bus_id}" if device.bus_id else "") for device in report.devices
    )
    yield from (f"note: {note}" for note in report.notes)


def _lone_cells(report: BandwidthReport) -> Iterator[str]:
    """A sparse matrix is a line."""
    for name, title in TITLES.items():
        matrix = report.matrices.get(name)
        if matrix is None or not is_sparse(matrix):
            continue
        cells = [
            f"{src.index} to {dst.index} {cell:.1f}"
            for src, row in zip(report.devices, matrix, strict=True)
            for dst, cell in zip(report.devices, row, strict=True)
            if cell is not None
        ]
        yield f"{title.partition(' (')[0]}: {', '.join(cells)}"


def _peer_access(report: BandwidthReport) -> Iterator[str]:
    """What CUDA offers next to the status of NVML: one line if it is the same for all pairs."""
    access = report.peer_access
    if access is None:
        return
    words = peer_words(access)
    title = "peer access (row addresses the memory of column): CUDA, NVML status"
    if len(set(words.values())) == 1:
        yield f"{title}: {next(iter(words.values()))} for all {len(words)} ordered pairs"
        return
    yield title
    names = [str(device.index) for device in report.devices]
    rows = ([name, *(words.get((i, j), NOTHING) for j in range(len(names)))] for i, name in enumerate(names))
    yield from table(("", *names), rows)


def _fabric_handles(report: BandwidthReport) -> Iterator[str]:
    """Which GPUs other hosts of the NVLink domain can be given memory of. No line where CUDA was not queried."""
    known = [device for device in report.devices if device.fabric_handles is not None]
    offered = [str(device.index) for device in known if device.fabric_handles]
    if not known:
        return
    some = f"GPU {', '.join(offered)}" if offered else "no GPU"
    which = f"all {len(known)} GPUs" if len(offered) == len(report.devices) > 1 else some
    yield f"fabric memory handles (memory shared across hosts, IMEX): offered by {which}"


def _matrix(report: BandwidthReport, name: str) -> list[str]:
    matrix = report.matrices[name]
    colors = verdicts(name, matrix, report.pairs, report.devices, report.findings)
    labels = [str(device.index) for device in report.devices]
    low = low_ends(name, report.pairs)
    cells = [
        [_cell(cell, colors[i][j], is_low((i, j), cell, low)) for j, cell in enumerate(row)]
        for i, row in enumerate(matrix)
    ]
    width = max(len(text) for row in (labels, *cells) for text in row) + 1
    side = max(map(len, labels))
    lines = [TITLES[name], " " * side + "".join(label.rjust(width) for label in labels)]
    for label, row, shade in zip(labels, cells, colors, strict=True):
        shaded = (_shaded(text.rjust(width), color) for text, color in zip(row, shade, strict=True))
        lines.append(label.rjust(side) + "".join(shaded))
    meanings = [f"{MARK[verdict]} {MEANING[verdict]}" for verdict in used(colors)]
    lower = [f"{LOW} {LOW_TEXT}"] if any(text.startswith(LOW) for row in cells for text in row) else []
    return [*lines, *meanings, *lower]


def _cell(cell: float | None, verdict: Verdict | None, low: bool) -> str:
    mark = LOW if low and verdict is Verdict.PASS else MARK.get(verdict or Verdict.PASS, "")
    return NOTHING if cell is None or verdict is None else f"{mark}{cell:.1f}"


def _shaded(text: str, verdict: Verdict | None) -> str:
    if verdict is None or verdict not in HEAT:
        return click.style(text, dim=verdict is None)
    background, digits = HEAT[verdict]
    return click.style(text, fg=digits, bg=background)


def _pairs(pairs: Sequence[MeasuredPair], width: int | None) -> Iterator[str]:
    """Return measured and expected values, one line for equal pairs."""
    equal: dict[tuple[object, ...], list[tuple[MeasuredPair, Measured]]] = {}
    for pair in pairs:
        if pair.measured is not None:
            equal.setdefault((pair.cls, pair.expected_gb_s, pair.basis), []).append((pair, pair.measured))
    if not equal:
        return
    rows = []
    for (cls, _, basis), members in equal.items():
        rates = sorted(measured.gb_s for _, measured in members)
        ratios = sorted(pair.ratio for pair, _ in members if pair.ratio is not None)
        rows.append(
            [
                str(cls or "?"),
                str(len(members)),
                span(rates, ".1f"),
                f"{max(m.mad_percent for _, m in members):.1f} %",
                _range(members[0][0]),
                span(ratios, ".0%") if ratios else NOTHING,
                str(basis or "no expectation: the path or its links are not known, or peer access is off"),
            ]
        )
        rows += _both_ways([pair for pair, _ in members])
    yield from table(
        ("path", "pairs", "measured GB/s", "MAD", "expected (low to line rate)", "ratio", "basis"), rows, width
    )


def _both_ways(pairs: Sequence[MeasuredPair]) -> Iterator[list[str]]:
    """The same pairs with both directions at once, each counted once."""
    measured = [pair for pair in pairs if pair.both_ways_gb_s is not None and pair.src < pair.dst]
    sums = sorted(pair.both_ways_gb_s or 0.0 for pair in measured)
    ratios = sorted(pair.both_ways_ratio or 0.0 for pair in measured)
    wanted, low, high = (
        getattr(pairs[0], name) for name in ("both_ways_expected_gb_s", "both_ways_low_gb_s", "high_gb_s")
    )
    if sums and wanted is not None:
        yield [
            f"{pairs[0].cls} both ways",
            str(len(sums)),
            span(sums, ".1f"),
            NOTHING,
            f"{wanted:.1f} ({low:.1f} to {2 * high:.1f})",
            span(ratios, ".0%"),
            "twice one direction; the low end allows for what both share",
        ]


def _range(pair: MeasuredPair) -> str:
    if pair.expected_gb_s is None:
        return NOTHING
    return f"{pair.expected_gb_s:.1f} ({pair.low_gb_s:.1f} to {pair.high_gb_s:.1f})"


def _rest(report: BandwidthReport) -> Iterator[str]:
    names, found = [str(device.index) for device in report.devices], copies_of(report)
    if report.tensor:
        yield from (f"tensor {_tensor(name, value)}" for name, value in report.tensor.items())
    for name, rate in zip(names, report.local_gb_s, strict=False):
        if rate is not None:
            yield f"inside device {name} (device-local, not between GPUs): {rate:.1f} GB/s copied"
    if report.host_device:
        yield from table(
            ("device", "from host GB/s", "to host GB/s"),
            ([name, _number(h2d), _number(d2h)] for name, h2d, d2h in found.host_rows),
        )
    yield from found.crowd_lines
    if report.integrity:
        i = report.integrity
        yield (
            f"data: {i['bytes_verified'] / MIB:.0f} MiB compared in {i['rounds']} rounds, "
            f"{i['bytes_verified_under_load'] / MIB:.0f} MiB of them under load, {i['wrong_words']} wrong words"
        )


def _tensor(name: str, value: float) -> str:
    """``bytes`` and ``0 to 1, GB/s`` are keys of the report, with their unit at the end."""
    if name == "bytes":
        return f"of {value / 1e6:.6g} MB"
    way, _, unit = name.partition(", ")
    return f"{way}: {value:g} {unit}"


def _sizes(report: BandwidthReport, width: int | None) -> Iterator[str]:
    if not report.sizes:
        return
    ways = list(dict.fromkeys((point.src, point.dst, point.cls) for point in report.sizes))
    sizes = list(dict.fromkeys(point.size_bytes for point in report.sizes))
    rates = {(point.size_bytes, point.src, point.dst): point.gb_s for point in report.sizes}
    header = ("size", *(f"{report.devices[a].index} to {report.devices[b].index} ({cls or '?'})" for a, b, cls in ways))
    yield from table(
        header, ([describe_size(s), *(_number(rates.get((s, a, b))) for a, b, _ in ways)] for s in sizes), width
    )


def _number(gb_s: float | None) -> str:
    return NOTHING if gb_s is None else f"{gb_s:.1f}"


def _last(report: BandwidthReport) -> str:
    times = f"{report.device_s:.1f} s of device time (planned {report.planned_s:.1f}), {report.seconds:.1f} s in all"
    return last_line(report.verdict, report.counts, times, simulated_mark() if report.simulated else "")
