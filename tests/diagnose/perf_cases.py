"""Measurements of real machines with their owners' conclusions: tests/data/perf/*.yml, one machine a file.

A case states what was posted, in the poster's words; `observations` turns it into the keys of a diagnosis, and adds
nothing that the source does not say.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent.parent / "data" / "perf"
CASES: dict[str, dict[str, Any]] = {
    path.stem.removeprefix("perf-"): yaml.safe_load(path.read_text(encoding="utf-8"))
    for path in sorted(FOLDER.glob("*.yml"))
}


def observations(name: str) -> dict[str, Any]:
    case = CASES[name]
    seen: dict[str, Any] = {"gpus": dict(case["gpus"]), "measured": {}}
    if case["matrix"]:
        seen["matrix"] = case["matrix"]
    return ADD[name](case, seen) or seen


def measured(case: dict[str, Any], words: str) -> dict[str, Any]:
    return next(row for row in case["measured"] if words in row["what"])


def fill(count: int, cell: Callable[[int, int], Any]) -> list[list[Any]]:
    return [[None if i == j else cell(i, j) for j in range(count)] for i in range(count)]


def spread(count: int, low: float, high: float) -> list[list[Any]]:
    """A matrix of a posted range: its ends and values between, the same both ways."""
    return fill(count, lambda i, j: round(low + (high - low) * ((min(i, j) * 7 + max(i, j) * 3) % 11) / 10, 2))


def gtx1080ti(case, seen):
    low, high = measured(case, "P2P=Disabled")["range"]
    seen["host"] = {"iommu": "translating", "sockets": 2}
    seen["gpus"] = [
        {"model": "GeForce GTX 1080 Ti", "pcie": {"max_gen": 3, "max_width": 16}, "bus_id": f"0000:{bus}:00.0"}
        for bus in ("02", "03", "82", "83")
    ]
    seen["p2p_access"] = fill(4, lambda i, j: i // 2 == j // 2)
    seen["measured"] = {
        "staged_uni_gb_s": spread(4, low, high),
        "hang": {"op": "all_reduce", "gpus": [0, 1, 2, 3], "with_p2p_off": False},
    }


def rtx3090_corrupts(case, seen):
    value = measured(case, "peer bandwidth")["value"]
    seen["gpus"] = [{"model": "NVIDIA GeForce RTX 3090", "pcie": {"max_gen": 3, "max_width": 8}}] * 2
    seen["p2p_access"] = "all"
    seen["measured"] = {"p2p_uni_gb_s": fill(2, lambda i, j: value), "integrity_bad_pairs": [[0, 1]]}


def rtx3090_shared(case, seen):
    row = measured(case, "bidirectional")
    near, far = spread(8, *row["inside_group"]), spread(8, *row["between_groups"])
    seen["gpus"] = [{"model": "NVIDIA GeForce RTX 3090", "pcie": {"max_gen": 3, "max_width": 16}}] * 8
    seen["p2p_access"] = "none"
    seen["measured"] = {
        "p2p_bidir_gb_s": fill(8, lambda i, j: (near if i // 4 == j // 4 else far)[i][j]),
        "p2p_latency_us": spread(8, *measured(case, "latency")["range"]),
    }


def rtx4090(case, seen):
    # The file the matrix came from lists NUMA nodes of two sockets; GPUs 0-3 are on the first.
    seen["host"] = {"cpu": "AMD EPYC 7542", "sockets": 2}
    seen["gpus"] = [{"model": "NVIDIA GeForce RTX 4090", "pcie": {"max_gen": 4, "max_width": 16}}] * 8


def rtx4090_stock(case, seen):
    rtx4090(case, seen)
    for gpu in seen["gpus"]:
        gpu["bar1_mib"] = 256
    seen["p2p_access"] = "none"
    busbw = measured(case, "all_reduce_perf")["value"]
    seen["measured"] = {
        "p2p_uni_gb_s": spread(8, *measured(case, "unidirectional")["range"]),
        "p2p_bidir_gb_s": spread(8, *measured(case, "bidirectional")["range"]),
        "p2p_latency_us": spread(8, *measured(case, "latency")["range"]),
        "collectives": [{"op": "all_reduce", "ranks": 8, "bytes": 128 << 20, "busbw_gb_s": busbw}],
    }


def rtx4090_patched(case, seen):
    rtx4090(case, seen)
    for gpu in seen["gpus"]:
        gpu["bar1_mib"] = 32768
    both = measured(case, "bidirectional")
    same, cross = spread(8, *both["same_socket"]), spread(8, *both["cross_socket"])
    busbw = measured(case, "all_reduce_perf")["value"]
    seen["host"].update({"iommu": "off", "rebar": True})
    seen["p2p_access"] = "all"
    seen["measured"] = {
        "p2p_uni_gb_s": measured(case, "unidirectional")["matrix"],
        "p2p_bidir_gb_s": fill(8, lambda i, j: (same if i // 4 == j // 4 else cross)[i][j]),
        "p2p_latency_us": spread(8, *measured(case, "latency")["range"]),
        "collectives": [{"op": "all_reduce", "ranks": 8, "bytes": 128 << 20, "busbw_gb_s": busbw}],
    }


def four_hang(case, seen):
    seen["p2p_access"] = "all"
    seen["host"] = {"sockets": 2}
    seen["measured"]["hang"] = {"op": "all_reduce", "gpus": [2, 3], "with_p2p_off": False}


def mixed_widths(case, seen):
    ti = {1, 2, 5, 6}
    seen["gpus"] = [{"model": f"GeForce GTX {'1080 Ti' if i in ti else '1070'}"} for i in range(7)]
    equal = {(0, 3), (1, 2), (3, 4), (5, 6)}
    seen["p2p_access"] = fill(7, lambda i, j: (min(i, j), max(i, j)) in equal)
    seen["measured"] = {
        "p2p_uni_gb_s": measured(case, "unidirectional")["matrix"],
        "host_device": [
            {"gpu": gpu, "h2d_gb_s": row["h2d"], "d2h_gb_s": row["d2h"]}
            for gpu, row in ((0, measured(case, "device 0")), (3, measured(case, "device 3")))
        ],
    }


def a100(case, seen):
    seen["p2p_access"] = "all"
    staged = spread(8, 17.0, 20.42)
    for i, j in ((4, 5), (6, 7)):
        staged[i][j] = staged[j][i] = 10.65
    row = measured(case, "bidirectional")
    low, high = spread(8, *row["rows_0_to_3"]), spread(8, *row["pairs_inside_4_to_7"])
    # Inside 4-7 both plateaus stand in one table, even for the two directions of one pair.
    plateau = fill(8, lambda i, j: (high if min(i, j) >= 4 and i < j else low)[i][j])
    seen["measured"] = {
        "p2p_uni_gb_s": spread(8, *measured(case, "P2P=Enabled (writes)")["range"]),
        "staged_uni_gb_s": staged,
        "p2p_bidir_gb_s": plateau,
        "p2p_latency_us": spread(8, *measured(case, "latency")["range"]),
    }


def h100x4(case, seen):
    seen["p2p_access"] = "all"
    value = measured(case, "bidirectional")["value"]
    seen["measured"]["p2p_bidir_gb_s"] = fill(4, lambda i, j: value if {i, j} == {0, 1} else None)


def h100x8(case, seen):
    seen["p2p_access"] = "all"
    seen["measured"] = {
        "p2p_uni_gb_s": spread(8, *measured(case, "P2P=Enabled (writes)")["range"]),
        "staged_uni_gb_s": spread(8, *measured(case, "P2P=Disabled")["range"]),
        "p2p_bidir_gb_s": fill(8, lambda i, j: measured(case, "bidirectional")["value"]),
    }


def leonardo(case, seen):
    seen["p2p_access"] = "all"
    busbw = measured(case, "send/recv")["value"]
    seen["measured"]["collectives"] = [{"op": "sendrecv", "ranks": 2, "busbw_gb_s": busbw, "transport": "P2P/IPC"}]


def minsky(case, seen):
    seen["p2p_access"] = fill(4, lambda i, j: i // 2 == j // 2)
    seen["host"] = {"cpu": "POWER8", "sockets": 2}
    seen["measured"] = {
        "p2p_uni_gb_s": measured(case, "unidirectional")["matrix"],
        "p2p_bidir_gb_s": measured(case, "bidirectional")["matrix"],
    }


def switched(case, seen, count, groups):
    seen["p2p_access"] = "all"
    seen["host"] = {"iommu": "off", "sockets": 1}
    seen["gpus"] = [{"model": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
                     "pcie": {"max_gen": 5, "max_width": 16}}] * count  # fmt: skip
    return lambda i, j: i // groups == j // groups


def turin16(case, seen):
    near = switched(case, seen, 16, 4)
    row = measured(case, "one pair")
    seen["host"]["acs_redirect"] = False
    seen["matrix"] = fill(16, lambda i, j: "PIX" if near(i, j) else "NODE")
    seen["measured"] = {
        "by_class": {cls: [row[cls], row[cls]] for cls in ("PIX", "NODE")},
        "flows": [{"pairs": [[0, 4], [1, 5]], "total_gb_s": measured(case, "two pairs")["value"]}],
    }


def turin6(case, seen):
    seen["p2p_access"] = "all"
    seen["host"] = {"cpu": "AMD EPYC Turin", "sockets": 2}
    models = ["NVIDIA RTX PRO 6000 Blackwell Workstation Edition"] * 4 + ["NVIDIA GeForce RTX 5090"] * 2
    seen["gpus"] = [
        {"model": model, "numa_node": i // 3, "pcie": {"max_gen": 5, "max_width": 16}} for i, model in enumerate(models)
    ]
    row = measured(case, "bidirectional")
    low, high = spread(6, *row["device_3"]), spread(6, *row["others"])
    seen["measured"] = {
        "p2p_uni_gb_s": measured(case, "unidirectional")["matrix"],
        "p2p_bidir_gb_s": fill(6, lambda i, j: (low if 3 in (i, j) else high)[i][j]),
    }


def wrx90_healthy(case, seen):
    near = switched(case, seen, 8, 4)
    row = measured(case, "unidirectional")
    seen["measured"] = {
        "p2p_uni_gb_s": fill(8, lambda i, j: row["PIX" if near(i, j) else "NODE"]),
        "p2p_bidir_gb_s": spread(8, *measured(case, "bidirectional")["range"]),
        "p2p_latency_us": spread(8, *measured(case, "latency")["range"]),
        "flows": [{"pairs": [[0, 4], [1, 5]], "total_gb_s": measured(case, "concurrent")["value"]}],
    }


def wrx90_gen2(case, seen):
    near = switched(case, seen, 8, 4)
    pix, node = measured(case, "PIX 0-1")["value"], measured(case, "NODE 0-4")["value"]
    load = {"gen": 5, "width": 16, "max_gen": 5, "max_width": 16, "read": "load"}
    for gpu in seen["gpus"]:
        gpu["pcie"] = load
    seen["uplinks"] = [{**load, "bus_id": "0000:20:01.1", "gen": 2, "gpus": [0, 1, 2, 3]}]
    seen["measured"]["p2p_uni_gb_s"] = fill(8, lambda i, j: pix if near(i, j) else node)


def wrx90_3switch(case, seen):
    switched(case, seen, 8, 4)
    row = measured(case, "unidirectional")
    seen["measured"] = {
        "p2p_uni_gb_s": spread(8, *row["range"]),
        "p2p_bidir_gb_s": spread(8, *measured(case, "bidirectional")["range"]),
        "p2p_latency_us": spread(8, *measured(case, "latency")["range"]),
    }


ADD: dict[str, Callable[[Any, Any], Any]] = {
    "1080tix4-intel-iommu": gtx1080ti,
    "3090x2-collective-corrupts": rtx3090_corrupts,
    "3090x8-no-p2p-shared-uplink": rtx3090_shared,
    "4090x8-stock-no-p2p": rtx4090_stock,
    "4090x8-patched-p2p": rtx4090_patched,
    "4gpu-pix-pxb-hang": four_hang,
    "7gpu-1070-1080ti-mixed-widths": mixed_widths,
    "a100x8-nvswitch-healthy": a100,
    "h100x4-nv6-bidir-261": h100x4,
    "h100x8-nvswitch-healthy": h100x8,
    "leonardo-a100-nv4-72": leonardo,
    "minsky-p100x4": minsky,
    "turin-16gpu-4switch": turin16,
    "turin-6gpu-one-slow-card": turin6,
    "wrx90-2switch-healthy": wrx90_healthy,
    "wrx90-2switch-uplink-gen2": wrx90_gen2,
    "wrx90-3switch-healthy": wrx90_3switch,
}
