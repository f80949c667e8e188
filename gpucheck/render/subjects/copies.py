"""Copies between GPUs: their values, how far they are below what was expected, and the blocks that show them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gpucheck.model import Finding, Verdict
from gpucheck.model.bandwidth import (
    BandwidthReport,
    Matrix,
    MeasuredDevice,
    MeasuredPair,
)
from gpucheck.model.finding import bus_ids
from gpucheck.printable import of_printable
from gpucheck.render import blocks
from gpucheck.render.blocks import (
    Block,
    Cell,
    Document,
    Findings,
    Folded,
    Lines,
    Matrices,
    Row,
    Section,
    SideBySide,
    Table,
    document_of,
    numbers,
    words,
)
from gpucheck.render.findings import worst_first
from gpucheck.render.words import describe_size, figure, list_versions

# Name -> title.
TITLES = {
    "p2p_uni_gb_s": "unidirectional, GB/s (row to column)",
    "p2p_bidir_gb_s": "bidirectional, sum, GB/s",
    "p2p_latency_us": "latency of a small copy, us",
    "staged_uni_gb_s": "through host memory, unidirectional, GB/s",
    "staged_latency_us": "latency through host memory, us",
    "load_latency_us": "latency of a load by a kernel of the column, us",
}
# Findings about copies that concern the speed or the data of one direction or both.
CHECKS = ("p2p-bandwidth", "p2p-both-ways", "p2p-integrity", "p2p-copies", "nvlink-links")
BAD = (Verdict.FAIL, Verdict.WARN)
Low = Mapping[tuple[int, int], float | None]
MIB = 1 << 20
NOTHING = "-"


class PathRates(NamedTuple):
    """Ordered pairs of one class of path with one expectation. rates: measured in one direction, GB/s, sorted."""

    cls: str
    pairs: tuple[MeasuredPair, ...]
    rates: list[float]

    @property
    def first(self) -> MeasuredPair:
        """The one whose expectation all have."""
        return self.pairs[0]


def by_class(found: BandwidthReport) -> list[PathRates]:
    """Return one entry for pairs whose expectations read the same, also where nothing was measured."""
    equal: dict[tuple[object, ...], list[MeasuredPair]] = {}
    for pair in found.pairs:
        rates = (pair.expected_gb_s, pair.low_gb_s, pair.high_gb_s)
        key = (pair.cls, *(rate and figure(rate) for rate in rates), pair.basis)
        equal.setdefault(key, []).append(pair)
    return [
        PathRates(pairs[0].cls or "?", tuple(pairs), sorted(pair.measured.gb_s for pair in pairs if pair.measured))
        for pairs in equal.values()
    ]


def span(ordered: Sequence[float], form: str) -> str:
    """``10.9 to 18.2``, and one number where both ends read the same."""
    return " to ".join(dict.fromkeys((format(ordered[0], form), format(ordered[-1], form))))


def is_sparse(matrix: Matrix) -> bool:
    """Fewer numbers than rows: a reference that was taken on some pairs only."""
    return sum(cell is not None for row in matrix for cell in row) < len(matrix)


def verdicts(
    name: str,
    matrix: Matrix,
    pairs: Sequence[MeasuredPair],
    devices: Sequence[MeasuredDevice],
    findings: Iterable[Finding],
) -> list[list[Verdict | None]]:
    """Return the verdict of each cell; SKIP without an expectation, None where nothing was measured.

    A cell is as good as the findings about its pair, and below its low end as those about all copies of the host and
    about lost NVLinks of its GPUs: not as its part of a best value.
    """
    low = low_ends(name, pairs)
    named, slow, host = _by_pair(devices, pairs, findings)

    def verdict(place: tuple[int, int], cell: float | None) -> Verdict | None:
        if cell is None:
            return None
        found = [named[place]] if place in named and low else []
        end = low.get(place)
        if end is not None and cell < end:
            found += [one for one in (host, slow.get(place)) if one]
        return min(found, key=BAD.index) if found else Verdict.SKIP if end is None else Verdict.PASS

    return [[verdict((i, j), cell) for j, cell in enumerate(row)] for i, row in enumerate(matrix)]


def low_ends(name: str, pairs: Sequence[MeasuredPair]) -> Low:
    """Return below what each cell of the matrix is lower than expected, as far as that is known."""
    if name == "p2p_uni_gb_s":
        return {(pair.src, pair.dst): pair.low_gb_s for pair in pairs}
    if name == "p2p_bidir_gb_s":
        return {(pair.src, pair.dst): pair.both_ways_low_gb_s for pair in pairs}
    return {}


def _by_pair(
    devices: Sequence[MeasuredDevice], pairs: Sequence[MeasuredPair], findings: Iterable[Finding]
) -> tuple[dict[tuple[int, int], Verdict], dict[tuple[int, int], Verdict], Verdict | None]:
    """The worst verdict of each pair that a finding is about, of lost NVLinks of each pair, and of the host's copies.

    A GPU's lost NVLinks may slow its NVLink copies, and its PCIe link slows the others.
    """
    places = {device.bus_id: place for place, device in enumerate(devices) if device.bus_id}
    named: dict[tuple[int, int], Verdict] = {}
    slow: dict[tuple[int, int], Verdict] = {}
    host: list[Verdict] = []
    for finding in findings:
        if finding.check not in CHECKS or finding.verdict not in BAD:
            continue
        about = {places[bus_id] for bus_id in bus_ids(finding.subject) if bus_id in places}
        over_nvlink = finding.check == "nvlink-links"
        if not about:
            host.append(finding.verdict)
        for pair in pairs:
            ends = {pair.src, pair.dst}
            of_gpu = len(about) == 1 and about <= ends and over_nvlink == bool(pair.cls and pair.cls.startswith("NV"))
            if about == ends or of_gpu:
                place, by = (pair.src, pair.dst), slow if over_nvlink and about != ends else named
                by[place] = min(by.get(place, finding.verdict), finding.verdict, key=BAD.index)
    return named, slow, min(host, key=BAD.index, default=None)


def section(found: BandwidthReport, findings: Sequence[Finding], more: Sequence[Block] = ()) -> Section:
    """Return what was copied and how fast. more: blocks of a report of copies alone."""
    notes = [*_fabric_handles(found), *_lone_cells(found), *_integrity(found.integrity)]
    made: list[Block] = [
        SideBySide([_matrices(found, findings), [*_peer_access(found), *_host_memory(found)]]),
        *_expectations(found),
        Lines(notes),
        *more,
    ]
    made += [Folded("method", "How it was measured", Lines(found.method))] if found.method else []
    return Section("copies", "Copies between GPUs", made, "GB/s is 10^9 bytes per second", [found.kind, *found.notes])


def _matrices(found: BandwidthReport, findings: Sequence[Finding]) -> list[Block]:
    labels = [str(device.index) for device in found.devices]
    shown = []
    for name, title in TITLES.items():
        cells = found.matrices.get(name)
        if cells is not None and not is_sparse(cells):
            colors = verdicts(name, cells, found.pairs, found.devices, findings)
            low = low_ends(name, found.pairs)
            rates = {place: cells[place[0]][place[1]] for place in low}
            below = frozenset(
                p for p, end in low.items() if end is not None and (r := rates[p]) is not None and r < end
            )
            shown.append(blocks.Matrix(name, title, labels, cells, colors, below))
    return [Matrices(shown, _explained(found))] if shown else []


def _explained(found: BandwidthReport) -> dict[str, Any]:
    paths: dict[tuple[Any, ...], int] = {}
    pairs = {
        f"{p.src},{p.dst}": (
            paths.setdefault((p.cls, p.expected_gb_s, p.low_gb_s, p.basis), len(paths)),
            p.measured.gb_s if p.measured else None,
        )
        for p in found.pairs
    }
    devices = [(device.index, device.name, device.bus_id) for device in found.devices]
    return {"devices": devices, "paths": list(paths), "pairs": pairs}


def _lone_cells(found: BandwidthReport) -> Iterator[str]:
    """A sparse matrix is a line."""
    for name, title in TITLES.items():
        matrix = found.matrices.get(name)
        if matrix is None or not is_sparse(matrix):
            continue
        cells = [
            f"{src.index} to {dst.index} {cell:.1f}"
            for src, row in zip(found.devices, matrix, strict=True)
            for dst, cell in zip(found.devices, row, strict=True)
            if cell is not None
        ]
        if cells:
            yield f"{title.partition(' (')[0]}: {', '.join(cells)}"


def _peer_access(found: BandwidthReport) -> Iterator[Block]:
    """What CUDA offers next to the status of NVML: one line if it is the same for all pairs."""
    access, count = found.peer_access, len(found.devices)
    if access is None or count < 2:
        return
    offered = {None: "?", True: "yes", False: "no"}
    cells = {
        (i, j): f"{offered[cell]} {(access.nvml[i][j] if access.nvml else None) or ''}".rstrip()
        for i, row in enumerate(access.cuda)
        for j, cell in enumerate(row)
        if i != j
    }
    title = "Peer access (row addresses the memory of column): CUDA, with NVML's status"
    if len(set(cells.values())) == 1:
        yield Lines([f"{next(iter(cells.values()))}, for all {len(cells)} ordered pairs"], title)
        return
    names = [str(device.index) for device in found.devices]
    rows = [[name, *(cells.get((i, j), NOTHING) for j in range(count))] for i, name in enumerate(names)]
    yield Table(words("", *names, kind="keep"), rows, title, kind="narrow peer")


def _fabric_handles(found: BandwidthReport) -> Iterator[str]:
    """Which GPUs other hosts of the NVLink domain can be given memory of. No line where CUDA was not queried."""
    known = [device for device in found.devices if device.fabric_handles is not None]
    offered = [str(device.index) for device in known if device.fabric_handles]
    if known:
        some = f"GPU {', '.join(offered)}" if offered else "no GPU"
        which = f"all {len(known)} GPUs" if len(offered) == len(found.devices) > 1 else some
        yield f"fabric memory handles (memory shared across hosts, IMEX): offered by {which}"


def _host_memory(found: BandwidthReport) -> Iterator[Block]:
    """From and to the memory of each GPU's own NUMA node, by kernel, and of each node measured."""
    rows = []
    for link in found.host_device:
        name = str(found.devices[link.device].index)
        rows.append([name, rate(link.h2d_gb_s), rate(link.d2h_gb_s)])
        if link.h2d_kernel_gb_s or link.d2h_kernel_gb_s:
            rows.append([f"{name} by kernel", rate(link.h2d_kernel_gb_s), rate(link.d2h_kernel_gb_s)])
        rows += [[f"{name}, NUMA node {one.node}", rate(one.h2d_gb_s), rate(one.d2h_gb_s)] for one in link.by_node]
    if rows:
        columns = [*words("device"), *numbers("from host", "to host", unit="GB/s")]
        yield Table(columns, rows, "Host memory to GPU and back", kind="narrow")


