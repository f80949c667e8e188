"""nvidia-smi -q as text, whole or in sections (-d ECC), of any driver from R290 to R610, as XML and as CSV."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpucheck.imports._kind import Kind
from gpucheck.imports._text import regex, spans, until, with_lines_above
from gpucheck.imports.nvidia_smi import _fields as v
from gpucheck.imports.nvidia_smi._fields import NO_ANSWER, REASONS, Fields, Path, gpu, name_of, not_understood, part
from gpucheck.model.host.hardware import Gpu
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
TEXT_BEGIN = regex(f"{BANNER.pattern}|{GPU.pattern}|{SECTIONS.pattern}")
INSIDE = regex("|".join(one.pattern for one in (PAIR, INDENTED, HEADINGS, BANNER)))
# These repeat names of the GPU's own sections, for a part of it.
OTHERS = {"mig_device", "mig_devices", "processes", "accounted_processes"}
MOST_DEPTH = 12
NAMELESS = "GPU?"  # of a part that does not name its GPU
MOST_INDENT = 1 << 20
MANY = 8  # values that are not available; one alone is usual: laptops do not report their power limit
# As many as the check pcie-errors takes in a week. Since when they are counted is not known.
MOST_REPLAYS = 10_000
MOST_LOWERED_US = 1_000_000
EVERY_GPU = ("temperature/gpu", "utilization/gpu", "performance_state", "fb_memory_usage/used", "clocks/sm")
FABRIC = dict.fromkeys(("In Progress", "Not Started"), "fabric-in-progress")
REPAIRS = {
    "sram_threshold_exceeded": "sram-threshold",
    "unrepairable_memory": "unrepairable-memory",
    "channel_repair_pending": "repair-pending",
    "tpc_repair_pending": "repair-pending",
}


def text_parse(lines: list[str]) -> Part | None:
    head: dict[str, str] = {}
    gpus: list[tuple[str | None, list[tuple[Path, str]]]] = []
    for bus, path, value in _text_rows(lines):
        if path == ():
            gpus.append((bus, []))
        elif gpus:
            gpus[-1][1].append((path, value))
        elif len(path) == 1:
            head.setdefault(path[0], value)
        elif not path[0].startswith("vgpu"):  # a section without the line that names its GPU
            gpus.append((None, [(path, value)]))
    if not gpus and not head:
        return None
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


def _text_rows(lines: Sequence[str]) -> Iterator[tuple[str | None, Path, str]]:
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
    bad = [value for path, value in fields.found.items() if len(path) == 1 and value in NO_ANSWER]
    if "GPU requires reset" in bad:
        yield _message("requires-reset", "GPU requires reset in place of values", bus_id, lines, "GPU requires reset")
        return
    # A GPU that gave no answers: its name is missing, or most values are, or several that every GPU has.
    nameless = len(bad) > 1 and fields.get("product_name") in NO_ANSWER
    silent = sum(fields.get(name) in NO_ANSWER for name in EVERY_GPU) > 1
    if "GPU is lost" in bad or len(bad) >= MANY or nameless or silent:
        yield _message("no-answer", f"{bad[0]} in {len(bad)} values", bus_id, lines, bad[0])
        return
    state = fields.get("fabric/state")
    if state in FABRIC:
        yield _message(FABRIC[state], f"Fabric State: {state}", bus_id, lines, state)
    for key, found in (("unread", v.unread(fields)), ("unknown-word", not_understood(fields))):
        if found is not None:
            path, word = found
            yield _message(key, f"{path}: {word}", bus_id, lines, word)
            break
    replays = v.replays(fields)
    if replays is not None and replays > MOST_REPLAYS:
        yield _message("replays", f"Replays Since Reset: {replays}", bus_id, lines, str(replays))
    lowered = {name: us for name, paths in v.LOWERED.items() if (us := v.whole(fields.get(*paths)))}
    if lowered and max(lowered.values()) > MOST_LOWERED_US:
        words = ", ".join(f"{name} {us / 1e6:.0f} s" for name, us in lowered.items())
        yield _message("lowered", f"Clocks Event Reasons Counters: {words}", bus_id, lines, "ounters")
    for name, key in REPAIRS.items():
        if v.switch(fields.get(name)):
            words = name.replace("_", " ").title().replace("Sram", "SRAM").replace("Tpc", "TPC")
            yield _message(key, f"{words}: Yes", bus_id, lines, words)


def _message(key: str, text: str, bus_id: str | None, lines: Sequence[str], fragment: str) -> Message:
    line = next((at for at, one in enumerate(lines, start=1) if fragment in one), 1)
    return Message(key=f"{NAME}.{key}", text=text, line=line, gpu=bus_id)


def _text_blocks(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """A section that a GPU has already begins a reading of its own. Those of MIG devices are deeper."""
    for first, last in spans(lines, TEXT_BEGIN, INSIDE, again=BANNER):
        seen: dict[str, int] = {}
        for at in range(first, last + 1):
            if GPU.match(lines[at]):
                seen = {}
            elif SECTIONS.match(lines[at]) and lines[at][:1].isspace():
                depth = len(lines[at].expandtabs(8)) - len(lines[at].lstrip())
                name = lines[at].strip().lower().replace("throttle", "event")
                if seen.get(name) == depth == min(seen.values()):
                    yield first, at - 1
                    first, seen = at, {}
                seen.setdefault(name, depth)
        yield first, last


TEXT = Kind(
    NAME,
    "the output of nvidia-smi -q",
    text_parse,
    hints=(
        *("NVSMI LOG", "GPU 0", "Mode", "Reasons", "Rows", "Pages", "Readings", "Usage", "Clocks", "Errors", "Info"),
        "Fabric",
    ),
    blocks=_text_blocks,
)


# ``nvidia-smi -q -x``: the same page as XML. Its tags are scanned, so that a page cut short is read to its end.
#
# Nothing is ever expanded or opened: a document type is skipped, an entity stays as it is written.
TAG = regex(r"<(/?)([A-Za-z_]\w{0,60})((?:\s[^<>]{0,300})?)>([^<>]{0,400})")
ID = regex(rf'\bid="({v.BUS_ID})"')
MOST_GPUS = 128
DECLARATION = regex(r"\s*<[?!]")
END = "</nvidia_smi_log>"
XML_BEGIN = regex(r"<nvidia_smi_log\b|<gpu id=\"[0-9A-Fa-f]{4,8}:")


def xml_parse(lines: list[str]) -> Part | None:
    head: dict[str, str] = {}
    gpus: list[tuple[str | None, list[tuple[Path, str]]]] = []
    above: list[str] = []
    for close, tag, attributes, value in TAG.findall("\n".join(lines)):
        if close:
            if tag in above:
                del above[len(above) - 1 - above[::-1].index(tag) :]
            continue
        if tag == "gpu" and not any(one in OTHERS for one in above) and len(gpus) < MOST_GPUS:
            found = ID.search(attributes)
            gpus.append((found[1] if found else None, []))
            above = ["gpu"]
            continue
        if len(above) < MOST_DEPTH:
            above.append(tag)
        if value.strip() and not any(one in OTHERS for one in above):
            if gpus:
                gpus[-1][1].append((tuple(above[1:]), value))
            else:
                head.setdefault(tag, value.strip())
    if not gpus and "driver_version" not in head:
        return None
    return page(gpus, head, lines)


def _xml_blocks(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    for first, last in with_lines_above(lines, until(lines, XML_BEGIN.search, END), DECLARATION.match):
        while END not in lines[last] and last > first and not TAG.search(lines[last]):
            last -= 1
        yield first, last


XML = Kind(
    NAME,
    "the output of nvidia-smi -q -x",
    xml_parse,
    hints=("<nvidia_smi_log", "<gpu id="),
    blocks=_xml_blocks,
)


# ``nvidia-smi --query-gpu=... --format=csv`` with its header line, which names the columns.
MOST_COLUMNS = 400
MOST_ROWS = 2000
COLUMN = regex(r"[a-zA-Z][\w.]{0,80}(?: \[[^\]]{1,12}\])?")
# As -q names them.
PATHS = {
    "index": "index",
    "count": "attached_gpus",
    "name": "product_name",
    "gpu_name": "product_name",
    "uuid": "gpu_uuid",
    "gpu_uuid": "gpu_uuid",
    "pci.bus_id": "pci/bus_id",
    "gpu_bus_id": "pci/bus_id",
    "pci.device_id": "pci/device_id",
    "driver_version": "driver_version",
    "vbios_version": "vbios_version",
    "compute_cap": "compute_cap",
    "persistence_mode": "persistence_mode",
    "compute_mode": "compute_mode",
    "pstate": "performance_state",
    "pcie.link.gen.current": "pcie_generation/current",
    "pcie.link.gen.gpucurrent": "pcie_generation/current",
    "pcie.link.gen.max": "pcie_generation/max",
    "pcie.link.width.current": "link_width/current",
    "pcie.link.width.max": "link_width/max",
    "mig.mode.current": "mig_mode/current",
    "mig.mode.pending": "mig_mode/pending",
    "inforom.checksum_validation": "inforom_checksum",
    "ecc.mode.current": "ecc_mode/current",
    "ecc.mode.pending": "ecc_mode/pending",
    "ecc.errors.corrected.volatile.total": "volatile/single_bit/total",
    "ecc.errors.uncorrected.volatile.total": "volatile/double_bit/total",
    "ecc.errors.corrected.aggregate.total": "aggregate/single_bit/total",
    "ecc.errors.uncorrected.aggregate.total": "aggregate/double_bit/total",
    **{
        f"ecc.errors.{word}.{since}.{memory}": f"{since}/{place}"
        for since in ("volatile", "aggregate")
        for word, bits, kind in (
            ("corrected", "single_bit", "correctable"),
            ("uncorrected", "double_bit", "uncorrectable"),
        )
        for memory, place in (
            ("device_memory", f"{bits}/device_memory"),
            *((memory, f"{memory}_{kind}") for memory in ("dram", "sram")),
            *((f"sram.{part}", f"sram_{kind}_{part}") for part in ("parity", "secded")),
        )
    },
    "ecc.errors.uncorrected.aggregate.sram.thresholdExceeded": "sram_threshold_exceeded",
    "retired_pages.single_bit_ecc.count": "retired_pages/single_bit_ecc",
    "retired_pages.double_bit.count": "retired_pages/double_bit_ecc",
    "retired_pages.pending": "retired_pages/pending",
    "remapped_rows.correctable": "remapped_rows/correctable_error",
    "remapped_rows.uncorrectable": "remapped_rows/uncorrectable_error",
    "remapped_rows.pending": "remapped_rows/pending",
    "remapped_rows.failure": "remapped_rows/remapping_failure_occurred",
    **{f"remapped_rows.histogram.{bank}": f"bank_remap_availability_histogram/{bank}" for bank in v.BANKS.values()},
    "gpu_recovery_action": "gpu_recovery_action",
    "gpu_reset_status.reset_required": "gpu_reset_status/reset_required",
    "gpu_reset_status.drain_and_reset_recommended": "gpu_reset_status/drain_and_reset_recommended",
    **{
        f"clocks_{word}_reasons_counters.{name}": f"clocks_event_reasons_counters/{place}"
        for word in ("event", "throttle")
        for name, place in (
            ("hw_thermal_slowdown", "hw_thermal_slowdown"),
            ("hw_power_brake_slowdown", "hw_power_braking"),
        )
    },
    **{f"fabric.{name}": f"fabric/{name.lower()}" for name in ("state", "status", "cliqueId", "clusterUuid")},
    **{f"fabric.health.{name}": f"health/{name}" for name in ("summary", *v.HEALTH, "incorrect_configuration")},
    "temperature.gpu": "temperature/gpu",
    "temperature.gpu.tlimit": "temperature/gpu_t_limit_temp",
    "power.draw": "power_readings/power_draw",
    "power.limit": "power_readings/power_limit",
    "enforced.power.limit": "power_readings/enforced_power_limit",
    "power.default_limit": "power_readings/default_power_limit",
    "power.min_limit": "power_readings/min_power_limit",
    "power.max_limit": "power_readings/max_power_limit",
    "clocks.current.sm": "clocks/sm",
    "clocks.sm": "clocks/sm",
    "clocks.max.sm": "max_clocks/sm",
    "clocks.applications.graphics": "applications_clocks/graphics",
    "clocks.applications.gr": "applications_clocks/graphics",
    "clocks.default_applications.graphics": "default_applications_clocks/graphics",
    "memory.total": "fb_memory_usage/total",
    "memory.used": "fb_memory_usage/used",
    "utilization.gpu": "utilization/gpu",
}
# A row of a call with noheader: what the numbers are is unknown.
NO_NAMES = regex(
    r"\s{0,4}(?:\d{1,3}, ?)?(?:GPU-[0-9a-fA-F-]{36}, ?)?(?:NVIDIA|Tesla|GeForce|Quadro) ?[\w ./()-]{2,60}, ?"
    r"[^,:]{0,40}\d[^,]{0,40}(?:,.{0,400})?"
)
REASON = regex(r"clocks_(?:event|throttle)_reasons\.(\w{1,40})")


def _columns(line: str) -> list[str]:
    if "," not in line or len(line) > 20_000:
        return []
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) > MOST_COLUMNS or not all(COLUMN.fullmatch(cell) for cell in cells):
        return []
    names = [cell.split(" ")[0] for cell in cells]
    known = [name for name in names if name in PATHS or REASON.fullmatch(name)]
    # A table of anything may have an index and a name.
    sure = any("." in name or name in ("driver_version", "pstate", "uuid", "compute_cap") for name in known)
    return names if sure and len(known) >= 2 else []


def _cells(line: str, columns: Sequence[str]) -> list[str]:
    cells = [cell.strip() for cell in line.split(",")]
    return cells if len(cells) == len(columns) else []


def csv_parse(lines: list[str]) -> Part | None:
    """The GPUs, each once: of several readings the last counts."""
    if NO_NAMES.fullmatch(lines[0]) and not _columns(lines[0]):
        return Part(messages=(Message(key="nvidia-smi.csv-without-names", text=lines[0].strip(), line=1),))
    columns: list[str] = []
    reported: dict[str, dict[str, str]] = {}
    for line in lines:
        if found := _columns(line):
            columns = found
        elif columns and (cells := _cells(line, columns)) and len(reported) < MOST_ROWS:
            row = dict(zip(columns, cells, strict=True))
            key = next((row[n] for n in ("pci.bus_id", "gpu_bus_id", "uuid", "index") if n in row), str(len(reported)))
            reported[key] = row
    if not reported:
        return None
    fields = [Fields(_csv_rows(row)) for row in reported.values()]
    places = [v.whole(one.get("index")) for one in fields]
    gpus: list[Gpu] = []
    for at, one in enumerate(fields):
        place = places[at]
        gpus.append(gpu(one, at if place is None else place, v.bus_id(one.get("pci/bus_id"))))
    notes = [note for one, of in zip(gpus, fields, strict=True) for note in _notes(of, one.pci_bus_id, lines)]
    return part(gpus, fields, driver=v.version(fields[0].get("driver_version")), messages=notes)


def _csv_rows(row: dict[str, str]) -> Iterator[tuple[Path, str]]:
    for name, value in row.items():
        value = value.strip("[]") if value.startswith("[") else value
        if name in PATHS:
            yield tuple(PATHS[name].split("/")), value
        elif match := REASON.fullmatch(name):
            if match[1] == "active" and re.fullmatch(r"0x[0-9a-fA-F]{1,16}", value):
                for bit, names in enumerate(REASONS.values()):
                    yield ("clocks_event_reasons", names[0]), "Active" if int(value, 16) >> bit & 1 else "Not Active"
            else:
                yield ("clocks_event_reasons", match[1]), value


def _csv_blocks(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    at = 0
    while at < len(lines):
        columns = _columns(lines[at]) if "," in lines[at] else []
        first, at = at, at + 1
        if columns:
            while at < len(lines) and (_cells(lines[at], columns) or lines[at].strip() == lines[first].strip()):
                at += 1
            if at > first + 1:
                yield first, at - 1
        elif NO_NAMES.fullmatch(lines[first]):
            while at < len(lines) and NO_NAMES.fullmatch(lines[at]):
                at += 1
            yield first, at - 1


CSV = Kind(NAME, "the output of nvidia-smi --query-gpu", csv_parse, hints=(", ",), blocks=_csv_blocks)
