"""Observations as YAML (or JSON, which is YAML) -> frozen values. Every key is optional; a mistake names its line.

The keys and their types are those of the structs; what follows is what the types do not state.
"""

import re
from collections.abc import Callable
from typing import Any

import msgspec
from yaml.nodes import MappingNode

from gpucheck.foreign.written import (
    FALSE,
    MOST_COUNT,
    TRUE,
    Hooks,
    Misplaced,
    Written,
    choose,
    flag,
    is_unknown,
    known,
    must_be_key,
    number,
    whole,
)
from gpucheck.model.diagnosis.observations import (
    CopyFailure,
    Damaged,
    Flow,
    Hang,
    HostDevice,
    Observations,
    ObservedGpu,
    UnderLoad,
)

MOST_GPUS = 128  # of one NVLink domain there are 72; the time that rules take grows with the square
MOST_NAME = 200
MOST_ROWS = 1024
CLASS = re.compile(r"X|PIX|PXB|PHB|NODE|SYS|SOC|NV\d{1,2}")
STATUS = ("OK", "CNS", "GNS", "TNS", "DR", "NS", "U")
DIAGONAL = {"x", "-", ""}
MAX_BYTES = 1 << 20
"""Six matrices of 128 GPUs are 600 kB; a larger input is not a set of observations."""


def read(data: bytes | str, name: str = "observations") -> Observations:
    """The observations in a YAML document, or in a JSON report of gpucheck that carries them.

    Raises DocumentProblem, and nothing else, for any input.
    """
    written = Written(data, name, unknown=True)
    if written.node is None:
        raise written.problem("there is nothing in it. Write at least gpus, matrix and measured")
    pairs = written.node.value if isinstance(written.node, MappingNode) else ()
    keys = {key.value: node for key, node in pairs if isinstance(key.value, str)}
    if "schema" in keys:  # a report of gpucheck bandwidth or collectives
        if "observations" not in keys:
            raise written.problem("this report of gpucheck has no observations. Give that of bandwidth or collectives")
        written.node = keys["observations"]
    return sized(written.read(Observations, TEXTS, BLOCKS, LISTS), written)


def sized(seen: Observations, root: Written) -> Observations:
    """The same observations with one entry a GPU. Raises DocumentProblem where two sizes contradict each other."""
    matrices = {name: getattr(seen, name) for name in ("matrix", "p2p_access", "p2p_status")}
    matrices |= {f"measured.{name}": getattr(seen.measured, name) for name in MATRICES}
    sizes = {"gpus": len(seen.gpus)} | {name: len(rows) for name, rows in matrices.items() if isinstance(rows, tuple)}
    sizes = {name: size for name, size in sizes.items() if size}
    if len(set(sizes.values())) > 1:
        words = ", ".join(f"{name} has {size}" for name, size in sizes.items())
        raise root.problem(f"the number of GPUs differs: {words}")
    results = (*seen.measured.nic_bw_gb_s, *seen.measured.nic_latency_us)
    if (last := max((number for one in results for number in one.nics), default=-1)) >= len(seen.nics):
        raise root.problem(f"card {last} is measured, but nics has {len(seen.nics)}")
    count = max(sizes.values(), default=0)
    named = max(_indexes(seen), default=-1)
    if count and named >= count:
        raise root.problem(f"GPU {named} is named, but there are {count} GPUs (0 to {count - 1})")
    if seen.gpus or not (count or named >= 0):
        return seen
    return msgspec.structs.replace(seen, gpus=tuple(ObservedGpu() for _ in range(count or named + 1)))


def _indexes(seen: Observations) -> list[int]:
    measured = seen.measured
    rows: tuple[Flow | Damaged | CopyFailure, ...] = (*measured.flows, *measured.damaged, *measured.failures)
    gpus: tuple[HostDevice | UnderLoad, ...] = (*measured.host_device, *measured.under_load)
    pairs = [*(pair for row in rows for pair in row.pairs), *(measured.integrity_bad_pairs or ())]
    hang = measured.hang.gpus if isinstance(measured.hang, Hang) else ()
    return [
        *(index for pair in pairs for index in pair),
        *(row.gpu for row in gpus),
        *(index for uplink in seen.uplinks for index in uplink.gpus),
        *hang,
    ]


# --- Values with rules of their own ----------------------------------------------------------------------------------


def matrix(rows: list[Any]) -> list[Any]:
    """n x n, the diagonal None whatever it holds."""
    if not 0 < len(rows) <= MOST_GPUS:
        raise ValueError(f"has {len(rows)} rows, not 1 to {MOST_GPUS}. Write null for not measured")
    for i, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != len(rows):
            cells = len(row) if isinstance(row, list) else "no"
            raise Misplaced(i, f"has {cells} cells, but there are {len(rows)} rows: the matrix must be square")
    return [[None if i == j or is_unknown(cell) else cell for j, cell in enumerate(row)] for i, row in enumerate(rows)]


def off_diagonal(reader: Callable[[str], Any]) -> Callable[[str], Any]:
    """X and - are no value, wherever they stand."""
    return lambda text: None if text.lower() in DIAGONAL else reader(text)


def product_name(text: str) -> str:
    """A product's name; patterns are searched in it."""
    if len(text) > MOST_NAME:
        raise ValueError(f"has {len(text)} characters, more than the {MOST_NAME} of a name")
    return text


@off_diagonal
def measured_cell(text: str) -> float | None:
    """A tool prints 0.00 for a pair that it did not measure."""
    return number(text) or None


@off_diagonal
def part_cell(text: str) -> float:
    """An uncertainty as a part of the number."""
    if (part := number(text)) > 1:
        raise ValueError("is not between 0 and 1. Write 0.03 for 3 %")
    return part


