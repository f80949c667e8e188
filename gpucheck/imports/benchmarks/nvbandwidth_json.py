"""nvbandwidth -j: cells are strings, and a test with several tables puts them all into one list of rows."""

import re
from typing import Any

from gpucheck.imports._blocks import objects
from gpucheck.imports._common import bus_id
from gpucheck.imports._json import decode, rows_of, text_of
from gpucheck.imports._kind import MEASUREMENTS, Kind
from gpucheck.imports._messages import messages_in
from gpucheck.imports._numbers import MOST_GPUS, cell, refuse_gib
from gpucheck.imports._problem import ImportProblem
from gpucheck.imports._regex import regex
from gpucheck.imports.benchmarks._nvbandwidth import TOOL, Table, measured, of_one_host, wanted, with_waived_tests
from gpucheck.model.diagnosis.observations import Matrix, Observations, ObservedGpu
from gpucheck.model.facts import Facts
from gpucheck.model.paste import Part

DEVICE = regex(
    r"(.{1,100}?)(?: \(([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\))?(?:: \([\w.-]{1,100}\))?", re.IGNORECASE
)


def parse(lines: list[str]) -> Part:
    """Every table of a single pair or link. Raises ImportProblem, and nothing else."""
    root = decode(lines, TOOL).get(TOOL)
    if not isinstance(root, dict):
        raise ImportProblem(f"{TOOL}: no result in it", why="nvbandwidth is not an object",
                            do="Save it again: nvbandwidth -j > out.json")  # fmt: skip
    tables = []
    for row in rows_of(root.get("testcases")):
        case, description = of_one_host(text_of(row.get("name"))), text_of(row.get("bandwidth_description"))
        if wanted(case) and isinstance(row.get("bandwidth_matrix"), list):
            refuse_gib(description, 1)
            tables.append(Table(case, description, _rows(row["bandwidth_matrix"], case)))
    gpus = _gpus(root)
    messages = messages_in(TOOL, lines)
    waived = any(map(_was_waived, rows_of(root.get("testcases"))))
    peers = not any(text_of(row.get("name")).startswith("multinode_") for row in rows_of(root.get("testcases")))
    seen = measured(tables, gpus, peers=peers) if tables or not (messages or waived) else Observations(gpus=gpus)
    return Part(facts=Facts(observed=with_waived_tests(seen) if waived else seen), messages=messages)


def _was_waived(row: dict[str, Any]) -> bool:
    between = of_one_host(text_of(row.get("name"))).startswith("device_to_device")
    return between and text_of(row.get("status")).lower() == "waived"


def _rows(value: list[Any], case: str) -> Matrix:
    """The last table of the list: with several, the total comes last."""
    if len(value) > 4 * MOST_GPUS or not all(isinstance(row, list) and 0 < len(row) <= MOST_GPUS for row in value):
        raise ImportProblem(
            f"{TOOL}: no matrix", where=case, why="bandwidth_matrix is not a list of rows", do="Save it again"
        )
    rows = tuple(tuple(cell(str(word), case) for word in row) for row in value)
    columns = len(rows[0]) if rows else 0
    if any(len(row) != columns for row in rows):
        raise ImportProblem(
            f"{TOOL}: not a square table", where=case, why="rows of different lengths", do="Save it again"
        )
    if not case.startswith("device_to_device") or not columns:
        return rows
    if len(rows) % columns:
        why = f"{len(rows)} rows of {columns} columns"
        raise ImportProblem(f"{TOOL}: not a square table", where=case, why=why, do="Save it again")
    return tuple(tuple(None if i == j else v for j, v in enumerate(row)) for i, row in enumerate(rows[-columns:]))


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
        place = bus_id(*device.group(2, 3, 4)) if device[2] else None
        gpus.append(ObservedGpu(model=device[1], bus_id=place))
    return tuple(gpus)


KIND = Kind(
    TOOL,
    "the JSON of nvbandwidth",
    parse,
    holds=MEASUREMENTS,
    hints=('"nvbandwidth"',),
    blocks=lambda lines: objects(lines, '"nvbandwidth"'),
)
