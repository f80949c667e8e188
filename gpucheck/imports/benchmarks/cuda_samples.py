"""NVIDIA's CUDA samples that copy: bandwidthTest, p2pBandwidthLatencyTest and simpleP2P."""

import re
from collections.abc import Iterator, Sequence
from typing import Literal

from gpucheck.imports._kind import Blocks, Kind
from gpucheck.imports._numbers import AGAIN, MOST_GPUS, tables
from gpucheck.imports._text import (
    ImportProblem,
    bus_id,
    by_pair,
    in_order,
    left_out,
    regex,
    spans,
    with_lines_above,
)
from gpucheck.model.diagnosis.observations import Flags, HostDevice, Matrix, Measured, Method, Observations, ObservedGpu
from gpucheck.model.facts import Facts
from gpucheck.model.paste import Part

# bandwidthTest of NVIDIA's CUDA samples: copies between host memory and one GPU, as text or --csv.
LARGE = 8_000_000  # bytes; below that the start of a copy takes a good part of the time
FASTEST = 1e5  # GB/s
FACTORS = {"G": 1.0, "M": 1.048576e-3}  # to 10**9 bytes/s; versions up to CUDA 9 count 2**20 bytes as MB

BANDWIDTH_FIRST = regex(r"^\s*\[CUDA Bandwidth Test\]")
BANDWIDTH_DEVICE = regex(r"^\s*Device (\d{1,2}): (\S.{0,98}\S)\s*$")
MODE = regex(r"^\s*(?:Quick|Range|Shmoo) Mode\s*$")
BANDWIDTH_HEADING = regex(r"^\s*(Host to Device|Device to Host|Device to Device) Bandwidth, (\d{1,2}) Device\(s\)")
MEMORY = regex(r"^\s*(PINNED|PAGEABLE)[\w -]{0,30} Memory Transfers")
UNIT = regex(r"Transfer Size \(Bytes\)\s{1,20}Bandwidth\(([GM])B/s\)")
ROW = regex(r"^\s*(\d{3,12})\s{1,40}(\d{1,8}(?:\.\d{1,6})?)\s*$")
CSV = regex(
    r"^\s*bandwidthTest-(H2D|D2H|D2D)(?:-(Pinned|Paged))?[\w-]{0,20}, Bandwidth = (\d{1,8}(?:\.\d{1,6})?) ([GM])B/s,"
    r" Time = [\d.]{1,12} s, Size = (\d{1,12}) bytes, NumDevsUsed = (\d{1,2})"
)
FAILED = regex(r"^\s*Result = FAIL")
WAYS = {"Host to Device": "H2D", "Device to Host": "D2H", "Device to Device": "D2D"}
BANDWIDTH_BEGIN = regex(f"{BANDWIDTH_FIRST.pattern}|{BANDWIDTH_HEADING.pattern}|{CSV.pattern}")
DEVICE_BEFORE = regex(f"{BANDWIDTH_DEVICE.pattern}|{MODE.pattern}|" + r"^\s*Running on\.\.\.")
BANDWIDTH_INSIDE = regex(
    "|".join(part.pattern for part in (BANDWIDTH_DEVICE, MODE, BANDWIDTH_HEADING, MEMORY, UNIT, ROW, CSV))
    + r"|^\s*(?:Running on\.\.\.|Result = (?:PASS|FAIL)|NOTE: The CUDA Samples|\.{5,}|Transfer Size|Choosing|!!!)"
)


