"""The table that nvidia-smi prints without options, from R450 to R610, its list (-L), and nvidia-smi nvlink."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from gpucheck.imports._kind import Kind
from gpucheck.imports._text import left_out, regex, spans, with_lines_above
from gpucheck.imports.nvidia_smi import _fields as v
from gpucheck.imports.nvidia_smi._fields import Fields, gpu, named, part
from gpucheck.model.diagnosis.observations import NvLinkCount
from gpucheck.model.host.hardware import Gpu, GpuProcess, Health, NvLink, NvLink5Counts
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
# Of a GPU that is divided into MIG instances only their rows have the count.
MIG_ROW = regex(
    r"\|\s{1,4}(?P<index>\d{1,3})(?:\s{1,4}\d{1,3}){3}\s{1,4}\|\s*\d{1,8}MiB\s*/\s*\d{1,8}MiB\s*\|"
    r"\s*\d{1,4}\s+(?P<ecc>\d{1,9})\s*\|"
)
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
    errors = Counter[int]()
    for row in filter(None, map(MIG_ROW.search, lines)):
        errors[int(row["index"])] += int(row["ecc"])
    windows = [row for row in rows[:1] if row.first["persistence"] in ("WDDM", "TCC", "MCDM")]
    once = {row.place: row for row in reversed(rows)}
    gpus = [_gpu(once[index], users.get(index), errors.get(index)) for index in sorted(once)]
    return part(
        gpus,
        driver=v.version(title["driver"]) if title else None,
        cuda=v.version(cuda),
        messages=[
            *(message for row in rows for message in (*(_lost(row) or _unread(row)), *_hot(row))),
            *(_message(row, "windows") for row in windows),
        ],
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


def _gpu(row: _Row, processes: tuple[GpuProcess, ...] | None, errors: int | None) -> Gpu:
    """A GPU that answers nothing has a place on the bus and no state. errors: of its MIG instances."""
    first, cells = row.first, row.second.groupdict() if row.second else {}
    # "On" in place of a count is MIG's; a count means that ECC is on.
    ecc = "On" if first["ecc"].isdecimal() else first["ecc"] if first["ecc"] == "Off" else None
    values = {
        "product_name": first["name"],
        "persistence_mode": first["persistence"],
        "ecc_mode/current": ecc,
        "volatile/double_bit/total": first["ecc"] if errors is None else str(errors),
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
    health = Health() if _lost(row) else replace(found.health, processes=processes)
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


def _lost(row: _Row) -> tuple[Message, ...]:
    """Whether the GPU does not respond. One cell alone is no evidence: laptops print ERR! for the power limit."""
    cells = row.second.groupdict() if row.second else {}
    bad = [cells.get(name) == "ERR!" for name in ("temp", "state", "power", "busy")]
    bus = v.bus_id(row.first["bus"])
    if "reset" in row.first["ecc"].lower():
        return (_message(row, "requires-reset", bus),)
    if (row.first["name"] == "ERR!" and sum(bad) > 1) or sum(bad) > 2 or all(bad[:2]):
        return (_message(row, "no-answer", bus),)
    return ()


def _unread(row: _Row) -> tuple[Message, ...]:
    return (_message(row, "unread", v.bus_id(row.first["bus"])),) if row.first["ecc"] == "ERR!" else ()


def _message(row: _Row, key: str, gpu: str | None = None) -> Message:
    return Message(key=f"{TABLE_KEY}.{key}", text=row.first[0].strip(), line=row.line, gpu=gpu)


def _hot(row: _Row) -> Iterator[Message]:
    """Whether the GPU is so hot that its clocks are probably low: no reasons of low clocks are in the table."""
    if row.second is None:
        return
    numbers = {name: re.sub(r"\D", "", row.second[name] or "") for name in ("temp", "power", "cap", "busy")}
    temp, power, cap, busy = (int(numbers[name] or 0) for name in ("temp", "power", "cap", "busy"))
    if temp >= HOT or (temp >= WARM and busy >= BUSY and 0 < power < cap / 2):
        bus = v.bus_id(row.first["bus"])
        yield Message(key=f"{TABLE_KEY}.hot", text=row.second[0].strip(), line=row.line + 1, gpu=bus)


def _blocks(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    def without_next_rule() -> Iterator[tuple[int, int]]:
        for first, last in spans(lines, BEGIN, INSIDE, again=TITLE):
            is_next = last + 1 < len(lines) and TITLE.search(lines[last + 1]) and RULE.match(lines[last])
            yield first, last - 1 if is_next and last > first else last

    return with_lines_above(
        lines, without_next_rule(), lambda line: RULE.match(line) or DATE.match(line) or HEADER.match(line)
    )


KIND = Kind(NAME, "the table of nvidia-smi", parse, hints=("NVIDIA-SMI", "MiB |"), blocks=_blocks)


# nvidia-smi nvlink: states (-s), error counters (-e) and capabilities (-c) of every link.
NVLINK_GPU = regex(r"^\s{0,8}GPU (\d{1,3}):\s*([^\n(]{0,80}?)(?: \(UUID: ([^)]{1,60})\))?\s*$")
STATE = regex(r"^\s{0,24}Link (\d{1,2}): (?:(\d{1,4}(?:\.\d{1,4})?) GB/s|<?([Ii]nactive|[Aa]ctive|[Ss]leep)>?)\s*$")
COUNT = regex(r"^\s{0,24}Link (\d{1,2}):? ([A-Z][A-Za-z0-9 ()/-]{2,60}?):\s+(\d{1,18}|N/A|Not Supported)\s*$")
CAPABILITY = regex(r"^\s{0,24}Link (\d{1,2}), [A-Z][\w -]{2,60}?(?: is)?(?: supported)?: (?:true|false)\s*$")
DARK = regex(r"^\s{0,24}NVML: Unable to retrieve N[vV][lL]ink information as all links are in[aA]ctive")
NEITHER = regex(
    r"^\s{0,24}(?:Links \d[\d, -]{0,60}: |NVML: Unable to retrieve NVLink information|\[(?:\.{3}|snip)\]|\.{3,4})"
)
LINKS_BEGIN = regex(
    f"{STATE.pattern}|{DARK.pattern}|{CAPABILITY.pattern}|^\\s{{0,24}}Link \\d{{1,2}}: [A-Z][\\w ]{{2,40}} Errors?:"
)
LINE = regex(f"{LINKS_BEGIN.pattern}|{COUNT.pattern}|{NEITHER.pattern}")
FRAGMENT = regex(r"^\s{1,24}L(?:i|in|ink.{0,40})?\s*$")  # a line of a link that was cut
LINKS_INSIDE = regex(f"{LINE.pattern}|{NVLINK_GPU.pattern}|{FRAGMENT.pattern}")
COUNTERS = {"replay errors": "replay_errors", "recovery errors": "recovery_errors", "crc errors": "crc_errors"}
# Of NVLink 5. Names as R570 prints them.
COUNTERS_5 = {
    "malformed packet errors": "malformed_packets",
    "buffer overrun errors": "buffer_overruns",
    "rx errors": "receive_errors",
    "rx remote errors": "receive_remote_errors",
    "rx general errors": "receive_general_errors",
    "local link integrity errors": "integrity_errors",
    "tx discards": "transmit_discards",
    "link recovery successful events": "recoveries_succeeded",
    "link recovery failed events": "recoveries_failed",
    "total link recovery events": "recoveries",
    "effective errors": "effective_errors",
    "symbol errors": "symbol_errors",
}


class _Links:
    """The links of one GPU, by number."""

    def __init__(self, index: int, name: str, uuid: str, line: int) -> None:
        self.index, self.name, self.uuid = index, name, uuid
        self.first_line = self.last_line = line
        self.active: dict[int, bool] = {}
        self.speeds: dict[int, int] = {}
        self.is_dark = self.is_cut = False
        self.counts: dict[int, dict[str, Any]] = {}
        self.counts_5: dict[int, dict[str, int]] = {}

    def gpu(self) -> Gpu:
        """Links as NVML reports them. One with known errors counts as up: an inactive one has no counters."""
        states = self.active or dict.fromkeys([*self.counts, *self.counts_5], True)
        links = tuple(
            NvLink(
                link=link,
                active=active,
                speed_mb_s=self.speeds.get(link),
                counts=NvLink5Counts(**self.counts_5[link]) if link in self.counts_5 else None,
                **self.counts.get(link, {}),
            )
            for link, active in sorted(states.items())
        )
        return replace(named(self.index, self.name, self.uuid), nvlinks=links)


def nvlink_parse(lines: list[str]) -> Part | None:
    found: dict[int, _Links] = {}
    current: _Links | None = None
    for number, line in enumerate(lines, start=1):
        if match := NVLINK_GPU.match(line):
            index = int(match[1])
            current = found.setdefault(index, _Links(index, match[2] or "", match[3] or "", number))
        elif current is not None:
            _take(line, current)
            current.last_line = number
    if not any(one.is_dark or one.active or one.counts or one.counts_5 for one in found.values()):
        if any(DARK.match(line) for line in lines):
            return Part(looked_at=("NVLinks of a GPU without a name",))
        if any(CAPABILITY.match(line) for line in lines):
            return Part(looked_at=("NVLink capabilities",))
        return None
    listed = [found[index] for index in sorted(found)]
    most = max(len(one.active) for one in listed)
    cut = [one for one in listed if one.active and (one.is_cut or sorted(one.active) != list(range(most)))]
    for one in cut:
        one.active = {}  # the driver lists a link that is down too, so lines are missing
    gpus = [one.gpu() for one in listed]
    extra = [f"NVLink error counters of {counted(sum(bool(one.counts or one.counts_5) for one in listed), 'GPU')}"]
    read = part(gpus, extra=extra if any(one.counts or one.counts_5 for one in listed) else ())
    # The driver prints one line in place of the links if all are down, so how many there are is not known.
    observed = read.facts.observed
    seen = zip(listed, observed.gpus, strict=True)
    dark = tuple(replace(gpu, nvlinks=NvLinkCount(active=0)) if one.is_dark else gpu for one, gpu in seen)
    unread = (
        left_out(one.first_line, one.last_line, f"lines of links of GPU {one.index} are missing", one.name)
        for one in cut
    )
    facts = replace(read.facts, observed=replace(observed, gpus=dark))
    return replace(read, facts=facts, unread=tuple(unread))


def _take(line: str, gpu: _Links) -> None:
    if DARK.match(line):
        gpu.is_dark = True
    elif match := STATE.match(line):
        link = int(match[1])
        gpu.active.setdefault(link, (match[3] or "active").lower() == "active")
        if match[2]:
            gpu.speeds.setdefault(link, round(float(match[2]) * 1000))
    elif match := COUNT.match(line):
        link, name = int(match[1]), match[2].lower()
        for fields, counts in ((COUNTERS, gpu.counts), (COUNTERS_5, gpu.counts_5)):
            if name in fields and match[3].isdecimal():
                counts.setdefault(link, {}).setdefault(fields[name], int(match[3]))
    elif FRAGMENT.match(line) and not CAPABILITY.match(line):
        gpu.is_cut = True


def _link_blocks(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    for begin, last in spans(lines, LINKS_BEGIN, LINKS_INSIDE):
        above = next((at for at in range(begin - 1, max(begin - 4, -1), -1) if lines[at].strip()), None)
        end = last
        while end > begin and NVLINK_GPU.match(lines[end]):
            end -= 1
        yield from _readings(lines, above if above is not None and NVLINK_GPU.match(lines[above]) else begin, end)


def _readings(lines: Sequence[str], first: int, last: int) -> Iterator[tuple[int, int]]:
    """States or counters of a GPU again are a reading of their own, as of later."""
    seen: set[tuple[str, str, str]] = set()
    head, gpu = first, ""
    for at in range(first, last + 1):
        if match := NVLINK_GPU.match(lines[at]):
            head, gpu = at, match[1]
        elif match := STATE.match(lines[at]) or COUNT.match(lines[at]):
            key = gpu, match[1], match[2] if match.re is COUNT else ""
            if key in seen and head > first:
                yield first, head - 1
                first, seen = head, set()
            seen.add(key)
    yield first, last


NVLINK = Kind(
    "nvidia-smi-nvlink",
    "the output of nvidia-smi nvlink",
    nvlink_parse,
    hints=("Link 0", "Link 1", "Link 2", "Link 3", "ink information as all links"),
    blocks=_link_blocks,
)


# ``nvidia-smi -L``: names and UUIDs.
# gpucheck topo prints the bus id and a mark behind it.
LIST_GPU = regex(
    r"^\s{0,8}GPU (\d{1,3}): ([^\n(]{1,80}?) \(UUID: (GPU-[0-9a-fA-Fx-]{1,60}|[^)]{1,60})\)"
    r"(?: [0-9a-f:.]{12,16}\b.{0,80})?\s*$"
)
MIG = regex(r"^\s{1,12}MIG \S{1,30}\s+Device\s+\d{1,3}:\s*\(UUID: [^)]{1,80}\)\s*$")


def list_parse(lines: list[str]) -> Part | None:
    found: dict[int, Gpu] = {}
    last = -1
    for line in lines:
        if match := LIST_GPU.match(line):
            last = int(match[1])
            found.setdefault(last, named(last, match[2], match[3]))
        elif last in found and MIG.match(line):
            found[last] = replace(found[last], health=Health(mig=True))
    if not found:
        return None
    gpus = [found[index] for index in sorted(found)]
    return part(gpus, extra=[f"the list of {counted(len(gpus), 'GPU')}"])


LIST = Kind(
    name="nvidia-smi",
    title="the output of nvidia-smi -L",
    parse=list_parse,
    loose=True,
    hints=("(UUID: ",),
    blocks=lambda lines: spans(lines, LIST_GPU, MIG),
)
