"""``nvidia-smi -q`` as text: the whole page or sections of it (``-d ECC``), of any driver from R290 to R610."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpucheck.imports._blocks import spans
from gpucheck.imports._kind import Kind
from gpucheck.imports._problem import absent
from gpucheck.imports._regex import regex
from gpucheck.imports.nvidia_smi import _values as v
from gpucheck.imports.nvidia_smi._fields import Fields, Path, gpu, name_of, not_understood, part
from gpucheck.model.paste import Message, Part

NAME = "nvidia-smi-q"
BANNER = regex(r"^\s*={5,20}\s?NVSMI LOG\s?={5,20}")
GPU = regex(rf"^\s{{0,12}}GPU ({v.BUS_ID})\s*\\?$")
PAIR = regex(r"^(\s*)([A-Za-z][\w .()/+-]{0,58}?)\s{1,60}:(?:\s+(\S.{0,300}?)|\s*)\s*\\?$")
HEADER = regex(r"^(\s*)([A-Z][\w .()/+-]{2,58}?)\s*\\?$")
INDENTED = regex(r"^\s{2,40}(?!.{0,80}GPU\d)[A-Z][\w .()/+-]{2,58}$")
# The headings between the lines of a page that lost its indentation.
HEADINGS = regex(
    r"^(?:MIG Mode|Driver Model|Platform Info|Inforom Version|Inforom BBX Object Flush|GPU Operation Mode|IBMNPU|"
    r"GPU Virtualization Mode|GPU Reset Status|PCI|GPU Link Info|PCIe Generation|Link Width|Bridge Chip|Utilization|"
    r"Encoder Stats|FBC Stats|Volatile|Aggregate|Single Bit|Double Bit|Bank Remap Availability Histogram|Temperature|"
    r"(?:GPU |GPU Memory |Module )?Power Readings|Clocks|Default Applications Clocks|Deferred Clocks|Voltage|Fabric|"
    r"Max Customer Boost Clocks|Clock Policy|Health|Processes|DRAM Encryption Mode|Clocks Event Reasons Counters|"
    r"Conf Compute Protected Memory Usage|Aggregate Uncorrectable SRAM Sources|Workload Power Profiles|Samples)\s*$"
)
# The names of sections as -d prints them; a part of the page may have been pasted without its banner.
SECTIONS = regex(
    r"^\s{0,12}(?:E(?:cc|CC) Mode|E(?:cc|CC) Errors|Remapped Rows|Retired Pages|Clocks (?:Throttle|Event) Reasons|"
    r"(?:GPU )?Power Readings|FB Memory Usage|BAR1 Memory Usage|MIG Mode|GPU Link Info|Max Clocks|Applications Clocks|"
    r"Fabric)"
    r"(?:\s*:\s*N/A)?\s*$"
)
BEGIN = regex(f"{BANNER.pattern}|{GPU.pattern}|{SECTIONS.pattern}")
INSIDE = regex("|".join(one.pattern for one in (PAIR, INDENTED, HEADINGS, BANNER)))
# These repeat names of the GPU's own sections, for a part of it.
OTHERS = {"mig_device", "mig_devices", "processes", "accounted_processes"}
MOST_DEPTH = 12
NAMELESS = "GPU?"  # of a part that does not name its GPU
MOST_INDENT = 1 << 20
NO_ANSWER = ("GPU is lost", "Unknown Error", "ERR!", "GPU requires reset")
MANY = 8  # values that are not available; one alone is usual: laptops do not report their power limit
FABRIC = dict.fromkeys(("In Progress", "Not Started"), "fabric-in-progress")
REPAIRS = {
    "sram_threshold_exceeded": "sram-threshold",
    "unrepairable_memory": "unrepairable-memory",
    "channel_repair_pending": "repair-pending",
    "tpc_repair_pending": "repair-pending",
}


def parse(lines: list[str]) -> Part:
    """The page, or a part of it. Raises ImportProblem, and nothing else."""
    head: dict[str, str] = {}
    gpus: list[tuple[str | None, list[tuple[Path, str]]]] = []
    for bus, path, value in _rows(lines):
        if path == ():
            gpus.append((bus, []))
        elif gpus:
            gpus[-1][1].append((path, value))
        elif len(path) == 1:
            head.setdefault(path[0], value)
        elif not path[0].startswith("vgpu"):  # a section without the line that names its GPU
            gpus.append((None, [(path, value)]))
    if not gpus and not head:
        raise absent("nvidia-smi -q page", "no line is a section of it", "Save it again: nvidia-smi -q > gpus.txt")
    return page(gpus, head, lines)


def page(gpus: Sequence[tuple[str | None, list[tuple[Path, str]]]], head: dict[str, str], lines: Sequence[str]) -> Part:
    """Return what a page holds. gpus: bus id and fields of each. head: what stands before the first."""
    fields = [Fields(rows) for _, rows in gpus]
    found = []
    for index, ((bus, _), known) in enumerate(zip(gpus, fields, strict=True)):
        place = v.bus_id(bus) or v.bus_id(known.get("pci/bus_id", "pci/pci_bus_id")) or NAMELESS
        found.append(gpu(known, index, place))
    return part(
        found,
        fields,
        driver=v.version(head.get("driver_version") or head.get("kmd_version")),
        cuda=v.version(head.get("cuda_version") or head.get("cuda_umd_version")),
        messages=[note for one, of in zip(found, fields, strict=True) for note in _notes(of, one.pci_bus_id, lines)],
    )


def _rows(lines: Sequence[str]) -> Iterator[tuple[str | None, Path, str]]:
    """Bus id, path and value of each fact; an empty path where a GPU begins.

    The sections that a fact is in are recognized by indentation; in a page that lost it, the last name alone.
    """
    flat = not any(line[:1].isspace() for line in lines if PAIR.match(line))
    above: list[tuple[int, str]] = []
    skipped = MOST_INDENT
    for line in lines:
        if match := GPU.match(line):
            above, skipped = [], MOST_INDENT
            yield match[1], (), ""
            continue
        found = _line(line)
        if found is None or found.depth > skipped:
            continue
        skipped = found.depth if found.name in OTHERS else MOST_INDENT
        above = [] if flat and found.value is None else [one for one in above if flat or one[0] < found.depth]
        if found.value is None and found.name not in OTHERS and len(above) < MOST_DEPTH:
            above.append((found.depth, found.name))
        elif found.value is not None and found.name not in OTHERS:
            yield None, (*(section for _, section in above), found.name), found.value


class _Line(NamedTuple):
    """A line of the page: how far it is indented, its name, and its value; None for the heading of a section."""

    depth: int
    name: str
    value: str | None


def _line(line: str) -> _Line | None:
    pair = PAIR.match(line)
    if pair and pair[3] is not None:
        return _Line(len(pair[1].expandtabs(8)), name_of(pair[2]), pair[3])
    header = HEADER.match(line)
    return _Line(len(header[1].expandtabs(8)), name_of(header[2]), None) if header else None


def _notes(fields: Fields, bus_id: str | None, lines: Sequence[str]) -> Iterator[Message]:
    """Return what the text itself reports as wrong. lines: of the text, for the line number of the report."""
    if _unanswered(fields):
        bad = [value for path, value in fields.found.items() if len(path) == 1 and value in NO_ANSWER]
        yield _message("no-answer", f"{bad[0]} in {len(bad)} values", bus_id, lines, bad[0])
        return
    state = fields.get("fabric/state")
    if state in FABRIC:
        yield _message(FABRIC[state], f"Fabric State: {state}", bus_id, lines, state)
    if word := not_understood(fields):
        yield _message("unknown-word", word, bus_id, lines, word.partition(": ")[2])
    for name, key in REPAIRS.items():
        if v.switch(fields.get(name)):
            words = name.replace("_", " ").title().replace("Sram", "SRAM").replace("Tpc", "TPC")
            yield _message(key, f"{words}: Yes", bus_id, lines, words)


def _unanswered(fields: Fields) -> bool:
    """A GPU that gave no answers: its name is missing, or most values are."""
    bad = sum(value in NO_ANSWER for path, value in fields.found.items() if len(path) == 1)
    return bad >= MANY or (bad > 1 and fields.get("product_name") in NO_ANSWER)


def _message(key: str, text: str, bus_id: str | None, lines: Sequence[str], fragment: str) -> Message:
    line = next((at for at, one in enumerate(lines, start=1) if fragment in one), 1)
    return Message(key=f"{NAME}.{key}", text=text, line=line, gpu=bus_id)


KIND = Kind(
    NAME,
    "the output of nvidia-smi -q",
    parse,
    holds="GPU state",
    hints=(
        *("NVSMI LOG", "GPU 0", "Mode", "Reasons", "Rows", "Pages", "Readings", "Usage", "Clocks", "Errors", "Info"),
        "Fabric",
    ),
    blocks=lambda lines: spans(lines, BEGIN, INSIDE, again=BANNER),
)