def _expectations(found: BandwidthReport) -> Iterator[Block]:
    rows = [row for path in by_class(found) if path.rates for row in _path_rows(path)]
    if rows:
        columns = [
            *words("path"), *numbers("pairs"), *numbers("measured", unit="GB/s"), *numbers("MAD"),
            *numbers("expected (low to line rate)", unit="GB/s"), *numbers("ratio"), *words("basis"),
        ]  # fmt: skip
        yield Table(columns, rows, "Measured against expected", kind="roomy")


def _path_rows(path: PathRates) -> Iterator[Row]:
    first, ratios = path.first, sorted(pair.ratio for pair in path.pairs if pair.ratio is not None)
    low = first.low_gb_s is not None and path.rates[0] < first.low_gb_s
    ends = (first.low_gb_s, first.high_gb_s)
    yield [
        path.cls,
        str(len(path.pairs)),
        Cell(span(path.rates, ".1f"), tone="low" if low else ""),
        f"{max(pair.measured.mad_percent for pair in path.pairs if pair.measured):.1f} %",
        "" if first.expected_gb_s is None else f"{first.expected_gb_s:.1f} ({' to '.join(map(rate, ends))})",
        span(ratios, ".0%") if ratios else "",
        first.basis or "no expectation: the path or its links are not known, or peer access is off",
    ]
    both = [pair for pair in path.pairs if pair.both_ways_gb_s is not None and pair.src < pair.dst]
    sums, ratios = (
        sorted(getattr(pair, name) or 0.0 for pair in both) for name in ("both_ways_gb_s", "both_ways_ratio")
    )
    wanted, least = first.both_ways_expected_gb_s, first.both_ways_low_gb_s
    if both and wanted is not None and least is not None and first.high_gb_s is not None:
        yield [
            f"{path.cls} both ways",
            str(len(both)),
            Cell(span(sums, ".1f"), tone="low" if sums[0] < least else ""),
            "",
            f"{wanted:.1f} ({least:.1f} to {2 * first.high_gb_s:.1f})",
            span(ratios, ".0%"),
            "twice one direction; the low end allows for what both share",
        ]


