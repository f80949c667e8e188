"""SIMULATED machines with one fault each, by name, and the causes that must be named of them."""

from collections.abc import Callable
from typing import Any

from tests.diagnose.machines import (
    Shape,
    healthy,
    nvlinked,
    redirected,
    same_generation,
    slow_device,
    slow_uplink,
    translated,
    without_p2p,
)

# count, group, sockets, generation
SHAPES = [
    (2, 1, 1, 4), (2, 2, 1, 5), (2, 1, 2, 5), (3, 1, 1, 4), (4, 2, 1, 3), (4, 1, 1, 5), (6, 2, 1, 4),
    (7, 2, 2, 4), (8, 4, 1, 5), (8, 4, 2, 4), (8, 2, 2, 3), (16, 4, 1, 5),
]  # fmt: skip
QUIET = {None, "expected-limit", "cross-socket", "shared-uplink", "narrow-by-design"}


def shape(at: tuple[int, int, int, int], noise: float = 0.0, seed: int = 1) -> Shape:
    return Shape(*at, noise, seed)


def measured(seen: dict[str, Any], **numbers: Any) -> dict[str, Any]:
    seen["measured"].update(numbers)
    return seen


def one_without_p2p(shape: Shape) -> dict[str, Any]:
    """The last GPU has no peer access, all others have."""
    seen, staged = healthy(shape), without_p2p(shape)["measured"]
    last = shape.count - 1
    for name, matrix in staged.items():
        rows = seen["measured"].get(name)
        for i, row in enumerate(rows if isinstance(rows, list) and rows and isinstance(rows[0], list) else ()):
            row[:] = [matrix[i][j] if last in (i, j) else value for j, value in enumerate(row)]
    cells = range(shape.count)
    seen["p2p_access"] = [[None if i == j else last not in (i, j) for j in cells] for i in cells]
    return seen


def with_host(seen: dict[str, Any], **host: Any) -> dict[str, Any]:
    seen["host"].update(host)
    return seen


def far_from_host(seen: dict[str, Any]) -> dict[str, Any]:
    """All host copies from node 0, those of the other node's GPUs slow."""
    for row in seen["measured"]["host_device"]:
        if row["numa_node"] == 1:
            row.update(numa_node=0, h2d_gb_s=row["h2d_gb_s"] * 0.65, d2h_gb_s=row["d2h_gb_s"] * 0.65)
    return seen


def on_chipset(seen: dict[str, Any]) -> dict[str, Any]:
    """Everything that GPU 1 sends or receives passes four lanes that it shares."""
    seen["gpus"][1]["path"] = [{"bus_id": "0000:00:1c.0", "kind": "chipset"}]
    for name in ("p2p_uni_gb_s", "p2p_bidir_gb_s", "staged_uni_gb_s"):
        for i, row in enumerate(seen["measured"][name]):
            row[:] = [v and round(v / 4, 2) if 1 in (i, j) else v for j, v in enumerate(row)]
    row = seen["measured"]["host_device"][1]
    row.update(h2d_gb_s=round(row["h2d_gb_s"] / 4, 2), d2h_gb_s=round(row["d2h_gb_s"] / 4, 2))
    del seen["gpus"][1]["pcie"]
    return seen


def no_nvlink_in_use(access: Any) -> dict[str, Any]:
    seen = nvlinked(8, "NVIDIA H100 80GB HBM3", 18, 25.0, 0.85)
    s = Shape(8, 1, 2, 5)
    seen["p2p_access"] = access
    return measured(seen, p2p_uni_gb_s=s.rates(lambda i, j: 36.5), p2p_bidir_gb_s=s.rates(lambda i, j: 41.0))


def one_link_less() -> dict[str, Any]:
    seen = nvlinked(8, "NVIDIA H200", 18, 25.0, 0.85)
    seen["gpus"][3]["nvlinks"]["active"] = 16
    return seen


