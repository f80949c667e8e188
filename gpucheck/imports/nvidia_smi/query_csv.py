"""``nvidia-smi --query-gpu=... --format=csv`` with its header line, which names the columns."""

import re
from collections.abc import Iterator, Sequence

from gpucheck.imports._kind import Kind
from gpucheck.imports._problem import absent
from gpucheck.imports._regex import regex
from gpucheck.imports.nvidia_smi import _values as v
from gpucheck.imports.nvidia_smi._fields import REASONS, Fields, Path, gpu, part
from gpucheck.imports.nvidia_smi.query import NAME
from gpucheck.model.host.hardware import Gpu
from gpucheck.model.paste import Message, Part

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
    "ecc.mode.current": "ecc_mode/current",
    "ecc.mode.pending": "ecc_mode/pending",
    "ecc.errors.corrected.volatile.total": "volatile/single_bit/total",
    "ecc.errors.uncorrected.volatile.total": "volatile/double_bit/total",
    "ecc.errors.corrected.aggregate.total": "aggregate/single_bit/total",
    "ecc.errors.uncorrected.aggregate.total": "aggregate/double_bit/total",
    "retired_pages.single_bit_ecc.count": "retired_pages/single_bit_ecc",
    "retired_pages.double_bit.count": "retired_pages/double_bit_ecc",
    "retired_pages.pending": "retired_pages/pending",
    "remapped_rows.correctable": "remapped_rows/correctable_error",
    "remapped_rows.uncorrectable": "remapped_rows/uncorrectable_error",
    "remapped_rows.pending": "remapped_rows/pending",
    "remapped_rows.failure": "remapped_rows/remapping_failure_occurred",
    "gpu_recovery_action": "gpu_recovery_action",
    "temperature.gpu": "temperature/gpu",
    "power.draw": "power_readings/power_draw",
    "power.limit": "power_readings/power_limit",
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
    """Return the names of the columns; empty for a line that is not a header."""
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


def parse(lines: list[str]) -> Part:
    """The GPUs, each once: of several readings the last counts. Raises ImportProblem, and nothing else."""
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
        raise absent(
            "row of nvidia-smi --query-gpu",
            "no line below the header has as many cells",
            "Save it again: nvidia-smi --query-gpu=name,pci.bus_id --format=csv > gpus.csv",
        )
    fields = [Fields(_rows(row)) for row in reported.values()]
    places = [v.whole(one.get("index")) for one in fields]
    gpus: list[Gpu] = []
    for at, one in enumerate(fields):
        place = places[at]
        gpus.append(gpu(one, at if place is None else place, v.bus_id(one.get("pci/bus_id"))))
    return part(gpus, fields, driver=v.version(fields[0].get("driver_version")))


def _rows(row: dict[str, str]) -> Iterator[tuple[Path, str]]:
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


def _blocks(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
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


KIND = Kind(NAME, "the output of nvidia-smi --query-gpu", parse, holds="GPU state", hints=(", ",), blocks=_blocks)
