"""Observations as YAML (or JSON, which is YAML) -> frozen values. Every key is optional; a mistake names its line."""

from collections.abc import Callable
from typing import Any

from yaml.nodes import ScalarNode

from gpucheck.diagnose._cells import (
    CLASS,
    MOST_COUNT,
    MOST_GPUS,
    MOST_ROWS,
    class_cell,
    counters,
    flag_cell,
    gpu_pair,
    list_of,
    matrix,
    measured_cell,
    one_of,
    part_cell,
    product_name,
    required,
    status_cell,
    struct,
    whole,
)
from gpucheck.diagnose._sizes import sized
from gpucheck.knowledge.strict import FALSE, TRUE, Value, document
from gpucheck.model.diagnosis import observations as model

MAX_BYTES = 1 << 20
"""Six matrices of 128 GPUs are 600 kB; a larger input is not a set of observations."""
DAMAGE = ("untouched", "zeros", "stale", "other-pair", "shifted", "bit-flip")


def read(data: bytes | str) -> model.Observations:
    """The observations in a YAML document, or in a JSON report of gpucheck that carries them.

    Raises ObservationProblem, and nothing else, for any input.
    """
    root = _inside_a_report(
        document(data, shape="Observations are a few levels deep", example="Write at least gpus, matrix and measured")
    )
    return sized(model.Observations(**root.fields(OBSERVATIONS)), root)


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


def _access(value: Value) -> Any:
    if value.is_list:
        return matrix(flag_cell)(value)
    return value.word("all", "none") == "all"


def _gpus(value: Value) -> tuple[model.ObservedGpu, ...]:
    if value.is_list:
        return tuple(GPU(item) if item.is_known else model.ObservedGpu() for item in value.items(MOST_GPUS))
    fields = value.fields({"count": whole(0, MOST_GPUS), "model": product_name})
    return tuple(model.ObservedGpu(model=fields.get("model")) for _ in range(fields.get("count", 0)))


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


def _hang(value: Value) -> model.Hang | bool:
    return HANG(value) if value.is_mapping else value.flag()


def _environment(value: Value) -> dict[str, str]:
    return {name: cell.text() for name, cell in value.pairs()}


GENERATION, LANES, INDEX = whole(1, 7), whole(1, 32), whole(0, MOST_GPUS - 1)
READ, BRIDGE = one_of("idle", "load"), one_of("root-port", "switch", "chipset")
RATES: dict[str, Callable[[Value], Any]] = {
    "gen": GENERATION, "width": LANES, "max_gen": GENERATION, "max_width": LANES, "read": READ
}  # fmt: skip
HANG = struct(model.Hang, op=Value.text, gpus=list_of(INDEX, MOST_GPUS), with_p2p_off=Value.flag)
GPU = struct(
    model.ObservedGpu,
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
    acs=list_of(required(struct(model.AcsReading, bus_id=Value.text, control=whole(0, 0xFFFF)), "bus_id", "control")),
    sockets=whole(1, 64),
    cpu=product_name,
    rebar=Value.flag,
    driver=Value.text,
)
HOST_DEVICE = required(
    struct(model.HostDevice, gpu=INDEX, numa_node=_node, h2d_gb_s=measured_cell, d2h_gb_s=measured_cell), "gpu"
)
FLOW = required(struct(model.Flow, pairs=list_of(gpu_pair), total_gb_s=Value.number), "pairs", "total_gb_s")
UNDER_LOAD = required(
    struct(
        model.UnderLoad,
        gpu=INDEX,
        **{name: reader for name, reader in RATES.items() if name != "read"},
        throttled=list_of(product_name, 32),
        errors=counters,
        readings=whole(1, MOST_COUNT),
    ),
    "gpu",
)
DAMAGED = required(
    struct(
        model.Damaged,
        pairs=list_of(gpu_pair, MOST_GPUS * MOST_GPUS),
        damage=one_of(*DAMAGE, "mixed"),
        wrong=whole(0, MOST_COUNT),
        words=whole(0, MOST_COUNT),
        loaded_only=Value.flag,
        host_only=Value.flag,
        at_source=Value.flag,
        evidence=list_of(Value.text),
    ),
    "pairs",
)
FAILURE = required(
    struct(
        model.CopyFailure,
        kind=one_of("stuck", "crashed", "error"),
        step=Value.text,
        pairs=list_of(gpu_pair, MOST_GPUS * MOST_GPUS),
        code=whole(0, 1 << 31),
        detail=Value.text,
    ),
    "kind",
    "step",
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
    "environment": _environment,
    "measured": MEASURED,
}
