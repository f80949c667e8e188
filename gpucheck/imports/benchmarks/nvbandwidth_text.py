"""nvbandwidth as it prints to a terminal, also where it stopped, was cut, or printed sums only."""

import re
from collections.abc import Sequence

from gpucheck.imports._blocks import spans
from gpucheck.imports._common import bus_id, in_order
from gpucheck.imports._kind import MEASUREMENTS, Blocks, Kind
from gpucheck.imports._messages import messages_in
from gpucheck.imports._numbers import of_other_size, refuse_gib, square, table
from gpucheck.imports._problem import ImportProblem, left_out
from gpucheck.imports._regex import regex
from gpucheck.imports.benchmarks._nvbandwidth import TOOL, Table, measured, of_one_host, wanted, with_waived_tests
from gpucheck.model.diagnosis import UnreadRange
from gpucheck.model.diagnosis.observations import HostDevice, Measured, Observations, ObservedGpu
from gpucheck.model.facts import Facts
from gpucheck.model.paste import Part

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


def parse(lines: list[str]) -> Part:
    """Every table of a single pair or link; what it waived, and data that was wrong. Raises ImportProblem.

    A table that is damaged is left out where another one can be read.
    """
    gpus = _gpus(lines)
    tables, unread, broken = _tables(lines, len(gpus))
    messages = messages_in(TOOL, lines)
    waived = any(WAIVED.match(line.strip()) for line in lines)
    if tables:
        several = any(line.startswith("Running multinode_") or PROCESS.match(line.strip()) for line in lines)
        found = measured(tables, gpus, peers=not several)
        seen = with_waived_tests(found) if waived else found
        return Part(facts=Facts(observed=seen), messages=messages, unread=unread)
    if broken is not None and not messages:
        raise broken
    if not messages and not any(SOME.match(line.strip()) for line in lines):
        return Part(facts=Facts(observed=measured([], gpus)))
    sums = Measured(host_device=_of_sums(lines)) if len(gpus) == 1 else Measured()
    seen = Observations(gpus=gpus, measured=sums)
    looked_at = ("sums of bandwidth over all GPUs (nvbandwidth)",)
    seen = with_waived_tests(seen) if waived else seen
    return Part(facts=Facts(observed=seen), messages=messages, looked_at=looked_at, unread=unread)


def _tables(lines: list[str], devices: int) -> tuple[list[Table], tuple[UnreadRange, ...], ImportProblem | None]:
    """Those that can be read, what cannot be read, and what is wrong with the first of that.

    devices: how many GPUs are named; 0 = none, then the first table has as many.
    """
    tables: list[Table] = []
    unread: list[UnreadRange] = []
    broken: ImportProblem | None = None
    case, at = "", 0
    while at < len(lines):
        line, at = lines[at].strip(), at + 1
        running = RUNNING.match(line)
        case = of_one_host(running[1]) if running else case
        heading = HEADING.search(line)
        if heading is None:
            continue
        name = case or _case_of(heading)
        if not wanted(name):
            continue
        try:
            refuse_gib(line, at)
            grid = table(lines, at, name)
            grid = square(grid) if name.startswith("device_to_device") else grid
            columns = len(grid.rows[0])
            devices = devices or columns
            if columns != devices:
                raise of_other_size(name, at, columns, devices)
        except ImportProblem as problem:
            broken = broken or problem
            unread.append(left_out(at, at, f"{problem.what}: {problem.why}", line))
            continue
        if grid.lost:
            unread.append(left_out(at, grid.end, f"{name}: {grid.lost}; what is there was read", line))
        tables.append(Table(name, line, grid.rows))
        at = max(at, grid.end)
    return tables, tuple(unread), broken


def _of_sums(lines: list[str]) -> tuple[HostDevice, ...]:
    """With one GPU the sum is its own."""
    reported = {m[1]: float(m[2]) for line in lines if (m := SUM.match(line.strip()))}
    if not reported:
        return ()
    return (HostDevice(gpu=0, h2d_gb_s=reported.get("host_to_device"), d2h_gb_s=reported.get("device_to_host")),)


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
    """As it numbers them. Bus ids of several hosts repeat and are left out."""
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


KIND = Kind(
    "nvbandwidth",
    "the output of nvbandwidth",
    parse,
    holds=MEASUREMENTS,
    hints=("memcpy", "latency_", "Latency ", "latency ", "nvbandwidth"),
    blocks=_blocks,
)
