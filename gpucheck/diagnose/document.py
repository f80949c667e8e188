"""Observations as YAML (or JSON, which is YAML) -> frozen values. Every key is optional; a mistake names its line.

The keys and their types are those of the structs. Each reader takes a value of the document and raises InputProblem,
with its line, for what it cannot be.
"""

import re
from collections.abc import Callable
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from yaml.nodes import ScalarNode

from gpucheck.knowledge.strict import FALSE, TRUE, Value, document
from gpucheck.model.diagnosis.observations import (
    CopyFailure,
    Damaged,
    Flow,
    Hang,
    HostDevice,
    NicResult,
    Observations,
    ObservedGpu,
    UnderLoad,
)

S = TypeVar("S", bound=msgspec.Struct)
Reader = Callable[[Value], Any]

MOST_GPUS = 128  # of one NVLink domain there are 72; the time that rules take grows with the square
MOST_NAME = 200
MOST_ROWS = 1024
MOST_COUNT = 1 << 60
CLASS = re.compile(r"X|PIX|PXB|PHB|NODE|SYS|SOC|NV\d{1,2}")
STATUS = ("OK", "CNS", "GNS", "TNS", "DR", "NS", "U")
DIAGONAL = {"x", "-", ""}
MAX_BYTES = 1 << 20
"""Six matrices of 128 GPUs are 600 kB; a larger input is not a set of observations."""


def read(data: bytes | str) -> Observations:
    """The observations in a YAML document, or in a JSON report of gpucheck that carries them.

    Raises InputProblem, and nothing else, for any input.
    """
    root = _inside_a_report(
        document(data, shape="Observations are a few levels deep", example="Write at least gpus, matrix and measured")
    )
    return sized(Observations(**root.fields(_fields(Observations))), root)


def _inside_a_report(root: Value) -> Value:
    """The ``observations`` of a report of ``gpucheck bandwidth`` or ``collectives``."""
    if not root.is_mapping:
        return root
    keys = {key.value: node for key, node in root.node.value if isinstance(key, ScalarNode)}
    if "schema" not in keys:
        return root
    if "observations" not in keys:
        raise root.problem("this report of gpucheck has no observations. Give that of bandwidth or collectives")
    return Value(keys["observations"], "observations")


def sized(seen: Observations, root: Value) -> Observations:
    """The same observations with one entry a GPU. Raises InputProblem where two sizes contradict each other."""
    matrices = {name: getattr(seen, name) for name in ("matrix", "p2p_access", "p2p_status")}
    matrices |= {f"measured.{name}": getattr(seen.measured, name) for name in MATRICES}
    sizes = {"gpus": len(seen.gpus)} | {name: len(rows) for name, rows in matrices.items() if isinstance(rows, tuple)}
    known = {name: size for name, size in sizes.items() if size}
    if len(set(known.values())) > 1:
        words = ", ".join(f"{name} has {size}" for name, size in known.items())
        raise root.problem(f"the number of GPUs differs: {words}")
    results = (*seen.measured.nic_bw_gb_s, *seen.measured.nic_latency_us)
    if (last := max((number for one in results for number in one.nics), default=-1)) >= len(seen.nics):
        raise root.problem(f"card {last} is measured, but nics has {len(seen.nics)}")
    count = max(known.values(), default=0)
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


# --- Readers by type -------------------------------------------------------------------------------------------------


@cache
def _fields(type_: type[msgspec.Struct]) -> dict[str, Reader]:
    own = SPECIAL.get(type_, {})
    return {
        field.name: own.get(field.name) or BY_NAME.get(field.name) or _reader(field.type, field.name)
        for field in msgspec.structs.fields(type_)
    }