def _integrity(data: Mapping[str, int]) -> Iterator[str]:
    if data:
        compared, loaded = (data.get(name, 0) / MIB for name in ("bytes_verified", "bytes_verified_under_load"))
        yield (
            f"data: {compared:.0f} MiB compared in {data.get('rounds', 0)} rounds, {loaded:.0f} MiB of them under "
            f"load, {data.get('wrong_words', 0)} wrong words"
        )


def rate(gb_s: float | None) -> str:
    return "" if gb_s is None else f"{gb_s:.1f}"


@of_printable
def document(report: BandwidthReport) -> Document:
    """Who was measured, the matrices, and measured against expected."""
    times = f"{report.device_s:.1f} s of device time (planned {report.planned_s:.1f}), {report.seconds:.1f} s in all"
    devices = [f"{one.index}: {one.name}" + (f" {one.bus_id}" if one.bus_id else "") for one in report.devices]
    more = [Lines(list(_alone(report))), *_sizes(report)]
    return document_of(
        report,
        "bandwidth",
        time=times,
        lines=[*filter(None, [", ".join(list_versions(report.versions))]), *devices],
        findings=Findings(worst_first(report.findings, [device.bus_id for device in report.devices if device.bus_id])),
        body=[section(report, report.findings, more)],
    )


