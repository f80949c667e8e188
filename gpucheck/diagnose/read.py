"""Observations as YAML (or JSON, which is YAML) -> frozen values. Every key is optional; a mistake names its line."""

import re
from collections.abc import Callable
from typing import Any, TypeVar

from gpucheck.diagnose._sizes import sized
from gpucheck.knowledge.strict import FALSE, TRUE, Value, document
from gpucheck.model.observations import (
    AcsReading,
    Collective,
    Flow,
    Hang,
    HostDevice,
    Measured,
    Method,
    NvLinkCount,
    Observations,
    ObservedGpu,
    ObservedHost,
    Port,
)

T = TypeVar("T")

MAX_BYTES = 1 << 20
"""Six matrices of 64 GPUs are 150 kB; anything larger is no set of observations."""
MOST_GPUS = 64
MOST_NAME = 200
MOST_ROWS = 1024
CLASS = re.compile(r"X|PIX|PXB|PHB|NODE|SYS|SOC|NV\d{1,2}")
STATUS = ("OK", "CNS", "GNS", "TNS", "DR", "NS", "U")
DIAGONAL = {"x", "-", ""}
DAMAGE = ("untouched", "zeros", "stale", "other-pair", "shifted", "bit-flip")


def read(data: bytes | str) -> Observations:
    """The observations in a YAML document. Raises ObservationProblem, and nothing else, for any input."""
    root = document(
        data, shape="Observations are a few levels deep", example="Write at least gpus, matrix and measured"
    )
    return sized(Observations(**root.fields(OBSERVATIONS)), root)


def _struct(type_: type[T], **readers: Callable[[Value], Any]) -> Callable[[Value], T]:
    def build(value: Value) -> T:
        return type_(**value.fields(readers))

    return build


def _whole(low: int, high: int) -> Callable[[Value], int]:
    return lambda value: value.integer(low, high)


def _one_of(*known: str) -> Callable[[Value], str]:
    return lambda value: value.word(*known)


def _list_of(reader: Callable[[Value], T], most: int = MOST_ROWS) -> Callable[[Value], tuple[T, ...]]:
    return lambda value: tuple(reader(item) for item in value.items(most))


def _matrix(cell: Callable[[Value], Any]) -> Callable[[Value], tuple[tuple[Any, ...], ...]]:
    """n x n, the diagonal None whatever stands there."""

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
            tuple(None if i == j or not item.told else cell(item) for j, item in enumerate(row))
            for i, row in enumerate(rows)
        )

    return read_matrix


def _name(value: Value) -> str:
    """A product's name; patterns are searched in it."""
    if len(name := value.text()) > MOST_NAME:
        raise value.problem(f"has {len(name)} characters, more than the {MOST_NAME} of a name")
    return name


def _measured_cell(value: Value) -> float | None:
    """A tool prints 0.00 for a pair that it did not measure."""
    if value.text().strip().lower() in DIAGONAL:
        return None
    return value.number() or None


def _class_cell(value: Value) -> str | None:
    word = value.text().strip().upper()
    if not CLASS.fullmatch(word):
        raise value.problem(f"{word[:20]} is no path class (NV#, PIX, PXB, PHB, NODE, SYS)")
    return "SYS" if word == "SOC" else None if word == "X" else word


def _status_cell(value: Value) -> str | None:
    word = value.text().strip().upper()
    if word in ("X", "U"):
        return None
    if word not in STATUS:
        raise value.problem(f"{word[:20]} is no P2P status ({', '.join(STATUS)})")
    return word


def _access(value: Value) -> Any:
    if value.is_list:
        return _matrix(lambda cell: None if cell.text().strip().lower() in DIAGONAL else _bit(cell))(value)
    return value.word("all", "none") == "all"


def _bit(value: Value) -> bool:
    """Tools print 1 and 0."""
    return value.text() == "1" if value.text() in ("0", "1") else value.flag()


def _gpus(value: Value) -> tuple[ObservedGpu, ...]:
    if value.is_list:
        return tuple(GPU(item) if item.told else ObservedGpu() for item in value.items(MOST_GPUS))
    fields = value.fields({"count": _whole(0, MOST_GPUS), "model": _name})
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
    """Linux prints -1 where the firmware did not say."""
    node = value.integer(-1, 1023)
    return node if node >= 0 else None


def _redirect(value: Value) -> bool | tuple[str, ...]:
    return tuple(item.text() for item in value.items(MOST_ROWS)) if value.is_list else value.flag()


def _acs(value: Value) -> AcsReading:
    fields = value.fields({"bus_id": Value.text, "control": _whole(0, 0xFFFF)})
    if len(fields) < 2:
        raise value.problem("needs both bus_id and control")
    return AcsReading(**fields)


