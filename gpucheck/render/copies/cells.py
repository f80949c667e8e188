"""The cells of a matrix of copies: which matrices there are, and the verdict of each cell."""

from collections.abc import Iterable, Mapping, Sequence

from gpucheck.model import Finding, Verdict
from gpucheck.model.bandwidth import Matrix, MeasuredDevice, MeasuredPair
from gpucheck.model.finding.naming import bus_ids

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
COPIES = ("p2p-bandwidth", "p2p-both-ways", "p2p-integrity", "p2p-copies", "nvlink-links")
BAD = (Verdict.FAIL, Verdict.WARN)
# Printable in every locale; a page has its own signs.
MARK = {Verdict.FAIL: "*", Verdict.WARN: "!"}
MEANING = {
    Verdict.FAIL: "the pair fails",
    Verdict.WARN: "the pair has a warning",
}
# A number below the low end is marked; without a finding it has no other color.
LOW, LOW_TEXT = "<", "below the low end of what is expected"
Low = Mapping[tuple[int, int], float | None]


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

    A cell is as good as the findings about its pair, and below its low end as those about all copies of the host:
    not as its part of a best value.
    """
    low = low_ends(name, pairs)
    named, host = _by_pair(devices, pairs, findings)

    def verdict(place: tuple[int, int], cell: float | None) -> Verdict | None:
        if cell is None:
            return None
        found = [named[place]] if place in named and low else []
        end = low.get(place)
        if end is not None and cell < end and host:
            found.append(host)
        return min(found, key=BAD.index) if found else Verdict.SKIP if end is None else Verdict.PASS

    return [[verdict((i, j), cell) for j, cell in enumerate(row)] for i, row in enumerate(matrix)]


def used(cells: Iterable[Iterable[Verdict | None]]) -> list[Verdict]:
    """Return the verdicts that occur and need an explanation, the worst first."""
    found = {verdict for row in cells for verdict in row}
    return [verdict for verdict in BAD if verdict in found]


def is_low(place: tuple[int, int], cell: float | None, low: Low) -> bool:
    """Return whether a cell is below its low end. low: as low_ends() returns it."""
    end = low.get(place)
    return cell is not None and end is not None and cell < end


def low_ends(name: str, pairs: Sequence[MeasuredPair]) -> Low:
    """Return below what each cell of the matrix is lower than expected, as far as that is known."""
    if name == "p2p_uni_gb_s":
        return {(pair.src, pair.dst): pair.low_gb_s for pair in pairs}
    if name == "p2p_bidir_gb_s":
        return {(pair.src, pair.dst): pair.both_ways_low_gb_s for pair in pairs}
    return {}


def _by_pair(
    devices: Sequence[MeasuredDevice], pairs: Sequence[MeasuredPair], findings: Iterable[Finding]
) -> tuple[dict[tuple[int, int], Verdict], Verdict | None]:
    """The worst verdict of each pair that a finding is about, and of the host's findings about copies.

    A GPU's lost NVLinks slow its NVLink copies, and its PCIe link the others.
    """
    places = {device.bus_id: place for place, device in enumerate(devices) if device.bus_id}
    named: dict[tuple[int, int], Verdict] = {}
    host: list[Verdict] = []
    for finding in findings:
        if finding.check not in COPIES or finding.verdict not in BAD:
            continue
        about = {places[bus_id] for bus_id in bus_ids(finding.subject) if bus_id in places}
        over_nvlink = finding.check == "nvlink-links"
        if not about:
            host.append(finding.verdict)
        for pair in pairs:
            ends = {pair.src, pair.dst}
            of_gpu = len(about) == 1 and about <= ends and over_nvlink == bool(pair.cls and pair.cls.startswith("NV"))
            if about == ends or of_gpu:
                place = (pair.src, pair.dst)
                named[place] = min(named.get(place, finding.verdict), finding.verdict, key=BAD.index)
    return named, min(host, key=BAD.index, default=None)