def bandwidth_parse(lines: list[str]) -> Part | None:
    """The fastest copy each way of one GPU, from pinned memory and large enough to measure the link."""
    copies = [*_of_tables(lines), *_of_csv(lines)]
    best: dict[str, float] = {}
    for way, gb_s, counts in copies:
        if counts and 0 < gb_s < FASTEST:
            best[way] = max(best.get(way, 0.0), gb_s)
    devices = {int(device[1]): device[2] for line in lines if (device := BANDWIDTH_DEVICE.match(line))}
    looked_at = ("copies between host memory and a GPU (bandwidthTest)",)
    index = next(iter(devices), 0)
    if len(devices) > 1 or index >= MOST_GPUS or not {"H2D", "D2H"} & set(best):
        return Part(looked_at=looked_at) if copies else None
    gpus = (*(ObservedGpu() for _ in range(index)), ObservedGpu(model=devices.get(index)))
    row = HostDevice(gpu=index, h2d_gb_s=best.get("H2D"), d2h_gb_s=best.get("D2H"))
    measured = Measured(method=Method(engine="ce"), host_device=(row,))
    seen = Observations(gpus=gpus, measured=measured)
    why = "" if all(gb_s for _, gb_s, _ in copies) else "a copy has no rate"
    why = "the run failed" if any(map(FAILED.match, lines)) else why
    unread = (left_out(1, len(lines), why, lines[-1]),) if why else ()
    return Part(facts=Facts(observed=seen), looked_at=looked_at, unread=unread)


def _of_tables(lines: list[str]) -> Iterator[tuple[str, float, bool]]:
    way = unit = memory = ""
    used = 0
    for line in lines:
        if heading := BANDWIDTH_HEADING.match(line):
            way, used, unit, memory = WAYS[heading[1]], int(heading[2]), "", ""
        elif found := MEMORY.match(line):
            memory = found[1]
        elif found := UNIT.search(line):
            unit = found[1]
        elif (row := ROW.match(line)) and way and unit:
            yield way, float(row[2]) * FACTORS[unit], memory == "PINNED" and used == 1 and int(row[1]) >= LARGE


def _of_csv(lines: list[str]) -> Iterator[tuple[str, float, bool]]:
    for row in filter(None, map(CSV.match, lines)):
        counts = row[2] == "Pinned" and row[6] == "1" and int(row[5]) >= LARGE
        yield row[1], float(row[3]) * FACTORS[row[4]], counts


def _blocks(lines: Sequence[str]) -> Blocks:
    runs = spans(lines, BANDWIDTH_BEGIN, BANDWIDTH_INSIDE, BANDWIDTH_FIRST)
    for first, end in with_lines_above(lines, runs, lambda line: not line.strip() or DEVICE_BEFORE.match(line)):
        yield next(at for at in range(first, end + 1) if lines[at].strip()), end


BANDWIDTH = Kind(
    "bandwidth-test",
    "the output of bandwidthTest",
    bandwidth_parse,
    hints=("Device(s)", "bandwidthTest-", "CUDA Bandwidth Test"),
    blocks=_blocks,
)


# p2pBandwidthLatencyTest of NVIDIA's cuda-samples, as text.
P2P_HEADING = regex(
    r"(?:(U?ni|Bi)directional )?P2P=(Enabled|Disabled) (Bandwidth|Latency)(?: \(P2P (Writes|Reads)\))? Matrix",
    re.IGNORECASE,
)
P2P_DEVICE = regex(
    r"^Device: (\d{1,3}), ([^\n,]{1,100}), pciBusID: ([0-9a-f]{1,2}), pciDeviceID: ([0-9a-f]{1,2})"
    r"(?:, pciDomainID: ?([0-9a-f]{1,8}))?",
    re.IGNORECASE,
)
P2P_ACCESS = regex(r"^Device=(\d{1,3}) (CAN|CANNOT) Access Peer Device=(\d{1,3})")


