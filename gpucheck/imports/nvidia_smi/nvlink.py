"""nvidia-smi nvlink: states (-s), error counters (-e) and capabilities (-c) of every link; nvidia-smi -L."""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from gpucheck.imports._kind import Kind
from gpucheck.imports._text import left_out, regex, spans
from gpucheck.imports.nvidia_smi._fields import named, part
from gpucheck.model.diagnosis.observations import NvLinkCount
from gpucheck.model.host.hardware import Gpu, Health, NvLink, NvLink5Counts
from gpucheck.model.paste import Part
from gpucheck.printable import counted

NVLINK_GPU = regex(r"^\s{0,8}GPU (\d{1,3}):\s*([^\n(]{0,80}?)(?: \(UUID: ([^)]{1,60})\))?\s*$")
STATE = regex(r"^\s{0,24}Link (\d{1,2}): (?:(\d{1,4}(?:\.\d{1,4})?) GB/s|<?([Ii]nactive|[Aa]ctive|[Ss]leep)>?)\s*$")
COUNT = regex(r"^\s{0,24}Link (\d{1,2}):? ([A-Z][A-Za-z0-9 ()/-]{2,60}?):\s+(\d{1,18}|N/A|Not Supported)\s*$")
CAPABILITY = regex(r"^\s{0,24}Link (\d{1,2}), [A-Z][\w -]{2,60}?(?: is)?(?: supported)?: (?:true|false)\s*$")
DARK = regex(r"^\s{0,24}NVML: Unable to retrieve N[vV][lL]ink information as all links are in[aA]ctive")
NEITHER = regex(
    r"^\s{0,24}(?:Links \d[\d, -]{0,60}: |NVML: Unable to retrieve NVLink information|\[(?:\.{3}|snip)\]|\.{3,4})"
)
BEGIN = regex(
    f"{STATE.pattern}|{DARK.pattern}|{CAPABILITY.pattern}|^\\s{{0,24}}Link \\d{{1,2}}: [A-Z][\\w ]{{2,40}} Errors?:"
)
LINE = regex(f"{BEGIN.pattern}|{COUNT.pattern}|{NEITHER.pattern}")
FRAGMENT = regex(r"^\s{1,24}L(?:i|in|ink.{0,40})?\s*$")  # a line of a link that was cut
INSIDE = regex(f"{LINE.pattern}|{NVLINK_GPU.pattern}|{FRAGMENT.pattern}")
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


def _blocks(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    for begin, last in spans(lines, BEGIN, INSIDE):
        above = next((at for at in range(begin - 1, max(begin - 4, -1), -1) if lines[at].strip()), None)
        end = last
        while end > begin and NVLINK_GPU.match(lines[end]):
            end -= 1
        yield above if above is not None and NVLINK_GPU.match(lines[above]) else begin, end


NVLINK = Kind(
    "nvidia-smi-nvlink",
    "the output of nvidia-smi nvlink",
    nvlink_parse,
    hints=("Link 0", "Link 1", "Link 2", "Link 3", "ink information as all links"),
    blocks=_blocks,
)


# ``nvidia-smi -L``: names and UUIDs.
LIST_GPU = regex(r"^\s{0,8}GPU (\d{1,3}): ([^\n(]{1,80}?) \(UUID: (GPU-[0-9a-fA-Fx-]{1,60}|[^)]{1,60})\)\s*$")
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
