"""nvbandwidth as text, also where it stopped, was cut or printed sums only, and as JSON (-j)."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from msgspec.structs import replace

from gpucheck.imports._kind import Blocks, Kind, messages_in
from gpucheck.imports._numbers import AGAIN, MOST_GPUS, tables
from gpucheck.imports._text import (
    ImportProblem,
    absent,
    bus_id,
    by_pair,
    in_order,
    json_object,
    left_out,
    objects,
    regex,
    rows_of,
    spans,
    string_of,
)
from gpucheck.model.diagnosis.observations import Flags, HostDevice, Matrix, Measured, Method, Observations, ObservedGpu
from gpucheck.model.facts import Facts
from gpucheck.model.paste import Part

TOOL = "nvbandwidth"
# Of single pairs and single links; all-to-one cases are neither.
CASE = regex(
    r"(?:multinode_)?(?:host|device)_to_(?:host|device)_(?:bidirectional_)?(?:memcpy_(?:(?:read|write)_)?|latency_)(?:ce|sm)"
)


class Table(NamedTuple):
    """One printed table; square if it is of pairs. description: its heading, with the arrow from row to column."""

    case: str
    description: str
    rows: Matrix


def granted(found: list[Matrix], count: int, *, whole: bool = False) -> Flags | None:
    """Peer access by what was measured: nvbandwidth skips a pair unless CUDA grants it in both directions.

    whole: every row was read, so a pair without a number has no access.

    Source: NVIDIA/nvbandwidth memcpy.cpp, enablePeerAcess (cuDeviceCanAccessPeer, then cuCtxEnablePeerAccess of both).
    Tests over several hosts map memory in another way and prove nothing of it.
    """
    pairs = {(i, j) for rows in found for i, row in enumerate(rows) for j, value in enumerate(row) if value}
    access = {(i, j): False for i in range(count) for j in range(count)} if whole and found else {}
    access |= {way: True for i, j in pairs for way in ((i, j), (j, i))}
    return by_pair(access, count) if access else None


def measured(found: list[Table], gpus: tuple[ObservedGpu, ...], *, peers: bool, whole: bool) -> Observations:
    """All tables as one import; copy engines win over kernels, writes over reads.

    peers: whether pairs were measured by peer access, as all tests on one host do. whole: no row was lost.
    """
    fields: dict[str, Any] = {}
    h2d: tuple[float | None, ...] = ()
    d2h: tuple[float | None, ...] = ()
    method = Method()
    for one in sorted(found, key=_preference):
        if one.case.startswith("device_to_device"):
            key = _key(one)
            if key and key not in fields:
                fields[key] = _paths(one, key)
                if key == "p2p_uni_gb_s":
                    engine: Literal["ce", "sm"] = "ce" if one.case.endswith("_ce") else "sm"
                    method = Method(engine=engine, direction="read" if "read" in one.case else "write")
        elif "bidirectional" not in one.case and "latency" not in one.case and one.rows:
            if one.case.startswith("host"):
                h2d = h2d or one.rows[0]
            else:
                d2h = d2h or one.rows[0]
    sizes = {*(len(matrix) for matrix in fields.values()), *(len(row) for row in (h2d, d2h) if row)}
    if not sizes:
        raise absent(
            f"{TOOL} table of single pairs",
            "there is neither a device_to_device nor a host_to_device result",
            "Run nvbandwidth without -t, or with -t device_to_device_memcpy_write_ce",
        )
    if len(sizes | ({len(gpus)} if gpus else set())) > 1:
        raise ImportProblem(
            f"{TOOL}: tables of different sizes",
            why=f"tables have {', '.join(map(str, sorted(sizes)))} GPUs, {len(gpus)} devices are named",
            do=AGAIN,
        )
    count = sizes.pop()
    rows = [HostDevice(gpu=i, h2d_gb_s=h2d[i] if h2d else None, d2h_gb_s=d2h[i] if d2h else None) for i in range(count)]
    fields["host_device"] = tuple(rows) if h2d or d2h else ()
    pairs = [one.rows for one in found if one.case.startswith("device_to_device")]
    return Observations(
        gpus=gpus or tuple(ObservedGpu() for _ in range(count)),
        p2p_access=granted(pairs, count, whole=whole) if peers else None,
        measured=Measured(method=method, **fields),
    )


def _preference(table: Table) -> tuple[bool, bool, bool]:
    return (not table.case.endswith("_ce"), "read" in table.case, "total" not in table.description.lower())


def _key(table: Table) -> str | None:
    if "latency" in table.case:
        return "p2p_latency_us"
    if "bidirectional" not in table.case:
        return "p2p_uni_gb_s"
    part = re.search(r"(?:read|write)[12]", table.description, re.IGNORECASE)
    return None if part else "p2p_bidir_gb_s"


def _paths(table: Table, key: str) -> Matrix:
    matrix = table.rows
    if key == "p2p_latency_us" and "(ns)" in table.description:
        return tuple(tuple(None if value is None else value / 1000 for value in row) for row in matrix)
    if key == "p2p_bidir_gb_s" and table.case.endswith("_ce") and "total" not in table.description.lower():
        # Older versions print the measured stream only, while the other one runs against it.
        return tuple(tuple(None if value is None else 2 * value for value in row) for row in matrix)
    turned = re.search(r"GPU\(row\)\s*<-\s*GPU", table.description)
    return tuple(zip(*matrix, strict=True)) if turned else matrix


RUNNING = regex(r"^Running (\w{1,80})\.?\s*$")
HEADING = regex(r"(memcpy|latency|Latency) (CE|SM)\s+(CPU|GPU)\(rows?\)\s*(<->|<-|->)\s*GPU\(columns?\)")
DEVICE = regex(
    r"^(?:Device (\d{1,3})|Process +(\d{1,4}) \(([\w.-]{1,100})\): device \d{1,3}): "
    r"(.{1,100}?)(?: \(([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\))?$",
    re.IGNORECASE,
)
PROCESS = regex(r"^Process +\d{1,4} \(")  # of a run over several hosts
SUM = regex(r"^SUM (host_to_device|device_to_host)_memcpy_ce (\d{1,9}(?:\.\d{1,6})?)$")
# Newer versions do not name the test.
WAIVED = regex(r"^(?:Waiving (?:device|all)_\w{1,60}_(?:ce|sm)\.|Waived: ?)$")
SOME = regex(r"^(?:SUM|Waiving|Waived:) ?\w{0,80}")

HOST = regex(r"^\s*[\w.-]{1,64}\s*$")
DRIVER = regex(r"^\s*Driver Version:")
BEGIN = regex(
    r"^\s*CUDA Runtime Version: \d{4,6}\s*$"
    r"|^\s*(?:Process +\d{1,4} \([\w.-]{1,100}\): d|D)evice \d{1,3}: .{1,100} \([0-9a-f]{8}:"
    r"|^\s*nvbandwidth Version|^\s*(?:Running|Waiving) \w{1,80}_(?:ce|sm)\b|^\s*SUM \w{1,80}_(?:ce|sm) "
    r"|(?:memcpy|latency|Latency) (?:CE|SM)\s+[CG]PU\("
)
AGAIN_FIRST = regex(r"^\s*nvbandwidth Version")
INSIDE = regex(
    r"^\s*(?:\d|(?:SUM|Built|Built from|MPI|CUDA|Driver|Device|Process|Host|NOTE|Waived|Waiving|WAIVED|ERROR|Assertion"
    r"|ASSERT|NVML_ERROR|\[CUDA|COEFFICIENT\w*|Min|Max|MIN|MAX|AVERAGE|STDEV|Performance can|Additional system-specific"
    r"|Invalid value when|Current offset|\(CUstream)\b|\[CUDA)"
)


def text_parse(lines: list[str]) -> Part:
    """A table that is damaged is left out where another one can be read."""
    return _parsed(lines)[0]


def _parsed(lines: list[str]) -> tuple[Part, str]:
    """Return what was read, and why a table of it was left out."""
    gpus = _gpus(lines)
    heads = list(_headings(lines))
    grids, unread, broken, why = tables(lines, heads, len(gpus))
    found = [Table(name, lines[at].strip(), grids[at].rows) for at, name, _ in heads if at in grids]
    messages = messages_in(TOOL, lines)
    waived = any(WAIVED.match(line.strip()) for line in lines)
    looked_at: tuple[str, ...] = ()
    if found or not (messages or broken or any(SOME.match(line.strip()) for line in lines)):
        several = any(line.startswith("Running multinode_") or PROCESS.match(line.strip()) for line in lines)
        seen = measured(found, gpus, peers=not several, whole=not unread)
    elif broken is not None and not messages:
        raise broken
    else:
        seen = Observations(gpus=gpus, measured=_of_sums(lines) if len(gpus) == 1 else Measured())
        looked_at = ("sums of bandwidth over all GPUs (nvbandwidth)",)
    if waived and not (seen.measured.p2p_uni_gb_s or seen.measured.p2p_bidir_gb_s):
        # Tests between GPUs are waived for one reason: CUDA grants access to no pair.
        every = range(len(gpus))
        denied = by_pair({(i, j): False for i in every for j in every}, len(gpus)) if len(gpus) > 1 else None
        seen = replace(seen, p2p_access=denied)
    return Part(facts=Facts(observed=seen), messages=messages, looked_at=looked_at, unread=unread), why


def _headings(lines: list[str]) -> Iterator[tuple[int, str, bool]]:
    case = ""
    for at, line in enumerate(lines):
        if running := RUNNING.match(line.strip()):
            case = running[1].removeprefix("multinode_")
        elif (heading := HEADING.search(line)) and CASE.fullmatch(name := case or _case_of(heading)):
            yield at, name, name.startswith("device_to_device")


def _of_sums(lines: list[str]) -> Measured:
    """With one GPU the sum is its own."""
    sums = {m[1]: float(m[2]) for line in lines if (m := SUM.match(line.strip()))}
    row = HostDevice(gpu=0, h2d_gb_s=sums.get("host_to_device"), d2h_gb_s=sums.get("device_to_host"))
    return Measured(host_device=(row,)) if sums else Measured()


def _case_of(heading: re.Match[str]) -> str:
    """The test case by its heading, for a paste that lost the line which names it. An arrow to the left is a write."""
    what, engine, row, arrow = heading[1].lower(), heading[2].lower(), heading[3], heading[4]
    if what == "latency":
        return f"device_to_device_latency_{engine}"
    both = "bidirectional_" if arrow == "<->" else ""
    if row == "GPU":
        return f"device_to_device_{both}memcpy_{'write' if arrow == '<-' else 'read'}_{engine}"
    return f"{'device_to_host' if arrow == '<-' else 'host_to_device'}_{both}memcpy_{engine}"


def _gpus(lines: list[str]) -> tuple[ObservedGpu, ...]:
    found: dict[int, ObservedGpu] = {}
    hosts = set()
    for line in lines:
        device = DEVICE.match(line.strip())
        if device:
            place = bus_id(*device.group(5, 6, 7)) if device[5] else None
            hosts.add(device[3])
            found.setdefault(int(device[1] or device[2]), ObservedGpu(model=device[4].strip(), bus_id=place))
    return tuple(gpu if len(hosts) == 1 else ObservedGpu(model=gpu.model) for gpu in in_order(found))


def _blocks(lines: Sequence[str]) -> Blocks:
    """Each run. Version 0.8 prints the host's name alone in a line between the driver and the first device."""
    plain = list(lines)
    filled = [at for at, line in enumerate(lines) if line.strip()]
    for before, at, after in zip(filled, filled[1:], filled[2:], strict=False):
        if HOST.match(lines[at]) and DRIVER.match(lines[before]) and DEVICE.match(lines[after].strip()):
            plain[at] = f"Host {lines[at].strip()}"
    return spans(plain, BEGIN, INSIDE, AGAIN_FIRST)