def p2p_parse(lines: list[str]) -> Part | None:
    """With reads and writes printed, the writes are taken. A run without any matrix has names and peer access only."""
    gpus = _p2p_gpus(lines)
    keys = {at: key for at, line in enumerate(lines) if (key := _key(P2P_HEADING.search(line)))}
    grids, unread, broken, _ = tables(lines, [(at, lines[at].strip()[:60], True) for at in keys], len(gpus))
    found: dict[str, Matrix] = {}
    direction: Literal["write", "read"] | None = None
    for at, grid in grids.items():
        ways = [f"{i} to {j}" for i, row in enumerate(grid.rows) for j, one in enumerate(row) if i != j and one is None]
        if ways and not grid.lost:  # every pair is copied, with or without access
            why = f"no rate or time, which is never zero, of GPU {', '.join(ways[:6])}"
            unread = (*unread, left_out(at + 1, grid.end, why, lines[at]))
        written = P2P_HEADING.search(lines[at])
        of_reads = written is not None and (written[4] or "").lower() == "reads"
        if keys[at] not in found or not of_reads:
            found[keys[at]] = grid.rows
            if keys[at] == "p2p_uni_gb_s" and written and written[4]:
                direction = "read" if of_reads else "write"
    if not found and not gpus:  # a run that hung or was cut short still names the GPUs and their peer access
        if broken is not None:
            raise broken
        return None
    if not found and not unread:
        unread = (
            left_out(len(lines), len(lines), "no matrix: the run ended early or the paste is cut short", lines[-1]),
        )
    count = len(gpus) or len(next(iter(found.values())))
    seen = Observations(
        gpus=gpus or tuple(ObservedGpu() for _ in range(count)),
        p2p_access=_access(lines, count),
        measured=Measured(method=Method(direction=direction), **found),  # type: ignore[arg-type]
    )
    return Part(facts=Facts(observed=seen), unread=unread)


def _key(heading: re.Match[str] | None) -> str | None:
    """Return the field, None if the heading lost the word for unidirectional or bidirectional."""
    if heading is None:
        return None
    path = "p2p" if heading[2].lower() == "enabled" else "staged"
    if heading[3].lower() == "latency":
        return f"{path}_latency_us"
    way = (heading[1] or "").lower() or ("uni" if heading[4] else "")
    return f"{path}_{'bidir' if way == 'bi' else 'uni'}_gb_s" if way else None


def _p2p_gpus(lines: list[str]) -> tuple[ObservedGpu, ...]:
    found: dict[int, ObservedGpu] = {}
    for line in lines:
        device = P2P_DEVICE.match(line.strip())
        if device:
            place = bus_id(device[5] or "0", device[3], device[4])
            found.setdefault(int(device[1]), ObservedGpu(model=device[2].strip(), bus_id=place))
    return in_order(found)