def _reader(type_: Any, name: str) -> Reader:
    options = get_args(type_) if get_origin(type_) in (Union, UnionType) else (type_,)
    kind = next(option for option in options if option is not NoneType)
    origin = get_origin(kind)
    if origin is Literal:
        words = [word for option in options for word in get_args(option)]
        return lambda value: value.word(*words)
    if origin is tuple:
        return list_of(_reader(get_args(kind)[0], name))
    if origin is dict:
        inner = _reader(get_args(kind)[1], name)
        return lambda value: {key: inner(cell) for key, cell in value.pairs() if cell.is_known}
    if kind is int:
        low, high = LIMITS.get(name, (0, MOST_COUNT))
        return lambda value: value.integer(low, high)
    simple: dict[Any, Reader] = {bool: Value.flag, float: Value.number, str: Value.text}
    return simple.get(kind) or struct(kind)


def struct(type_: type[S]) -> Callable[[Value], S]:
    needed = [field.name for field in msgspec.structs.fields(type_) if field.required]

    def build(value: Value) -> S:
        known = {name for name, cell in value.pairs() if cell.is_known}
        if missing := [name for name in needed if name not in known]:
            raise value.problem(f"needs {' and '.join(missing)}")
        return type_(**value.fields(_fields(type_)))

    return build


def list_of(reader: Reader, most: int = MOST_ROWS) -> Reader:
    return lambda value: tuple(reader(item) for item in value.items(most))


def matrix(cell: Reader) -> Reader:
    """n x n, the diagonal None whatever it holds."""

    def read_matrix(value: Value) -> tuple[tuple[Any, ...], ...]:
        rows = [row.items(MOST_GPUS) for row in value.items(MOST_GPUS)]
        if not rows:
            raise value.problem("is empty. Write null for not measured")
        for i, row in enumerate(rows):
            if len(row) != len(rows):
                raise Value(value.node.value[i], f"{value.path}[{i}]").problem(
                    f"has {len(row)} cells, but there are {len(rows)} rows: the matrix must be square"
                )
        return tuple(
            tuple(None if i == j or not item.is_known else cell(item) for j, item in enumerate(row))
            for i, row in enumerate(rows)
        )

    return read_matrix


# --- Values with rules of their own ----------------------------------------------------------------------------------


def off_diagonal(reader: Reader) -> Reader:
    """X and - are no value, wherever they stand."""
    return lambda value: None if value.text().strip().lower() in DIAGONAL else reader(value)


def product_name(value: Value) -> str:
    """A product's name; patterns are searched in it."""
    if len(name := value.text()) > MOST_NAME:
        raise value.problem(f"has {len(name)} characters, more than the {MOST_NAME} of a name")
    return name


@off_diagonal
def measured_cell(value: Value) -> float | None:
    """A tool prints 0.00 for a pair that it did not measure."""
    return value.number() or None


@off_diagonal
def part_cell(value: Value) -> float:
    """An uncertainty as a part of the number."""
    if (part := value.number()) > 1:
        raise value.problem("is not between 0 and 1. Write 0.03 for 3 %")
    return part


@off_diagonal
def flag_cell(value: Value) -> bool:
    """Tools print 1 and 0."""
    return value.text() == "1" if value.text() in ("0", "1") else value.flag()


def class_cell(value: Value) -> str | None:
    word = value.text().strip().upper()
    if not CLASS.fullmatch(word):
        raise value.problem(f"{word[:20]} is not a path class (NV#, PIX, PXB, PHB, NODE, SYS)")
    return "SYS" if word == "SOC" else None if word == "X" else word


def status_cell(value: Value) -> str | None:
    word = value.text().strip().upper()
    if word in ("X", "U"):
        return None
    if word not in STATUS:
        raise value.problem(f"{word[:20]} is not a P2P status ({', '.join(STATUS)})")
    return word


def two(what: str, *, differ: bool) -> Reader:
    def read_two(value: Value) -> tuple[int, ...]:
        ends = tuple(item.integer(0, MOST_GPUS - 1) for item in value.items(2))
        if len(ends) != 2 or (differ and ends[0] == ends[1]):
            raise value.problem(f"must name {what}")
        return ends

    return read_two


