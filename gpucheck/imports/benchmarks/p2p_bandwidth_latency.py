"""p2pBandwidthLatencyTest of NVIDIA's cuda-samples, as text."""

import re
from typing import Literal

from gpucheck.imports._blocks import spans
from gpucheck.imports._common import bus_id, by_pair, in_order
from gpucheck.imports._kind import MEASUREMENTS, Kind
from gpucheck.imports._numbers import AGAIN, Grid, of_other_size, refuse_gib, square, table
from gpucheck.imports._problem import ImportProblem, absent, left_out
from gpucheck.imports._regex import regex
from gpucheck.imports._text import quoted
from gpucheck.model.diagnosis import UnreadRange
from gpucheck.model.diagnosis.observations import Flags, Matrix, Measured, Method, Observations, ObservedGpu
from gpucheck.model.facts import Facts
from gpucheck.model.paste import Part

TOOL = "p2pBandwidthLatencyTest"
HEADING = regex(
    r"(?:(U?ni|Bi)directional )?P2P=(Enabled|Disabled) (Bandwidth|Latency)(?: \(P2P (Writes|Reads)\))? Matrix",
    re.IGNORECASE,
)
DEVICE = regex(
    r"^Device: (\d{1,3}), ([^\n,]{1,100}), pciBusID: ([0-9a-f]{1,2}), pciDeviceID: ([0-9a-f]{1,2})"
    r"(?:, pciDomainID: ?([0-9a-f]{1,8}))?",
    re.IGNORECASE,
)
ACCESS = regex(r"^Device=(\d{1,3}) (CAN|CANNOT) Access Peer Device=(\d{1,3})")


def parse(lines: list[str]) -> Part:
    """GPUs, peer access and every matrix of the run. With reads and writes printed, the writes are taken.

    A run without any matrix has names and peer access only. A matrix that is damaged is left out where another one
    can be read. Raises ImportProblem, and nothing else.
    """
    gpus = _gpus(lines)
    found, method, unread, broken = _matrices(lines, len(gpus))
    if not found and not gpus:  # a run that hung or was cut short still names the GPUs and their peer access
        raise broken or absent(f"{TOOL} matrix", "no heading names one", AGAIN)
    if not found and not unread:
        unread = (
            left_out(len(lines), len(lines), "no matrix: the run ended early or the paste is cut short", lines[-1]),
        )
    count = len(gpus) or len(next(iter(found.values())))
    seen = Observations(
        gpus=gpus or tuple(ObservedGpu() for _ in range(count)),
        p2p_access=_access(lines, count),
        measured=Measured(method=method, **found),  # type: ignore[arg-type]
    )
    return Part(facts=Facts(observed=seen), unread=unread)


def _matrices(
    lines: list[str], devices: int
) -> tuple[dict[str, Matrix], Method, tuple[UnreadRange, ...], ImportProblem | None]:
    """The matrices by field, what cannot be read, and what is wrong with the first of that. devices: 0 = unknown."""
    found: dict[str, Matrix] = {}
    direction: Literal["write", "read"] | None = None
    unread: list[UnreadRange] = []
    broken: ImportProblem | None = None
    for number, line in enumerate(lines, start=1):
        heading = HEADING.search(line)
        key = _key(heading) if heading else None
        if heading is None or key is None or (key in found and (heading[4] or "").lower() == "reads"):
            continue
        try:
            refuse_gib(line, number)
            grid = _grid(lines, number - 1, line)
            devices = devices or len(grid.rows)
            if len(grid.rows) != devices:
                raise of_other_size(line.strip()[:60], number, len(grid.rows), devices)
        except ImportProblem as problem:
            broken = broken or problem
            unread.append(left_out(number, number, f"{problem.what}: {problem.why}", line))
            continue
        if grid.lost:
            unread.append(left_out(number, grid.end, f"{grid.lost}; what is there was read", line))
        found[key] = grid.rows
        if heading[4] and key == "p2p_uni_gb_s":
            direction = "read" if heading[4].lower() == "reads" else "write"
    return found, Method(direction=direction), tuple(unread), broken


def _key(heading: re.Match[str]) -> str | None:
    """Return the field, None if the heading lost the word for unidirectional or bidirectional."""
    path = "p2p" if heading[2].lower() == "enabled" else "staged"
    if heading[3].lower() == "latency":
        return f"{path}_latency_us"
    way = (heading[1] or "").lower() or ("uni" if heading[4] else "")
    return f"{path}_{'bidir' if way == 'bi' else 'uni'}_gb_s" if way else None


def _grid(lines: list[str], number: int, heading: str) -> Grid:
    """Return the table below a heading; raise ImportProblem. Of a latency, the tables of GPU and CPU follow."""
    start = next((at for at in range(number + 1, min(number + 4, len(lines))) if lines[at].strip()), None)
    if start is None:
        raise ImportProblem(
            f"{TOOL}: a heading without a table",
            where=f"line {number + 1}",
            why=f"nothing follows {quoted(heading)}; the paste is cut short",
            do=AGAIN,
        )
    return square(table(lines, start, heading.strip()[:60]))


def _gpus(lines: list[str]) -> tuple[ObservedGpu, ...]:
    found: dict[int, ObservedGpu] = {}
    for line in lines:
        device = DEVICE.match(line.strip())
        if device:
            place = bus_id(device[5] or "0", device[3], device[4])
            found.setdefault(int(device[1]), ObservedGpu(model=device[2].strip(), bus_id=place))
    return in_order(found)


def _access(lines: list[str], count: int) -> Flags | None:
    """Peer access by the lines of each pair, else by the matrix of zeros and ones."""
    reported = _connectivity(lines) | {
        (int(line[1]), int(line[3])): line[2] == "CAN" for text in lines if (line := ACCESS.match(text.strip()))
    }
    return by_pair(reported, count) if reported else None


def _connectivity(lines: list[str]) -> dict[tuple[int, int], bool]:
    """The cells of ``P2P Connectivity Matrix``; rows that are cut are left out."""
    start = next((at for at, line in enumerate(lines) if CONNECTIVITY.match(line)), len(lines))
    columns = [word for word in " ".join(lines[start + 1 : start + 2]).split() if word.isdecimal()]
    rows = [line.split() for line in lines[start + 2 : start + 2 + len(columns)]]
    whole = [row for row in rows if len(row) == len(columns) + 1 and row[0].isdecimal() and {*row[1:]} <= {"0", "1"}]
    return {(int(row[0]), int(j)): word == "1" for row in whole for j, word in zip(columns, row[1:], strict=True)}


CONNECTIVITY = regex(r"^\s*P2P Connectivity Matrix")
FIRST = regex(r"^\s*\[P2P \(Peer-to-Peer\)")
INSIDE = regex(r"^\s*(?:\d|D\\D\b|[CG]PU\b|Device[:=]|P2P Connectivity|\*\*\*|NOTE\b|So you can see|In these cases)")
BEGIN = regex(
    rf"{FIRST.pattern}|{CONNECTIVITY.pattern}|^\s*Device: \d+, |^\s*Device=\d+ CAN|{HEADING.pattern}", re.IGNORECASE
)

KIND = Kind(
    "p2p-bandwidth-latency-test",
    "the output of p2pBandwidthLatencyTest",
    parse,
    holds=MEASUREMENTS,
    hints=("P2P=", "p2p=", "Access Peer", "P2P Connectivity"),
    blocks=lambda lines: spans(lines, BEGIN, INSIDE, FIRST),
)