def _access(lines: list[str], count: int) -> Flags | None:
    reported = _connectivity(lines) | {
        (int(line[1]), int(line[3])): line[2] == "CAN" for text in lines if (line := P2P_ACCESS.match(text.strip()))
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
P2P_FIRST = regex(r"^\s*\[P2P \(Peer-to-Peer\)")
P2P_INSIDE = regex(
    r"^\s*(?:\d|D\\D\b|[CG]PU\b|Device[:=]|P2P Connectivity|\*\*\*|NOTE\b|So you can see|In these cases)"
)
P2P_BEGIN = regex(
    rf"{P2P_FIRST.pattern}|{CONNECTIVITY.pattern}|^\s*Device: \d+, |^\s*Device=\d+ CAN|{P2P_HEADING.pattern}",
    re.IGNORECASE,
)

P2P = Kind(
    "p2p-bandwidth-latency-test",
    "the output of p2pBandwidthLatencyTest",
    p2p_parse,
    hints=("P2P=", "p2p=", "Access Peer", "P2P Connectivity"),
    blocks=lambda lines: spans(lines, P2P_BEGIN, P2P_INSIDE, P2P_FIRST),
)


# simpleP2P of NVIDIA's CUDA samples: peer access, one bandwidth, and whether the data of two GPUs was right.
GIB = 1.073741824  # it divides by 2**30 and prints GB/s

SIMPLE_FIRST = regex(r"^\s*\[[\w./\\-]{0,120}simpleP2P[\w.]{0,8}\] - Starting")
COUNT = regex(r"^\s*CUDA-capable device count: (\d{1,3})")
SIMPLE_ACCESS = regex(
    r"^[\s>]{0,24}Peer(?:-to-Peer \(P2P\))? access from (\S.{0,98}?) \(GPU(\d{1,2})\) -> (\S.{0,98}?) \(GPU(\d{1,2})\)"
    r" ?: (Yes|No)"
)
COPY = regex(r"cudaMemcpyPeer / cudaMemcpy between GPU(\d{1,2}) and GPU(\d{1,2}): (\d{1,6}(?:\.\d{1,4})?) ?GB/s")
WRONG = regex(r"^\s*Verification error @ element (\d{1,12}): val = (\S{1,40}), ref = (\S{1,40})")
END = regex(r"^\s*Test (passed|failed)")
NO_PEERS = regex(r"Peer to Peer access is not available amongst GPUs|waiving test|Waiving test")
SIMPLE_BEGIN = regex(f"{SIMPLE_FIRST.pattern}|{COUNT.pattern}|{COPY.pattern}|{WRONG.pattern}|{SIMPLE_ACCESS.pattern}")
SIMPLE_INSIDE = regex(
    f"{SIMPLE_BEGIN.pattern}|{END.pattern}|{NO_PEERS.pattern}"
    r"|^\s*(?:Checking (?:for multiple GPUs|GPU\(s\) for support)|Enabling peer access|Disabling peer access"
    r"|Allocating buffers|Creating event handles|Preparing host buffer|Run kernel on GPU|Copy data back to host"
    r"|Shutting down|Two or more GPUs with|> GPU\d|GPU\d+ = |Waiving|Exiting|Peer to Peer)"
)


def simple_parse(lines: list[str]) -> Part | None:
    peers = [m for line in lines if (m := SIMPLE_ACCESS.match(line))]
    access = {(int(m[2]), int(m[4])): m[5] == "Yes" for m in peers}
    copy = next((m for line in lines if (m := COPY.search(line))), None)
    wrong = [m for line in lines if (m := WRONG.match(line))]
    ends = [m[1] for line in lines if (m := END.match(line))]
    if copy is None and not wrong and not access and not any(NO_PEERS.search(line) for line in lines):
        return None
    pair = (int(copy[1]), int(copy[2])) if copy else (0, 1)
    count = max(*map(max, (*access, pair)), *(int(m[1]) - 1 for line in lines if (m := COUNT.match(line))), 1) + 1
    if count > MOST_GPUS:
        raise ImportProblem(f"simpleP2P: {count} GPUs", why="no machine has so many", do=AGAIN)
    failed, compared = bool(wrong) or "failed" in ends, bool(wrong or ends)
    # It copies forth and back in turns, so both directions have the mean of both.
    measured = Measured(
        p2p_uni_gb_s=by_pair(dict.fromkeys((pair, pair[::-1]), float(copy[3]) * GIB), count) if copy else None,
        method=Method(engine="ce") if copy else Method(),
        integrity_bad_pairs=(pair,) if failed else () if "passed" in ends and count == 2 else None,
        damage="zeros" if wrong and all(m[2].strip("-") in ("0", "0.0", "0.000000") for m in wrong) else None,
    )
    names = {int(m[at]): m[at - 1] for m in peers for at in (2, 4)}
    seen = Observations(
        gpus=tuple(ObservedGpu(model=names.get(i)) for i in range(count)),
        p2p_access=by_pair(access, count) if access else None,
        measured=measured,
    )
    why = "it ends before the data was compared" if not compared else "the copy has no rate"
    unread = left_out(len(lines), len(lines), why, lines[-1])
    return Part(
        facts=Facts(observed=seen),
        looked_at=("peer access and data copied between two GPUs (simpleP2P)",),
        unread=(unread,) if copy and not (compared and float(copy[3])) else (),
    )


SIMPLE = Kind(
    "simple-p2p",
    "the output of simpleP2P",
    simple_parse,
    hints=("simpleP2P", "cudaMemcpyPeer / cudaMemcpy", "Verification error @ element"),
    blocks=lambda lines: spans(lines, SIMPLE_BEGIN, SIMPLE_INSIDE, SIMPLE_FIRST),
)
