"""Observations as YAML (or JSON, which is YAML) -> frozen values. Every key is optional; a mistake names its line.

Each takes a value of the document and raises InputProblem, with its line, for what it cannot be.
"""

import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from yaml.nodes import ScalarNode

from gpucheck.knowledge.strict import FALSE, TRUE, Value, document
from gpucheck.model.diagnosis import observations as model
from gpucheck.model.diagnosis.observations import Hang, Observations, ObservedGpu

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)

MOST_GPUS = 128  # of one NVLink domain there are 72; the time that rules take grows with the square
MOST_NAME = 200
MOST_ROWS = 1024
MOST_COUNT = 1 << 60
CLASS = re.compile(r"X|PIX|PXB|PHB|NODE|SYS|SOC|NV\d{1,2}")
STATUS = ("OK", "CNS", "GNS", "TNS", "DR", "NS", "U")
DIAGONAL = {"x", "-", ""}
DAMAGE = ("untouched", "zeros", "stale", "other-pair", "shifted", "bit-flip")
MATRICES = (
    "p2p_uni_gb_s", "p2p_bidir_gb_s", "staged_uni_gb_s", "staged_bidir_gb_s", "p2p_latency_us", "staged_latency_us",
    "p2p_uni_error", "p2p_uni_alone", "p2p_bidir_error", "p2p_bidir_alone",
)  # fmt: skip
MAX_BYTES = 1 << 20
"""Six matrices of 128 GPUs are 600 kB; a larger input is not a set of observations."""


def read(data: bytes | str) -> Observations:
    """The observations in a YAML document, or in a JSON report of gpucheck that carries them.

    Raises InputProblem, and nothing else, for any input.
    """
    root = _inside_a_report(
        document(data, shape="Observations are a few levels deep", example="Write at least gpus, matrix and measured")
    )
    return sized(Observations(**root.fields(OBSERVATIONS)), root)


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
    matrices = {
        "matrix": seen.matrix,
        "p2p_access": seen.p2p_access if isinstance(seen.p2p_access, tuple) else None,
        "p2p_status": seen.p2p_status,
        **{f"measured.{name}": getattr(seen.measured, name) for name in MATRICES},
    }
    sizes = {"gpus": len(seen.gpus), **{name: len(matrix) for name, matrix in matrices.items() if matrix}}
    known = {name: size for name, size in sizes.items() if size}
    if len(set(known.values())) > 1:
        words = ", ".join(f"{name} has {size}" for name, size in known.items())
        raise root.problem(f"the number of GPUs differs: {words}")
    results = (*seen.measured.nic_bw_gb_s, *seen.measured.nic_latency_us)
    if (last := max((number for one in results for number in one.nics), default=-1)) >= len(seen.nics):
        raise root.problem(f"card {last} is measured, but nics has {len(seen.nics)}")
    count = max(known.values(), default=0)
    named = sorted(set(_indexes(seen)))
    if count and named and named[-1] >= count:
        raise root.problem(f"GPU {named[-1]} is named, but there are {count} GPUs (0 to {count - 1})")
    if seen.gpus or not (count or named):
        return seen
    fields = {name: getattr(seen, name) for name in seen.__struct_fields__ if name != "gpus"}
    return Observations(gpus=tuple(ObservedGpu() for _ in range(count or named[-1] + 1)), **fields)


def _indexes(seen: Observations) -> list[int]:
    measured = seen.measured
    pairs = [
        *(pair for flow in measured.flows for pair in flow.pairs),
        *(pair for damaged in measured.damaged for pair in damaged.pairs),
        *(pair for failure in measured.failures for pair in failure.pairs),
        *(measured.integrity_bad_pairs or ()),
    ]
    hang = measured.hang.gpus if isinstance(measured.hang, Hang) else ()
    return [
        *(index for pair in pairs for index in pair),
        *(row.gpu for row in measured.host_device),
        *(row.gpu for row in measured.under_load),
        *(index for uplink in seen.uplinks for index in uplink.gpus),
        *hang,
    ]


def struct(type_: type[S], **readers: Callable[[Value], Any]) -> Callable[[Value], S]:
    """A struct's reader: each field by its own; those without a default must be known."""
    needed = [field.name for field in msgspec.structs.fields(type_) if field.required]

    def build(value: Value) -> S:
        if needed:
            known = {name for name, cell in value.pairs() if cell.is_known}
            missing = [name for name in needed if name not in known]
            if missing:
                raise value.problem(f"needs {' and '.join(missing)}")
        return type_(**value.fields(readers))

    return build


