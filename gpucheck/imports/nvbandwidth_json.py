"""nvbandwidth -j: cells are strings, and a test with several tables puts them all into one list of rows."""

import re
from typing import Any

from gpucheck.imports._json import decode, looks_like_json, rows_of, text_of
from gpucheck.imports._kind import MeasuredKind
from gpucheck.imports._numbers import MOST_GPUS, cell, refuse_gib
from gpucheck.imports._nvbandwidth import TOOL, Table, measured, wanted
from gpucheck.imports._problem import ImportProblem
from gpucheck.model.observations import Import, Matrix, ObservedGpu

DEVICE = re.compile(r"(.{1,100}?)(?: \(([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\))?", re.IGNORECASE)


def recognise(text: str) -> bool:
    """JSON that names the tool."""
    return looks_like_json(text) and '"nvbandwidth"' in text


def parse(text: str) -> Import:
    """Every table of a single pair or link. Raises ImportProblem, and nothing else."""
    root = decode(text, TOOL).get(TOOL)
    if not isinstance(root, dict):
        raise ImportProblem(f"{TOOL}: no result in it", where="whole input", why="nvbandwidth is no object",
                            do="Save it again: nvbandwidth -j > out.json")  # fmt: skip
    tables = []
    for row in rows_of(root.get("testcases")):
        case, description = text_of(row.get("name")), text_of(row.get("bandwidth_description"))
        if wanted(case) and isinstance(row.get("bandwidth_matrix"), list):
            refuse_gib(description, 1)
            tables.append(Table(case, description, _rows(row["bandwidth_matrix"], case), 0))
    return measured(tables, _gpus(root))


def _rows(value: list[Any], case: str) -> Matrix:
    """The last table of the list: with several, the total comes last."""
    if len(value) > 4 * MOST_GPUS or not all(isinstance(row, list) and 0 < len(row) <= MOST_GPUS for row in value):
        raise ImportProblem(
            f"{TOOL}: no matrix", where=case, why="bandwidth_matrix is no list of rows", do="Save it again"
        )
    rows = tuple(tuple(cell(str(word), case) for word in row) for row in value)
    columns = len(rows[0]) if rows else 0
    if any(len(row) != columns for row in rows):
        raise ImportProblem(
            f"{TOOL}: not a square table", where=case, why="rows of different lengths", do="Save it again"
        )
    several = case.startswith("device_to_device") and columns and len(rows) > columns and len(rows) % columns == 0
    return rows[-columns:] if several else rows


def _gpus(root: dict[str, Any]) -> tuple[ObservedGpu, ...]:
    """Versions that list the devices do it as strings or objects; others name none."""
    named = root.get("devices", root.get("GPU Device list"))
    if not isinstance(named, list) or len(named) > MOST_GPUS:
        return ()
    gpus = []
    for entry in named:
        device = DEVICE.fullmatch(re.sub(r"^\d+: ", "", text_of(entry).strip()))
        if device is None:
            return ()
        bus_id = f"{int(device[2], 16):04x}:{device[3]}:{device[4]}.0".lower() if device[2] else None
        gpus.append(ObservedGpu(model=device[1], bus_id=bus_id))
    return tuple(gpus)


KIND = MeasuredKind("nvbandwidth-json", "the JSON of nvbandwidth", recognise, parse)
