"""The table that nvidia-smi prints without options, from R450 to R610, with its MIG devices and its processes."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from gpucheck.imports._kind import Kind
from gpucheck.imports._text import regex, spans, with_lines_above
from gpucheck.imports.nvidia_smi import _fields as v
from gpucheck.imports.nvidia_smi._fields import Fields, gpu, part
from gpucheck.model.host.hardware import Gpu, GpuProcess, Health
from gpucheck.model.paste import Message, Part
from gpucheck.printable import counted

# Degrees Celsius and percent. GPUs slow down at 83 to 95 C; the table does not state where.
HOT, WARM, BUSY = 90, 85, 90
NAME = "nvidia-smi"
TABLE_KEY = "nvidia-smi-table"
TITLE = regex(r"\|\s{0,4}NVIDIA-SMI\s+(?P<smi>\S{1,30})\s+(?:Driver|KMD) Version:\s*(?P<driver>[\d.]{1,20})")
CUDA = regex(r"CUDA (?:UMD )?Version:\s*([\d.]{1,10})")
FIRST = regex(
    r"\|\s{0,6}(?P<index>\d{1,3})\s{1,8}(?P<name>\S.{0,60}?)\s{1,40}(?P<persistence>On|Off|N/A|WDDM|TCC|MCDM|ERR!)\s*\|"
    rf"\s*(?P<bus>{v.BUS_ID})\s{{1,8}}(?:On|Off|N/A|ERR!)\s*\|\s*(?P<ecc>\S[^|]{{0,24}}?)\s*\|?\s*$"
)
SECOND = regex(
    r"\|\s*(?P<fan>ERR!|N/A|\d{1,3}\s?%)\s+(?P<temp>ERR!|N/A|\d{1,3}C)\s+(?P<state>ERR!|N/A|P\d{1,2})\s+"
    r"(?P<power>ERR!|N/A|Off|Unknown Error|\d{1,5}W)\s*/\s*(?P<cap>ERR!|N/A|Off|\d{1,5}W)\s*\|"
    r"\s*(?:(?P<used>\d{1,8}MiB|N/A|ERR!|Unknown)\s*/\s*(?P<total>\d{1,8}MiB|N/A|ERR!|Unknown)|Not Supported)\s*\|"
    r"\s*(?P<busy>\d{1,3}\s?%|N/A|ERR!)\s+(?P<mode>[A-Za-z][\w. ]{1,16}?|ERR!)\s*\|?\s*$"
)
THIRD = regex(r"\|\s*\|\s*\|\s*(?P<mig>Enabled\*?|Disabled\*?|N/A|ERR!)\s*\|?\s*$")
PROCESS = regex(
    r"\|\s{0,6}(?P<index>\d{1,3})\s+(?:(?:N/A|\d{1,3})\s+(?:N/A|\d{1,3})\s+)?(?P<pid>\d{1,9})\s+(?P<type>C|G|C\+G|M\+C)\s+"
    r"(?P<name>\S.{0,120}?)\s+(?P<used>\d{1,8}MiB|N/A)\s*\|?\s*$"
)
RULE = regex(r"^\s*[+|][-=+\s]{20,300}[+|]?\s*$")
BAR = regex(r"^\s*\|.{3,300}$")
BEGIN = regex(f"{TITLE.pattern}|{FIRST.pattern.replace('?P<', '?P<f_')}")
DATE = regex(r"^\s*\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}\s*$")
HEADER = regex(r"^\s*\|\s{1,4}(?:GPU\s{1,4}Name|Fan\s{1,4}Temp)\s|^\s*\|[\s|]{20,120}MIG M\.\s*\|\s*$")
INSIDE = regex(f"{RULE.pattern}|{BAR.pattern}")


class _Row(NamedTuple):
    place: int
    first: re.Match[str]
    second: re.Match[str] | None
    mig: str | None
    line: int


def parse(lines: list[str]) -> Part | None:
    rows = list(_rows(lines))
    title = next((match for line in lines if (match := TITLE.search(line))), None)
    if not rows and title is None:
        return None
    cuda = next((match[1] for line in lines if (match := CUDA.search(line))), None)
    users = _processes(lines)
    once = {row.place: row for row in reversed(rows)}
    gpus = [_gpu(once[index], users.get(index)) for index in sorted(once)]
    return part(
        gpus,
        driver=v.version(title["driver"]) if title else None,
        cuda=v.version(cuda),
        messages=[*(message for row in rows for message in (*_lost(row), *_hot(row))), *_windows(rows)],
        extra=[f"the nvidia-smi table of {counted(len(gpus), 'GPU')}"]
        if gpus
        else ["the title of an nvidia-smi table"],
    )


def _rows(lines: Sequence[str]) -> Iterator[_Row]:
    at = 0
    while at < len(lines):
        first, at = FIRST.search(lines[at]), at + 1
        if first is None:
            continue
        line, second, mig = at, None, None
        while at < min(line + 4, len(lines)) and not FIRST.search(lines[at]) and not RULE.match(lines[at]):
            second = second or SECOND.search(lines[at])
            third = THIRD.search(lines[at])
            mig = third["mig"] if third else mig
            at += 1
        yield _Row(int(first["index"]), first, second, mig, line)


def _gpu(row: _Row, processes: tuple[GpuProcess, ...] | None) -> Gpu:
    """A GPU that answers nothing has a place on the bus and no state."""
    first, cells = row.first, row.second.groupdict() if row.second else {}
    # "On" in place of a count is MIG's; a count means that ECC is on.
    ecc = "On" if first["ecc"].isdecimal() else first["ecc"] if first["ecc"] == "Off" else None
    values = {
        "product_name": first["name"],
        "persistence_mode": first["persistence"],
        "ecc_mode/current": ecc,
        "volatile/double_bit/total": first["ecc"],
        "mig_mode/current": row.mig,
        "compute_mode": cells.get("mode"),
        "temperature/gpu": cells.get("temp"),
        "power_readings/power_draw": cells.get("power"),
        "fb_memory_usage/used": cells.get("used"),
        "fb_memory_usage/total": cells.get("total"),
        "utilization/gpu": cells.get("busy"),
    }
    fields = Fields((tuple(path.split("/")), value) for path, value in values.items() if value is not None)
    found = gpu(fields, row.place, v.bus_id(first["bus"]))
    health = Health() if any(_lost(row)) else replace(found.health, processes=processes)
    return replace(found, health=health)


def _processes(lines: Sequence[str]) -> dict[int, tuple[GpuProcess, ...]]:
    found: dict[int, tuple[GpuProcess, ...]] = {}
    for line in lines:
        match = PROCESS.search(line)
        if match:
            one = GpuProcess(
                pid=int(match["pid"]),
                kind="graphics" if match["type"] == "G" else "compute",
                memory_bytes=v.size(match["used"]),
                name=match["name"],
            )
            index = int(match["index"])
            found[index] = (*found.get(index, ()), one)
    return found


def _lost(row: _Row) -> Iterator[Message]:
    """Whether the GPU does not respond. One cell alone is no evidence: laptops print ERR! for the power limit."""
    cells = row.second.groupdict() if row.second else {}
    bad = [cells.get(name) == "ERR!" for name in ("temp", "state", "power", "busy")]
    bus = v.bus_id(row.first["bus"])
    if "reset" in row.first["ecc"].lower():
        yield Message(key=f"{TABLE_KEY}.requires-reset", text=row.first[0].strip(), line=row.line, gpu=bus)
    elif (row.first["name"] == "ERR!" and sum(bad) > 1) or sum(bad) > 2:
        yield Message(key=f"{TABLE_KEY}.no-answer", text=row.first[0].strip(), line=row.line, gpu=bus)


def _hot(row: _Row) -> Iterator[Message]:
    """Whether the GPU is so hot that its clocks are probably low: no reasons of low clocks are in the table."""
    if row.second is None:
        return
    numbers = {name: re.sub(r"\D", "", row.second[name] or "") for name in ("temp", "power", "cap", "busy")}
    temp, power, cap, busy = (int(numbers[name] or 0) for name in ("temp", "power", "cap", "busy"))
    if temp >= HOT or (temp >= WARM and busy >= BUSY and 0 < power < cap / 2):
        bus = v.bus_id(row.first["bus"])
        yield Message(key=f"{TABLE_KEY}.hot", text=row.second[0].strip(), line=row.line + 1, gpu=bus)


def _windows(rows: Sequence[_Row]) -> Iterator[Message]:
    for row in rows[:1]:
        if row.first["persistence"] in ("WDDM", "TCC", "MCDM"):
            yield Message(key=f"{TABLE_KEY}.windows", text=row.first[0].strip(), line=row.line)


def _blocks(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    def without_next_rule() -> Iterator[tuple[int, int]]:
        for first, last in spans(lines, BEGIN, INSIDE, again=TITLE):
            is_next = last + 1 < len(lines) and TITLE.search(lines[last + 1]) and RULE.match(lines[last])
            yield first, last - 1 if is_next and last > first else last

    return with_lines_above(
        lines, without_next_rule(), lambda line: RULE.match(line) or DATE.match(line) or HEADER.match(line)
    )


KIND = Kind(NAME, "the table of nvidia-smi", parse, hints=("NVIDIA-SMI", "MiB |"), blocks=_blocks)
