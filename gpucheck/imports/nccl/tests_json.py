"""nccl-tests -J: config.devices, results, and an environment of which only NCCL's and CUDA's variables are read."""

from typing import Any

from gpucheck.imports._blocks import objects
from gpucheck.imports._json import decode, rows_of, text_of
from gpucheck.imports._kind import MEASUREMENTS, Kind
from gpucheck.imports._numbers import cell
from gpucheck.imports.nccl._tests import (
    ENVIRONMENT,
    TOOL,
    Rank,
    Row,
    bus_id_of,
    imported,
    leftovers,
    only_host,
    operation_in,
)
from gpucheck.model.diagnosis.observations import ObservedGpu
from gpucheck.model.facts import Facts
from gpucheck.model.paste import Part

LARGEST = 1 << 60


def parse(lines: list[str]) -> Part:
    """The largest message of the run. Raises ImportProblem, and nothing else."""
    root = decode(lines, TOOL)
    config = root.get("config")
    devices = rows_of(config.get("devices") if isinstance(config, dict) else root.get("devices"))
    ranks = [
        Rank(
            text_of(row.get("hostname")),
            ObservedGpu(
                model=text_of(row.get("device_info"))[:100] or None, bus_id=bus_id_of(text_of(row.get("device_hex")))
            ),
        )
        for row in devices
    ]
    rows = [row for result in rows_of(root.get("results")) if (row := _row(result)) is not None]
    program = root.get("args")
    name = text_of(program[0]) if isinstance(program, list) and program else ""
    entries = root.get("env")
    found = [ENVIRONMENT.fullmatch(text_of(entry)) for entry in entries] if isinstance(entries, list) else []
    environment = leftovers([(match[1], match[2]) for match in found if match])
    seen = imported(rows, ranks, operation_in(name), None, environment)
    return Part(facts=Facts(observed=seen), ran_on=only_host(rank.host for rank in ranks))


def _row(result: dict[str, Any]) -> Row | None:
    size = result.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < LARGEST:
        return None
    sides = [side for name in ("out_of_place", "in_place") if isinstance(side := result.get(name), dict)]
    found = [(_number(side.get("alg_bw")), _number(side.get("bus_bw"))) for side in sides]
    wrong = [number for side in sides if (number := side.get("nwrong")) is not None]
    counts = [int(number) for number in wrong if isinstance(number, int | float) and 0 <= number < LARGEST]
    best = max(found, key=lambda numbers: numbers[1] or 0.0, default=(None, None))
    return Row(size, best[0], best[1], sum(counts) if counts else None)


def _number(value: Any) -> float | None:
    return cell(str(value), "results") if value is not None else None


KIND = Kind(
    TOOL,
    "the JSON of nccl-tests",
    parse,
    holds=MEASUREMENTS,
    hints=('"bus_bw"', '"nccl_version"'),
    blocks=lambda lines: objects(lines, '"bus_bw"', '"nccl_version"'),
)