# Name -> the machine, and the cause that must be named.
FAULTS: dict[str, tuple[Callable[[], dict[str, Any]], set[str]]] = {
    "width reported": (lambda: slow_device(shape((4, 2, 1, 4))), {"pcie-width-reduced"}),
    "generation reported": (lambda: slow_device(shape((6, 2, 1, 4)), "gen"), {"pcie-link-downgraded"}),
    "device unreported": (lambda: slow_device(shape((8, 4, 1, 5)), "gen", reported=False), {"pcie-link-downgraded"}),
    "chipset": (lambda: on_chipset(healthy(shape((3, 1, 1, 4)))), {"gpu-behind-chipset"}),
    "uplink reported": (lambda: slow_uplink(shape((8, 4, 1, 4))), {"uplink-downgraded"}),
    "uplink unreported": (lambda: slow_uplink(shape((6, 2, 1, 5)), reported=False), {"uplink-downgraded"}),
    "acs": (lambda: redirected(shape((4, 2, 1, 4)), acs_redirect=True, iommu="off"), {"acs-redirect"}),
    "iommu": (lambda: translated(shape((8, 4, 1, 5)), acs_redirect=False, iommu="translating"), {"iommu-translation"}),
    "acs or iommu": (lambda: redirected(shape((4, 4, 1, 4))), {"acs-redirect", "iommu-translation"}),
    "all generations": (lambda: same_generation(shape((8, 4, 1, 4))), {"pcie-link-downgraded"}),
    "all generations, idle": (lambda: same_generation(shape((4, 1, 1, 5)), "idle"), {"pcie-link-downgraded"}),
    "vm": (lambda: with_host(one_without_p2p(shape((4, 1, 1, 4))), virtual=True), {"vm-no-p2p"}),
    "numa": (lambda: far_from_host(healthy(shape((4, 1, 2, 5)))), {"wrong-numa-placement"}),
    "links counted": (one_link_less, {"nvlink-down"}),
    "fabric refused": (lambda: no_nvlink_in_use("none"), {"fabric-manager-down"}),
    "fabric slow": (lambda: no_nvlink_in_use("all"), {"fabric-manager-down"}),
    "zeros": (
        lambda: with_host(
            measured(
                healthy(shape((4, 2, 1, 4))), integrity_bad_pairs=[[0, 2], [0, 3], [1, 2], [1, 3]], damage="zeros"
            ),
            iommu="translating",
        ),
        {"iommu-translation"},
    ),
    "granted and wrong": (
        lambda: measured(healthy(shape((4, 2, 1, 4))), integrity_bad_pairs=[[0, 1]], damage="stale"),
        {"false-p2p-grant"},
    ),
    "bits": (
        lambda: measured(healthy(shape((4, 2, 1, 4))), integrity_bad_pairs=[[2, 3]], damage="bit-flip"),
        {"data-corruption"},
    ),
    "hang": (
        lambda: with_host(
            measured(redirected(shape((4, 2, 1, 3))), hang={"op": "all_reduce", "gpus": [0, 1], "with_p2p_off": False}),
            acs_redirect=True,
            iommu="off",
        ),
        {"acs-redirect"},
    ),
    "hang anyway": (
        lambda: measured(healthy(shape((4, 2, 1, 3))), hang={"op": "copy", "gpus": [0, 1], "with_p2p_off": True}),
        {"wedged-driver"},
    ),
    "writes collapse": (
        lambda: measured(healthy(shape((8, 4, 1, 5))), flows=[{"pairs": [[0, 4], [1, 5], [2, 6]], "total_gb_s": 9}]),
        {"switch-write-collapse"},
    ),
    "policy": (
        lambda: measured(
            healthy(shape((4, 1, 1, 5))),
            collectives=[{"op": "all_reduce", "bytes": 1 << 28, "busbw_gb_s": 20, "transport": "SHM/direct"}],
        ),
        {"nccl-policy"},
    ),
    "environment": (
        lambda: {**healthy(shape((4, 2, 1, 4))), "environment": {"NCCL_P2P_DISABLE": "1"}}, {"leftover-environment"},
    ),
    "latent iommu": (lambda: with_host(healthy(shape((4, 2, 1, 4))), iommu="translating"), {"iommu-translation"}),
}  # fmt: skip

# What the same numbers mean as well: named instead or beside, where no reading tells them apart.
ALIKE = {
    "device unreported": {"pcie-width-reduced"},
    "acs or iommu": {"acs-redirect", "iommu-translation"},
}
