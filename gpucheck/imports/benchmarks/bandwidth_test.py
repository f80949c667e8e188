"""bandwidthTest of NVIDIA's CUDA samples: copies between host memory and one GPU, as text or --csv."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpucheck.imports._blocks import spans, with_lines_above
from gpucheck.imports._kind import MEASUREMENTS, Blocks, Kind
from gpucheck.imports._numbers import AGAIN, MOST_GPUS
from gpucheck.imports._problem import absent
from gpucheck.imports._regex import regex
from gpucheck.model.diagnosis.observations import HostDevice, Measured, Method, Observations, ObservedGpu
from gpucheck.model.facts import Facts
from gpucheck.model.paste import Part

TOOL = "bandwidthTest"
LARGE = 8_000_000  # bytes; below that the start of a copy takes a good part of the time
FASTEST = 1e5  # GB/s
FACTORS = {"G": 1.0, "M": 1.048576e-3}  # to 10**9 bytes/s; versions up to CUDA 9 count 2**20 bytes as MB

FIRST = regex(r"^\s*\[CUDA Bandwidth Test\]")
DEVICE = regex(r"^\s*Device (\d{1,2}): (\S.{0,98}\S)\s*$")
MODE = regex(r"^\s*(?:Quick|Range|Shmoo) Mode\s*$")
HEADING = regex(r"^\s*(Host to Device|Device to Host|Device to Device) Bandwidth, (\d{1,2}) Device\(s\)")
MEMORY = regex(r"^\s*(PINNED|PAGEABLE)[\w -]{0,30} Memory Transfers")
UNIT = regex(r"Transfer Size \(Bytes\)\s{1,20}Bandwidth\(([GM])B/s\)")
ROW = regex(r"^\s*(\d{3,12})\s{1,40}(\d{1,8}(?:\.\d{1,6})?)\s*$")
CSV = regex(
    r"^\s*bandwidthTest-(H2D|D2H|D2D)(?:-(Pinned|Paged))?[\w-]{0,20}, Bandwidth = (\d{1,8}(?:\.\d{1,6})?) ([GM])B/s,"
    r" Time = [\d.]{1,12} s, Size = (\d{1,12}) bytes, NumDevsUsed = (\d{1,2})"
)
WAYS = {"Host to Device": "H2D", "Device to Host": "D2H", "Device to Device": "D2D"}
BEGIN = regex(f"{FIRST.pattern}|{HEADING.pattern}|{CSV.pattern}")
DEVICE_BEFORE = regex(f"{DEVICE.pattern}|{MODE.pattern}|" + r"^\s*Running on\.\.\.")
INSIDE = regex(
    "|".join(part.pattern for part in (DEVICE, MODE, HEADING, MEMORY, UNIT, ROW, CSV))
    + r"|^\s*(?:Running on\.\.\.|Result = (?:PASS|FAIL)|NOTE: The CUDA Samples|\.{5,}|Transfer Size|Choosing|!!!)"
)


class _Copy(NamedTuple):
    """One row. counts: of one GPU, from pinned memory and large enough to measure the link."""

    way: str
    gb_s: float
    counts: bool


def parse(lines: list[str]) -> Part:
    """The fastest copy each way of one GPU from pinned memory. Raises ImportProblem, and nothing else."""
    copies = [*_of_tables(lines), *_of_csv(lines)]
    if not copies:
        raise absent(f"{TOOL} result", "no copy is listed", AGAIN)
    best: dict[str, float] = {}
    for copy in copies:
        if copy.counts and 0 < copy.gb_s < FASTEST:
            best[copy.way] = max(best.get(copy.way, 0.0), copy.gb_s)
    devices = {int(device[1]): device[2] for line in lines if (device := DEVICE.match(line))}
    return _part(best, devices)


def _of_tables(lines: list[str]) -> Iterator[_Copy]:
    way = unit = memory = ""
    used = 0
    for line in lines:
        if heading := HEADING.match(line):
            way, used, unit, memory = WAYS[heading[1]], int(heading[2]), "", ""
        elif found := MEMORY.match(line):
            memory = found[1]
        elif found := UNIT.search(line):
            unit = found[1]
        elif (row := ROW.match(line)) and way and unit:
            counts = memory == "PINNED" and used == 1 and int(row[1]) >= LARGE
            yield _Copy(way, float(row[2]) * FACTORS[unit], counts)


def _of_csv(lines: list[str]) -> Iterator[_Copy]:
    for line in lines:
        if row := CSV.match(line):
            counts = row[2] == "Pinned" and row[6] == "1" and int(row[5]) >= LARGE
            yield _Copy(row[1], float(row[3]) * FACTORS[row[4]], counts)


def _part(best: dict[str, float], devices: dict[int, str]) -> Part:
    looked_at = (f"copies between host memory and a GPU ({TOOL})",)
    index = next(iter(devices), 0)
    if len(devices) > 1 or index >= MOST_GPUS or not {"H2D", "D2H"} & set(best):
        return Part(looked_at=looked_at)
    gpus = (*(ObservedGpu() for _ in range(index)), ObservedGpu(model=devices.get(index)))
    row = HostDevice(gpu=index, h2d_gb_s=best.get("H2D"), d2h_gb_s=best.get("D2H"))
    measured = Measured(method=Method(engine="ce"), host_device=(row,))
    return Part(facts=Facts(observed=Observations(gpus=gpus, measured=measured)), looked_at=looked_at)


def _blocks(lines: Sequence[str]) -> Blocks:
    """Each run by itself, with the lines that name the device above its first table."""
    runs = spans(lines, BEGIN, INSIDE, FIRST)
    for first, end in with_lines_above(lines, runs, lambda line: not line.strip() or DEVICE_BEFORE.match(line)):
        yield next(at for at in range(first, end + 1) if lines[at].strip()), end


KIND = Kind(
    "bandwidth-test",
    "the output of bandwidthTest",
    parse,
    holds=MEASUREMENTS,
    hints=("Device(s)", "bandwidthTest-", "CUDA Bandwidth Test"),
    blocks=_blocks,
)