@off_diagonal
def flag_cell(text: str) -> bool:
    """Tools print 1 and 0."""
    return text == "1" if text in ("0", "1") else flag(text)


def class_cell(text: str) -> str | None:
    word = text.upper()
    if not CLASS.fullmatch(word):
        raise ValueError(f"{word[:20]} is not a path class (NV#, PIX, PXB, PHB, NODE, SYS)")
    return "SYS" if word == "SOC" else None if word == "X" else word


def status_cell(text: str) -> str | None:
    word = text.upper()
    if word in ("X", "U"):
        return None
    if word not in STATUS:
        raise ValueError(f"{word[:20]} is not a P2P status ({', '.join(STATUS)})")
    return word


def two(what: str, *, differ: bool) -> Callable[[list[Any]], list[Any]]:
    def read_two(ends: list[Any]) -> list[Any]:
        if len(ends) != 2 or (differ and ends[0] == ends[1]):
            raise ValueError(f"must name {what}")
        return ends

    return read_two


def _gpus(found: dict[str, Any]) -> list[Any]:
    for key, one in found.items():
        must_be_key(key, ("count", "model"))
        if not isinstance(one, str):
            raise Misplaced(key, "must be a single value, not a list or a block")
    count = found.get("count", "")
    return [{"model": found.get("model", "")}] * (0 if is_unknown(count) else whole(0, MOST_GPUS)(count))


def rows(most: int) -> Callable[[list[Any]], list[Any]]:
    def read_rows(given: list[Any]) -> list[Any]:
        if len(given) > most:
            raise ValueError(f"has {len(given)} entries, more than the {most} that are possible here")
        return [{} if is_unknown(one) else one for one in given] if most == MOST_GPUS else given

    return read_rows


def _iommu(text: str) -> str:
    if text.lower() in TRUE:
        raise ValueError("an IOMMU that is on may translate or not. Write identity or translating")
    return "off" if text.lower() in FALSE else text


def _virtual(text: str) -> bool:
    """A hypervisor's name means yes, none means no."""
    return text.lower() not in FALSE | {"none"}


def _node(text: str) -> int | None:
    """Linux prints -1 if unknown to the firmware."""
    node = whole(-1, 1023)(text)
    return node if node >= 0 else None


def _by_class(found: dict[str, Any]) -> dict[str, Any]:
    for name in found:
        if not CLASS.fullmatch(name) or name == "X":
            raise Misplaced(name, "no path class (NV#, PIX, PXB, PHB, NODE, SYS)")
    return {"SYS" if name == "SOC" else name: one for name, one in known(found).items()}


def _range(ends: list[Any]) -> list[Any]:
    numbers = [number(one) if isinstance(one, str) else 0.0 for one in ends]
    if len(ends) not in (1, 2) or min(numbers) <= 0:
        raise ValueError("must be [low, high], both above zero")
    return [min(numbers), max(numbers)]


MATRICES = {
    **{f"{path}_{way}_gb_s": measured_cell for path in ("p2p", "staged") for way in ("uni", "bidir")},
    **{f"{path}_latency_us": measured_cell for path in ("p2p", "staged")},
    **{f"p2p_{way}_error": part_cell for way in ("uni", "bidir")},
    **{f"p2p_{way}_alone": flag_cell for way in ("uni", "bidir")},
}
CELLS = {**MATRICES, "matrix": class_cell, "p2p_access": flag_cell, "p2p_status": status_cell}
TEXTS: Hooks = {
    **{f"{name}[][]": cell for name, cell in CELLS.items()},
    **dict.fromkeys(("model", "cpu", "name", "product"), product_name),
    **dict.fromkeys(("h2d_gb_s", "d2h_gb_s"), measured_cell),
    **dict.fromkeys(("gen", "max_gen"), whole(1, 7)),
    **dict.fromkeys(("width", "max_width"), whole(1, 32)),
    **dict.fromkeys(("gpu", "gpus[]", "pairs[][]", "integrity_bad_pairs[][]", "nics[]"), whole(0, MOST_GPUS - 1)),
    **dict.fromkeys(("active", "total"), whole(0, 64)),
    **dict.fromkeys(("bytes", "wrong"), whole(0, 1 << 50)),
    "control": whole(0, 0xFFFF),
    "sockets": whole(1, 64),
    "mtu": whole(256, 4096),
    "ranks": whole(1, 1 << 20),
    "code": whole(0, 1 << 31),
    "readings": whole(1, MOST_COUNT),
    "iommu": _iommu,
    "measured.by_class.*": lambda text: _range([text]),
    "numa_node": _node,
    "p2p_access": lambda text: choose(text, ("all", "none")) == "all",
    "virtual": _virtual,
}
ROWS = ("uplinks", "nics", "host_device", "flows", "under_load", "damaged", "failures", "collectives", "path", "acs")
BLOCKS: Hooks = {"by_class": _by_class, "errors": known, "gpus": _gpus}
LISTS: Hooks = {
    **dict.fromkeys(CELLS, matrix),
    **dict.fromkeys((*ROWS, "nic_bw_gb_s", "nic_latency_us"), rows(MOST_ROWS)),
    "gpus": rows(MOST_GPUS),
    **dict.fromkeys(("pairs[]", "integrity_bad_pairs[]"), two("two different GPUs: [from, to]", differ=True)),
    **dict.fromkeys(
        ("measured.nic_bw_gb_s[].nics", "measured.nic_latency_us[].nics"),
        two("two cards by index: [client, server], equal for a transfer within one", differ=False),
    ),
    "measured.by_class.*": _range,
}