def _pair(value: Value) -> tuple[int, int]:
    ends = [item.integer(0, MOST_GPUS - 1) for item in value.items(2)]
    if len(ends) != 2 or ends[0] == ends[1]:
        raise value.problem("must name two different GPUs: [source, destination]")
    return ends[0], ends[1]


def _range(value: Value) -> tuple[float, float]:
    ends = [item.number() for item in value.items(2)] if value.is_list else [value.number()]
    if not ends or min(ends) <= 0:
        raise value.problem("must be [low, high], both above zero")
    return min(ends), max(ends)


def _by_class(value: Value) -> dict[str, tuple[float, float]]:
    found = {}
    for name, cell in value.pairs():
        if not CLASS.fullmatch(name) or name == "X":
            raise cell.problem("no path class (NV#, PIX, PXB, PHB, NODE, SYS)")
        if cell.told:
            found["SYS" if name == "SOC" else name] = _range(cell)
    return found


def _hang(value: Value) -> Hang | bool:
    return HANG(value) if value.is_mapping else value.flag()


def _environment(value: Value) -> dict[str, str]:
    return {name: cell.text() for name, cell in value.pairs()}


def _host_device(value: Value) -> HostDevice:
    fields = value.fields(
        {
            "gpu": _whole(0, MOST_GPUS - 1),
            "numa_node": _node,
            "h2d_gb_s": Value.number,
            "d2h_gb_s": Value.number,
        }
    )
    if "gpu" not in fields:
        raise value.problem("needs gpu, the index of the GPU that was copied to")
    return HostDevice(
        gpu=fields["gpu"],
        numa_node=fields.get("numa_node"),
        h2d_gb_s=fields.get("h2d_gb_s") or None,
        d2h_gb_s=fields.get("d2h_gb_s") or None,
    )


def _flow(value: Value) -> Flow:
    fields = value.fields({"pairs": _list_of(_pair), "total_gb_s": Value.number})
    if not fields.get("pairs") or "total_gb_s" not in fields:
        raise value.problem("needs pairs and total_gb_s")
    return Flow(**fields)


GENERATION, LANES, INDEX = _whole(1, 7), _whole(1, 32), _whole(0, MOST_GPUS - 1)
READ, BRIDGE = _one_of("idle", "load"), _one_of("root-port", "switch", "chipset")
RATES: dict[str, Callable[[Value], Any]] = {
    "gen": GENERATION, "width": LANES, "max_gen": GENERATION, "max_width": LANES, "read": READ
}  # fmt: skip
HANG = _struct(Hang, op=Value.text, gpus=_list_of(INDEX, MOST_GPUS), with_p2p_off=Value.flag)
GPU = _struct(
    ObservedGpu,
    model=_name,
    bus_id=Value.text,
    numa_node=_node,
    pcie=_struct(Port, **RATES),
    path=_list_of(_struct(Port, bus_id=Value.text, kind=BRIDGE, **RATES), 16),
    bar1_mib=Value.number,
    nvlinks=_struct(NvLinkCount, active=_whole(0, 64), total=_whole(0, 64)),
)
HOST = _struct(
    ObservedHost,
    virtual=_virtual,
    iommu=_iommu,
    acs_redirect=_redirect,
    acs=_list_of(_acs),
    sockets=_whole(1, 64),
    cpu=_name,
    rebar=Value.flag,
    driver=Value.text,
)
MEASURED = _struct(
    Measured,
    **{f"{path}_{way}_gb_s": _matrix(_measured_cell) for path in ("p2p", "staged") for way in ("uni", "bidir")},
    **{f"{path}_latency_us": _matrix(_measured_cell) for path in ("p2p", "staged")},
    by_class=_by_class,
    method=_struct(Method, engine=_one_of("ce", "sm"), direction=_one_of("write", "read")),
    host_device=_list_of(_host_device),
    flows=_list_of(_flow),
    integrity_bad_pairs=_list_of(_pair, MOST_GPUS * MOST_GPUS),
    damage=_one_of(*DAMAGE),
    hang=_hang,
    collectives=_list_of(
        _struct(
            Collective,
            op=Value.text,
            ranks=_whole(1, 1 << 20),
            bytes=_whole(0, 1 << 50),
            busbw_gb_s=Value.number,
            transport=Value.text,
            wrong=_whole(0, 1 << 50),
        )
    ),
)
OBSERVATIONS: dict[str, Callable[[Value], Any]] = {
    "gpus": _gpus,
    "matrix": _matrix(_class_cell),
    "p2p_access": _access,
    "p2p_status": _matrix(_status_cell),
    "host": HOST,
    "uplinks": _list_of(_struct(Port, bus_id=Value.text, gpus=_list_of(INDEX, MOST_GPUS), **RATES)),
    "environment": _environment,
    "measured": MEASURED,
}
