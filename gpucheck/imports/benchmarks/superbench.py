"""Results of SuperBench: results-summary.jsonl, one object a node, keys ``benchmark/metric:rank``."""

from typing import Any

from gpucheck.imports._kind import Kind
from gpucheck.imports._numbers import MOST_GPUS
from gpucheck.imports._text import ImportProblem, by_pair, in_order, json_object, left_out, objects, regex
from gpucheck.imports.benchmarks.nvbandwidth import granted
from gpucheck.model.diagnosis.observations import (
    Collective,
    HostDevice,
    Matrix,
    Measured,
    Method,
    Observations,
    ObservedGpu,
)
from gpucheck.model.facts import Facts
from gpucheck.model.paste import Part

TOOL = "superbench"
HOST = regex(r"mem-bw[\w:-]{0,40}/(?:(H2D)|(D2H))_Mem_BW:(\d{1,2})")
COLLECTIVE = regex(r"(?:nccl|rccl)-bw[\w:-]{0,40}/(?:(\w{3,20})_)?(\d{1,13})_busbw(?::\d{1,4})?")
PAIR = regex(
    r"nvbandwidth[\w:-]{0,40}/device_to_device_memcpy_(read|write)_ce_gpu(\d{1,2})_gpu(\d{1,2})_bw(?::\d{1,4})?"
)
CODE = regex(r"/return_code(?::\d{1,4})?\Z")  # of a benchmark; 0 is success
# Of large copies, which are never zero; the bus bandwidth of a small collective is.
RATE = regex(r"/(?:[HD]2[HD]_Mem_BW|device_to_device_\w{1,60}_bw)(?::\d{1,4})?\Z")
OPS = {"allreduce": "all_reduce", "allgather": "all_gather", "alltoall": "alltoall", "reducescatter": "reduce_scatter"}
MARKS = ('"mem-bw', '"nccl-bw', '"rccl-bw', '"nvbandwidth', '"kernel-launch', '"gemm-flops', '"ib-')


def parse(lines: list[str]) -> Part:
    root = json_object(lines, TOOL)
    node = root.get("node")
    if not isinstance(node, str) or not any("/" in key for key in root):
        raise ImportProblem(
            f"{TOOL}: no results in it", why="no key is benchmark/metric", do="Give results-summary.jsonl"
        )
    numbers = {key: value for key, value in root.items() if isinstance(value, int | float) and 0 < value < 1e12}
    measured = Measured(
        host_device=_host(numbers),
        collectives=_collectives(numbers),
        p2p_uni_gb_s=(matrix := _matrix(numbers)),
        method=Method(engine="ce") if matrix else Method(),
    )
    count = max(len(measured.host_device), len(matrix or ()))
    seen = Observations(
        gpus=tuple(ObservedGpu() for _ in range(count)),
        p2p_access=granted([matrix], count) if matrix else None,
        measured=measured,
    )
    bad = [
        key[:80]
        for key, value in root.items()
        if (CODE.search(key) and value != 0) or (RATE.search(key) and key not in numbers)
    ]
    unread = (left_out(1, len(lines), f"benchmarks that failed: {', '.join(bad[:6])}", lines[0]),) if bad else ()
    return Part(machine=node[:100], facts=Facts(observed=seen), looked_at=("results of SuperBench",), unread=unread)


def _host(numbers: dict[str, Any]) -> tuple[HostDevice, ...]:
    found: dict[int, dict[str, float]] = {}
    for key, value in numbers.items():
        if match := HOST.fullmatch(key):
            found.setdefault(int(match[3]), {})["h2d_gb_s" if match[1] else "d2h_gb_s"] = float(value)
    rows = enumerate(in_order(found))
    return tuple(HostDevice(gpu=i, h2d_gb_s=row.get("h2d_gb_s"), d2h_gb_s=row.get("d2h_gb_s")) for i, row in rows)


def _collectives(numbers: dict[str, Any]) -> tuple[Collective, ...]:
    """Return the largest message of each operation; the number of ranks is not reported."""
    best: dict[str | None, tuple[int, float]] = {}
    for key, value in numbers.items():
        if match := COLLECTIVE.fullmatch(key):
            op = OPS.get(match[1] or "allreduce", match[1])
            best[op] = max(best.get(op, (0, 0.0)), (int(match[2]), float(value)))
    return tuple(Collective(op=op, bytes=size, busbw_gb_s=number) for op, (size, number) in best.items())


def _matrix(numbers: dict[str, Any]) -> Matrix | None:
    """GPU by GPU as it was measured; of reads and writes the writes, where both are there."""
    found: dict[str, dict[tuple[int, int], float]] = {}
    for key, value in numbers.items():
        match = PAIR.fullmatch(key)
        if match and match[2] != match[3]:
            # In nvbandwidth's tables of writes the row is the destination, in those of reads the source.
            pair = (int(match[2]), int(match[3]))
            found.setdefault(match[1], {})[pair if match[1] == "read" else pair[::-1]] = float(value)
    pairs = found.get("write") or found.get("read") or {}
    count = 1 + max((max(pair) for pair in pairs), default=-1)
    if not 2 <= count <= MOST_GPUS:
        return None
    return by_pair(pairs, count)


KIND = Kind(
    TOOL,
    "the results of SuperBench",
    parse,
    hints=('"node"',),
    blocks=lambda lines: objects(lines, *MARKS),
)