def whole(low: int, high: int) -> Callable[[Value], int]:
    return lambda value: value.integer(low, high)


def one_of(*known: str) -> Callable[[Value], str]:
    return lambda value: value.word(*known)


def list_of(reader: Callable[[Value], T], most: int = MOST_ROWS) -> Callable[[Value], tuple[T, ...]]:
    return lambda value: tuple(reader(item) for item in value.items(most))


def matrix(cell: Callable[[Value], Any]) -> Callable[[Value], tuple[tuple[Any, ...], ...]]:
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


def product_name(value: Value) -> str:
    """A product's name; patterns are searched in it."""
    if len(name := value.text()) > MOST_NAME:
        raise value.problem(f"has {len(name)} characters, more than the {MOST_NAME} of a name")
    return name


def measured_cell(value: Value) -> float | None:
    """A tool prints 0.00 for a pair that it did not measure."""
    if value.text().strip().lower() in DIAGONAL:
        return None
    return value.number() or None


def part_cell(value: Value) -> float | None:
    """An uncertainty as a part of the number."""
    if value.text().strip().lower() in DIAGONAL:
        return None
    if (part := value.number()) > 1:
        raise value.problem("is not between 0 and 1. Write 0.03 for 3 %")
    return part


def flag_cell(value: Value) -> bool | None:
    return None if value.text().strip().lower() in DIAGONAL else bit(value)


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


def bit(value: Value) -> bool:
    """Tools print 1 and 0."""
    return value.text() == "1" if value.text() in ("0", "1") else value.flag()


def gpu_pair(value: Value) -> tuple[int, int]:
    ends = [item.integer(0, MOST_GPUS - 1) for item in value.items(2)]
    if len(ends) != 2 or ends[0] == ends[1]:
        raise value.problem("must name two different GPUs: [source, destination]")
    return ends[0], ends[1]


def _ends(value: Value) -> tuple[int, int]:
    ends = [item.integer(0, MOST_GPUS - 1) for item in value.items(2)]
    if len(ends) != 2:
        raise value.problem("must name two cards by index: [client, server], equal for a transfer within one")
    return ends[0], ends[1]


def counters(value: Value) -> dict[str, int]:
    return {name: cell.integer(0, MOST_COUNT) for name, cell in value.pairs() if cell.is_known}


def _access(value: Value) -> Any:
    if value.is_list:
        return matrix(flag_cell)(value)
    return value.word("all", "none") == "all"


def _gpus(value: Value) -> tuple[ObservedGpu, ...]:
    if value.is_list:
        return tuple(GPU(item) if item.is_known else ObservedGpu() for item in value.items(MOST_GPUS))
    fields = value.fields({"count": whole(0, MOST_GPUS), "model": product_name})
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


def _redirect(value: Value) -> bool | tuple[str, ...]:
    return tuple(item.text() for item in value.items(MOST_ROWS)) if value.is_list else value.flag()


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
        if cell.is_known:
            found["SYS" if name == "SOC" else name] = _range(cell)
    return found


def _hang(value: Value) -> Hang | bool:
    return HANG(value) if value.is_mapping else value.flag()


def _environment(value: Value) -> dict[str, str]:
    return {name: cell.text() for name, cell in value.pairs()}