def json_parse(lines: list[str]) -> Part:
    root = json_object(lines, TOOL).get(TOOL)
    part, why = _parsed(list(_as_printed(root))) if isinstance(root, dict) else (Part(), "")
    if why:
        raise ImportProblem(f"{TOOL} -j", why=why, do=AGAIN)
    failed = [
        f"{string_of(test.get('name'))[:80]} ({status})"
        for test in (rows_of(root.get("testcases")) if isinstance(root, dict) else ())
        if (status := string_of(test.get("status"))) in FAILED
    ]
    unread = (left_out(1, len(lines), f"without a result: {', '.join(failed[:6])}", lines[0]),) if failed else ()
    return replace(part, messages=messages_in(TOOL, lines), unread=unread)


def _as_printed(root: dict[str, Any]) -> Iterator[str]:
    """The lines that nvbandwidth prints without -j. With several tables in one list of rows the total comes last."""
    devices = root.get("devices", root.get("GPU Device list"))
    for i, entry in enumerate(devices if isinstance(devices, list) else ()):
        # "0: NVIDIA H100 (00000000:18:00): (host)"
        yield f"Device {i}: " + re.sub(r"^\d+: |: \([\w.-]{1,100}\)$", "", string_of(entry).strip())
    for test in rows_of(root.get("testcases")):
        name, rows = string_of(test.get("name")), test.get("bandwidth_matrix")
        case = name.removeprefix("multinode_")
        if case.startswith("device_to_device") and string_of(test.get("status")).lower() == "waived":
            yield "Waived:"
        if CASE.fullmatch(case) and isinstance(rows, list):
            cells = [[str(cell) for cell in row] for row in rows[: 4 * MOST_GPUS] if isinstance(row, list)]
            columns = len(cells[0]) if cells else 0
            yield from (f"Running {name}.", string_of(test.get("bandwidth_description")))
            yield " ".join(map(str, range(columns)))
            yield from (f"{i} {' '.join(row)}" for i, row in enumerate(cells[-max(1, columns) :]))
            yield ""


FAILED = ("Error", "Running")  # of a test; one that was ended keeps the second
JSON = Kind(
    TOOL,
    "the JSON of nvbandwidth",
    json_parse,
    hints=('"nvbandwidth"',),
    blocks=lambda lines: objects(lines, '"nvbandwidth"'),
)

TEXT = Kind(
    "nvbandwidth",
    "the output of nvbandwidth",
    text_parse,
    hints=("memcpy", "latency_", "Latency ", "latency ", "nvbandwidth"),
    blocks=_blocks,
)
