"""nvbandwidth as it prints to a terminal."""

import re

from gpucheck.imports._json import looks_like_json
from gpucheck.imports._kind import MeasuredKind
from gpucheck.imports._numbers import refuse_gib, table
from gpucheck.imports._nvbandwidth import Table, measured, wanted
from gpucheck.imports._text import lines_of
from gpucheck.model.observations import Import, ObservedGpu

RUNNING = re.compile(r"^Running (\w{1,80})\.?\s*$")
HEADING = re.compile(r"(memcpy|latency|Latency) (CE|SM)\s+(CPU|GPU)\(rows?\)\s*(<->|<-|->)\s*GPU\(columns?\)")
DEVICE = re.compile(
    r"^Device (\d{1,3}): (.{1,100}?)(?: \(([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\))?$", re.IGNORECASE
)


def recognise(text: str) -> bool:
    """The line above its tables."""
    return not looks_like_json(text) and HEADING.search(text) is not None


def parse(text: str) -> Import:
    """Every table of a single pair or link. Raises ImportProblem, and nothing else."""
    lines = lines_of(text)
    case, tables, at = "", [], 0
    while at < len(lines):
        line, at = lines[at].strip(), at + 1
        running = RUNNING.match(line)
        case = running[1] if running else case
        heading = HEADING.search(line)
        if heading is None or at >= len(lines):
            continue
        name = case or _case_of(heading)
        if not wanted(name):
            continue
        refuse_gib(line, at)
        rows, end = table(lines, at, name)
        tables.append(Table(name, line, rows, at))
        at = max(at, end)
    return measured(tables, _gpus(lines))


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
    for line in lines:
        device = DEVICE.match(line.strip())
        if device:
            bus_id = f"{int(device[3], 16):04x}:{device[4]}:{device[5]}.0".lower() if device[3] else None
            found.setdefault(int(device[1]), ObservedGpu(model=device[2].strip(), bus_id=bus_id))
    return tuple(found[i] for i in range(len(found))) if set(found) == set(range(len(found))) else ()


KIND = MeasuredKind("nvbandwidth", "the output of nvbandwidth", recognise, parse)
