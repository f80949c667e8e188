"""What nvbandwidth's text and JSON have in common: test cases by name, and which way a table is to be read."""

import re
from typing import Any, NamedTuple

from msgspec.structs import replace

from gpucheck.imports._common import by_pair
from gpucheck.imports._numbers import AGAIN, transposed
from gpucheck.imports._problem import ImportProblem, absent
from gpucheck.imports._regex import regex
from gpucheck.model.diagnosis.observations import Flags, HostDevice, Matrix, Measured, Method, Observations, ObservedGpu

TOOL = "nvbandwidth"
CASE = regex(
    r"(?:multinode_)?(?:host|device)_to_(?:host|device)_(?:bidirectional_)?(?:memcpy_(?:(?:read|write)_)?|latency_)(?:ce|sm)"
)


class Table(NamedTuple):
    """One printed table; square if it is of pairs. description: its heading, with the arrow from row to column."""

    case: str
    description: str
    rows: Matrix


def wanted(case: str) -> bool:
    """Whether a test case measures single pairs or single links. All-to-one cases do not."""
    return CASE.fullmatch(case) is not None


def of_one_host(case: str) -> str:
    """Return the name without the part for several hosts: the table is the same."""
    return case.removeprefix("multinode_")


def denied(gpus: tuple[ObservedGpu, ...]) -> Flags | None:
    """No pair may access each other's memory; nothing is known with less than two GPUs."""
    count = len(gpus)
    return by_pair({(i, j): False for i in range(count) for j in range(count)}, count) if count > 1 else None


def granted(tables: list[Matrix], count: int) -> Flags | None:
    """Peer access of the pairs that were measured: nvbandwidth skips a pair unless CUDA grants it in both directions.

    Source: NVIDIA/nvbandwidth memcpy.cpp, enablePeerAcess (cuDeviceCanAccessPeer, then cuCtxEnablePeerAccess of both).
    Tests over several hosts map memory in another way and prove nothing of it.
    """
    pairs = {(i, j) for rows in tables for i, row in enumerate(rows) for j, value in enumerate(row) if value}
    return by_pair({way: True for i, j in pairs for way in ((i, j), (j, i))}, count) if pairs else None


def with_waived_tests(seen: Observations) -> Observations:
    """Tests between GPUs are waived for one reason: CUDA grants access to no pair. Not so where some were measured."""
    measured_pairs = seen.measured.p2p_uni_gb_s or seen.measured.p2p_bidir_gb_s
    return seen if measured_pairs else replace(seen, p2p_access=denied(seen.gpus))


def measured(tables: list[Table], gpus: tuple[ObservedGpu, ...], *, peers: bool = True) -> Observations:
    """All tables as one import; copy engines win over kernels, writes over reads. Raises ImportProblem.

    peers: whether pairs were measured by peer access, as all tests on one host do.
    """
    fields: dict[str, Any] = {}
    h2d: tuple[float | None, ...] = ()
    d2h: tuple[float | None, ...] = ()
    method = Method()
    for table in sorted(tables, key=_preference):
        if table.case.startswith("device_to_device"):
            key = _key(table)
            if key and key not in fields:
                fields[key] = _paths(table, key)
                method = _method(table) if key == "p2p_uni_gb_s" else method
        elif "bidirectional" not in table.case and "latency" not in table.case and table.rows:
            if table.case.startswith("host"):
                h2d = h2d or table.rows[0]
            else:
                d2h = d2h or table.rows[0]
    sizes = {*(len(matrix) for matrix in fields.values()), *(len(row) for row in (h2d, d2h) if row)}
    if not sizes:
        raise absent(
            f"{TOOL} table of single pairs",
            "there is neither a device_to_device nor a host_to_device result",
            "Run nvbandwidth without -t, or with -t device_to_device_memcpy_write_ce",
        )
    if len(sizes | ({len(gpus)} if gpus else set())) > 1:
        raise ImportProblem(
            f"{TOOL}: tables of different sizes",
            why=f"tables have {', '.join(map(str, sorted(sizes)))} GPUs, {len(gpus)} devices are named",
            do=AGAIN,
        )
    count = sizes.pop()
    rows = [HostDevice(gpu=i, h2d_gb_s=h2d[i] if h2d else None, d2h_gb_s=d2h[i] if d2h else None) for i in range(count)]
    fields["host_device"] = tuple(rows) if h2d or d2h else ()
    pairs = [table.rows for table in tables if table.case.startswith("device_to_device")]
    return Observations(
        gpus=gpus or tuple(ObservedGpu() for _ in range(count)),
        p2p_access=granted(pairs, count) if peers else None,
        measured=Measured(method=method, **fields),
    )


def _preference(table: Table) -> tuple[bool, bool, bool]:
    return (not table.case.endswith("_ce"), "read" in table.case, "total" not in table.description.lower())


def _key(table: Table) -> str | None:
    if "latency" in table.case:
        return "p2p_latency_us"
    if "bidirectional" not in table.case:
        return "p2p_uni_gb_s"
    part = re.search(r"(?:read|write)[12]", table.description, re.IGNORECASE)
    return None if part else "p2p_bidir_gb_s"


def _paths(table: Table, key: str) -> Matrix:
    matrix = table.rows
    if key == "p2p_latency_us" and "(ns)" in table.description:
        return tuple(tuple(None if value is None else value / 1000 for value in row) for row in matrix)
    if key == "p2p_bidir_gb_s" and table.case.endswith("_ce") and "total" not in table.description.lower():
        # Older versions print the measured stream only, while the other one runs against it.
        return tuple(tuple(None if value is None else 2 * value for value in row) for row in matrix)
    return transposed(matrix) if re.search(r"GPU\(row\)\s*<-\s*GPU", table.description) else matrix


def _method(table: Table) -> Method:
    return Method(
        engine="ce" if table.case.endswith("_ce") else "sm", direction="read" if "read" in table.case else "write"
    )