def _alone(report: BandwidthReport) -> Iterator[str]:
    yield from (f"tensor {_tensor(name, value)}" for name, value in (report.tensor or {}).items())
    for device, rate in zip(report.devices, report.local_gb_s, strict=False):
        if rate is not None:
            yield f"inside device {device.index} (device-local, not between GPUs): {rate:.1f} GB/s copied"


def _tensor(name: str, value: float) -> str:
    """``bytes`` and ``0 to 1, GB/s`` are keys of the report, with their unit at the end."""
    if name == "bytes":
        return f"of {value / 1e6:.6g} MB"
    way, _, unit = name.partition(", ")
    return f"{way}: {value:g} {unit}"


def _sizes(report: BandwidthReport) -> Iterator[Block]:
    if not report.sizes:
        return
    ways = list(dict.fromkeys((point.src, point.dst, point.cls) for point in report.sizes))
    sizes = dict.fromkeys(point.size_bytes for point in report.sizes)
    rates = {(point.size_bytes, point.src, point.dst): point.gb_s for point in report.sizes}
    titles = (f"{report.devices[a].index} to {report.devices[b].index} ({cls or '?'})" for a, b, cls in ways)
    rows = [[describe_size(s), *(rate(rates.get((s, a, b))) for a, b, _ in ways)] for s in sizes]
    yield Table([*words("size"), *numbers(*titles, unit="GB/s")], rows, "By size")
