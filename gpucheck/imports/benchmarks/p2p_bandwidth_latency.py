"""p2pBandwidthLatencyTest of NVIDIA's cuda-samples, as text."""

import re
from typing import Any

from gpucheck.imports._blocks import spans
from gpucheck.imports._common import bus_id, by_pair, in_order
from gpucheck.imports._kind import MEASUREMENTS, Kind
from gpucheck.imports._numbers import AGAIN, is_cut_short, refuse_gib, square, table
from gpucheck.imports._problem import ImportProblem, absent
from gpucheck.imports._text import quoted
from gpucheck.model.diagnosis.observations import Flags, Matrix, Measured, Method, Observations, ObservedGpu

TOOL = "p2pBandwidthLatencyTest"
HEADING = re.compile(
    r"(?:(U?ni|Bi)directional )?P2P=(Enabled|Disabled) (Bandwidth|Latency)(?: \(P2P (Writes|Reads)\))? Matrix",
    re.IGNORECASE,
)
DEVICE = re.compile(
    r"^Device: (\d{1,3}), ([^\n,]{1,100}), pciBusID: ([0-9a-f]{1,2}), pciDeviceID: ([0-9a-f]{1,2})"
    r"(?:, pciDomainID: ?([0-9a-f]{1,8}))?",
    re.IGNORECASE,
)
ACCESS = re.compile(r"^Device=(\d{1,3}) (CAN|CANNOT) Access Peer Device=(\d{1,3})")


def parse(lines: list[str]) -> Observations:
    """GPUs, peer access and every whole matrix of the run. With reads and writes printed, the writes are taken.

    A run without any matrix has names and peer access only.

    Raises ImportProblem, and nothing else.
    """
    found: dict[str, Matrix] = {}
    direction: str | None = None
    broken: ImportProblem | None = None
    for number, line in enumerate(lines):
        heading = HEADING.search(line)
        if heading is None:
            continue
        refuse_gib(line, number + 1)
        key = _key(heading)
        if key is None or (key in found and (heading[4] or "").lower() == "reads"):
            continue
        try:
            found[key] = _matrix(lines, number, line)
        except ImportProblem as problem:
            if not is_cut_short(problem) or any(HEADING.search(later) for later in lines[number + 1 :]):
                raise
            broken = problem
            continue
        if heading[4] and key == "p2p_uni_gb_s":
            direction = heading[4].lower().removesuffix("s")
    gpus = _gpus(lines)
    if not found and gpus and broken is None:
        # A run that hung or was cut short before its first table still names the GPUs and their peer access.
        return Observations(gpus=gpus, p2p_access=_access(lines, len(gpus)))
    if not found:
        raise broken or absent(f"{TOOL} matrix", "no heading names one", AGAIN)
    sizes = {name: len(matrix) for name, matrix in found.items()}
    if len({*sizes.values(), *([len(gpus)] if gpus else [])}) > 1:
        words = ", ".join(f"{name} {size}" for name, size in sizes.items())
        raise ImportProblem(f"{TOOL}: tables of different sizes", why=f"{len(gpus)} devices, {words}", do=AGAIN)
    count = next(iter(sizes.values()))
    fields: dict[str, Any] = dict(found)
    return Observations(
        gpus=gpus or tuple(ObservedGpu() for _ in range(count)),
        p2p_access=_access(lines, count),
        measured=Measured(method=Method(direction=direction), **fields),  # type: ignore[arg-type]
    )


def _key(heading: re.Match[str]) -> str | None:
    """Return the field, None if the heading lost the word for unidirectional or bidirectional."""
    path = "p2p" if heading[2].lower() == "enabled" else "staged"
    if heading[3].lower() == "latency":
        return f"{path}_latency_us"
    way = (heading[1] or "").lower() or ("uni" if heading[4] else "")
    return f"{path}_{'bidir' if way == 'bi' else 'uni'}_gb_s" if way else None


def _matrix(lines: list[str], number: int, heading: str) -> Matrix:
    """Return the table below a heading; raise ImportProblem. Of a latency, the tables of GPU and CPU follow."""
    start = next((at for at in range(number + 1, min(number + 4, len(lines))) if lines[at].strip()), None)
    if start is None:
        raise ImportProblem(
            f"{TOOL}: a heading without a table",
            where=f"line {number + 1}",
            why=f"nothing follows {quoted(heading)}; the paste is cut short",
            do=AGAIN,
        )
    rows, end = table(lines, start, heading.strip()[:60])
    return square(rows, end - 1, heading.strip()[:60])


def _gpus(lines: list[str]) -> tuple[ObservedGpu, ...]:
    found: dict[int, ObservedGpu] = {}
    for line in lines:
        device = DEVICE.match(line.strip())
        if device:
            place = bus_id(device[5] or "0", device[3], device[4])
            found.setdefault(int(device[1]), ObservedGpu(model=device[2].strip(), bus_id=place))
    return in_order(found)


def _access(lines: list[str], count: int) -> Flags | None:
    reported = {
        (int(line[1]), int(line[3])): line[2] == "CAN" for text in lines if (line := ACCESS.match(text.strip()))
    }
    return by_pair(reported, count) if reported else None


FIRST = re.compile(r"^\s*\[P2P \(Peer-to-Peer\)")
INSIDE = re.compile(
    r"^\s*(?:\d|D\\D\b|[CG]PU\b|Device[:=]|P2P Connectivity|\*\*\*|NOTE\b|So you can see|In these cases)"
)
BEGIN = re.compile(rf"{FIRST.pattern}|^\s*Device: \d+, |^\s*Device=\d+ CAN|{HEADING.pattern}", re.IGNORECASE)

KIND = Kind(
    "p2p-bandwidth-latency-test",
    "the output of p2pBandwidthLatencyTest",
    parse,
    holds=MEASUREMENTS,
    hints=("P2P=", "p2p=", "Access Peer"),
    blocks=lambda lines: spans(lines, BEGIN, INSIDE, FIRST),
)