GENERATION, LANES, INDEX = whole(1, 7), whole(1, 32), whole(0, MOST_GPUS - 1)
READ, BRIDGE = one_of("idle", "load"), one_of("root-port", "switch", "chipset")
RATES: dict[str, Callable[[Value], Any]] = {
    "gen": GENERATION, "width": LANES, "max_gen": GENERATION, "max_width": LANES, "read": READ
}  # fmt: skip
HANG = struct(Hang, op=Value.text, gpus=list_of(INDEX, MOST_GPUS), with_p2p_off=Value.flag)
GPU = struct(
    ObservedGpu,
    model=product_name,
    bus_id=Value.text,
    numa_node=_node,
    pcie=struct(model.Port, **RATES),
    path=list_of(struct(model.Port, bus_id=Value.text, kind=BRIDGE, **RATES), 16),
    bar1_mib=Value.number,
    nvlinks=struct(model.NvLinkCount, active=whole(0, 64), total=whole(0, 64)),
)
HOST = struct(
    model.ObservedHost,
    virtual=_virtual,
    iommu=_iommu,
    acs_redirect=_redirect,
    acs=list_of(struct(model.AcsReading, bus_id=Value.text, control=whole(0, 0xFFFF))),
    sockets=whole(1, 64),
    cpu=product_name,
    rebar=Value.flag,
    driver=Value.text,
)
LAYER = one_of("infiniband", "ethernet")
NIC = struct(
    model.ObservedNic,
    name=product_name,
    bus_id=Value.text,
    product=product_name,
    numa_node=_node,
    rate_gbit_s=Value.number,
    link_layer=LAYER,
    mtu=whole(256, 4096),
    path=list_of(struct(model.Port, bus_id=Value.text, kind=BRIDGE, **RATES), 16),
)
NIC_RESULT = struct(
    model.NicResult,
    nics=_ends,
    value=Value.number,
    operation=one_of("write", "read", "send"),
    gpu=struct(model.Port, bus_id=Value.text, **RATES),
    together=Value.flag,
)
HOST_DEVICE = struct(model.HostDevice, gpu=INDEX, numa_node=_node, h2d_gb_s=measured_cell, d2h_gb_s=measured_cell)
FLOW = struct(model.Flow, pairs=list_of(gpu_pair), total_gb_s=Value.number)
UNDER_LOAD = struct(
    model.UnderLoad,
    gpu=INDEX,
    **{name: reader for name, reader in RATES.items() if name != "read"},
    throttled=list_of(product_name, 32),
    errors=counters,
    readings=whole(1, MOST_COUNT),
)
DAMAGED = struct(
    model.Damaged,
    pairs=list_of(gpu_pair, MOST_GPUS * MOST_GPUS),
    damage=one_of(*DAMAGE, "mixed"),
    wrong=whole(0, MOST_COUNT),
    words=whole(0, MOST_COUNT),
    loaded_only=Value.flag,
    host_only=Value.flag,
    at_source=Value.flag,
    evidence=list_of(Value.text),
)
FAILURE = struct(
    model.CopyFailure,
    kind=one_of("stuck", "crashed", "error"),
    step=Value.text,
    pairs=list_of(gpu_pair, MOST_GPUS * MOST_GPUS),
    code=whole(0, 1 << 31),
    detail=Value.text,
)
MEASURED = struct(
    model.Measured,
    **{f"{path}_{way}_gb_s": matrix(measured_cell) for path in ("p2p", "staged") for way in ("uni", "bidir")},
    **{f"{path}_latency_us": matrix(measured_cell) for path in ("p2p", "staged")},
    **{f"p2p_{way}_error": matrix(part_cell) for way in ("uni", "bidir")},
    **{f"p2p_{way}_alone": matrix(flag_cell) for way in ("uni", "bidir")},
    by_class=_by_class,
    method=struct(model.Method, engine=one_of("ce", "sm"), direction=one_of("write", "read")),
    host_device=list_of(HOST_DEVICE),
    flows=list_of(FLOW),
    integrity_bad_pairs=list_of(gpu_pair, MOST_GPUS * MOST_GPUS),
    damage=one_of(*DAMAGE),
    under_load=list_of(UNDER_LOAD, MOST_GPUS),
    damaged=list_of(DAMAGED),
    bytes_compared=whole(0, MOST_COUNT),
    failures=list_of(FAILURE),
    hang=_hang,
    nic_bw_gb_s=list_of(NIC_RESULT),
    nic_latency_us=list_of(NIC_RESULT),
    collectives=list_of(
        struct(
            model.Collective,
            op=Value.text,
            ranks=whole(1, 1 << 20),
            bytes=whole(0, 1 << 50),
            busbw_gb_s=Value.number,
            transport=Value.text,
            wrong=whole(0, 1 << 50),
        )
    ),
)
OBSERVATIONS: dict[str, Callable[[Value], Any]] = {
    "gpus": _gpus,
    "matrix": matrix(class_cell),
    "p2p_access": _access,
    "p2p_status": matrix(status_cell),
    "host": HOST,
    "uplinks": list_of(struct(model.Port, bus_id=Value.text, gpus=list_of(INDEX, MOST_GPUS), **RATES)),
    "nics": list_of(NIC, MOST_GPUS),
    "environment": _environment,
    "measured": MEASURED,
}