def _gpus(value: Value) -> tuple[ObservedGpu, ...]:
    if value.is_list:
        gpu = struct(ObservedGpu)
        return tuple(gpu(item) if item.is_known else ObservedGpu() for item in value.items(MOST_GPUS))
    fields = value.fields({"count": lambda one: one.integer(0, MOST_GPUS), "model": product_name})
    return tuple(ObservedGpu(model=fields.get("model")) for _ in range(fields.get("count", 0)))


def _iommu(value: Value) -> str:
    word = value.text().strip().lower()
    if word in FALSE:
        return "off"
    if word in TRUE:
        raise value.problem("an IOMMU that is on may translate or not. Write identity or translating")
    return value.word("off", "identity", "translating")


def _virtual(value: Value) -> bool:
    """A hypervisor's name means yes, none means no."""
    word = value.text().strip().lower()
    return word not in FALSE and word != "none"


def _node(value: Value) -> int | None:
    """Linux prints -1 if unknown to the firmware."""
    node = value.integer(-1, 1023)
    return node if node >= 0 else None


def _by_class(value: Value) -> dict[str, tuple[float, float]]:
    found = {}
    for name, cell in value.pairs():
        if not CLASS.fullmatch(name) or name == "X":
            raise cell.problem("no path class (NV#, PIX, PXB, PHB, NODE, SYS)")
        if cell.is_known:
            ends = [item.number() for item in cell.items(2)] if cell.is_list else [cell.number()]
            if not ends or min(ends) <= 0:
                raise cell.problem("must be [low, high], both above zero")
            found["SYS" if name == "SOC" else name] = min(ends), max(ends)
    return found


# Of whole numbers, by field.
LIMITS = {
    **dict.fromkeys(("gen", "max_gen"), (1, 7)),
    **dict.fromkeys(("width", "max_width"), (1, 32)),
    **dict.fromkeys(("gpu", "gpus"), (0, MOST_GPUS - 1)),
    **dict.fromkeys(("active", "total"), (0, 64)),
    **dict.fromkeys(("bytes", "wrong"), (0, 1 << 50)),
    "control": (0, 0xFFFF),
    "sockets": (1, 64),
    "mtu": (256, 4096),
    "ranks": (1, 1 << 20),
    "code": (0, 1 << 31),
    "readings": (1, MOST_COUNT),
}
MATRICES: dict[str, Reader] = {
    **{f"{path}_{way}_gb_s": matrix(measured_cell) for path in ("p2p", "staged") for way in ("uni", "bidir")},
    **{f"{path}_latency_us": matrix(measured_cell) for path in ("p2p", "staged")},
    **{f"p2p_{way}_error": matrix(part_cell) for way in ("uni", "bidir")},
    **{f"p2p_{way}_alone": matrix(flag_cell) for way in ("uni", "bidir")},
}
BY_NAME: dict[str, Reader] = {
    **MATRICES,
    **dict.fromkeys(("model", "cpu", "name", "product"), product_name),
    **dict.fromkeys(("h2d_gb_s", "d2h_gb_s"), measured_cell),
    **dict.fromkeys(
        ("pairs", "integrity_bad_pairs"),
        list_of(two("two different GPUs: [source, destination]", differ=True), MOST_GPUS * MOST_GPUS),
    ),
    "acs_redirect": lambda value: list_of(Value.text)(value) if value.is_list else value.flag(),
    "by_class": _by_class,
    "environment": lambda value: {name: cell.text() for name, cell in value.pairs()},
    "hang": lambda value: struct(Hang)(value) if value.is_mapping else value.flag(),
    "iommu": _iommu,
    "matrix": matrix(class_cell),
    "numa_node": _node,
    "p2p_access": lambda value: matrix(flag_cell)(value) if value.is_list else value.word("all", "none") == "all",
    "p2p_status": matrix(status_cell),
    "virtual": _virtual,
}
SPECIAL: dict[type[msgspec.Struct], dict[str, Reader]] = {
    Observations: {"gpus": _gpus},
    NicResult: {
        "nics": two("two cards by index: [client, server], equal for a transfer within one", differ=False),
    },
}
