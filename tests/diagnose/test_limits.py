"""SIMULATED machines at a limit that is no fault: older ports, no P2P, small messages, NVLink meshes, daemons."""

from typing import Any

import pytest

from gpucheck.diagnose import diagnose
from gpucheck.diagnose.document import read
from gpucheck.model import Verdict
from tests.diagnose.results import accused, diagnosed, named, verdict

PRO = "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"
# NVLinks between the V100 of a DGX-1 (hybrid cube mesh), six each.
CUBE = ("01120020", "10210002", "12021000", "21200100", "00100212", "00012021", "20001201", "02002110")


def square(count: int, value: Any) -> list[list[Any]]:
    return [[None if i == j else value for j in range(count)] for i in range(count)]


def cards(count: int, port: dict[str, Any], **pcie: Any) -> dict[str, Any]:
    """Cards of generation 5, each with a port of its own above it."""
    link = {"width": 16, "max_gen": 5, "max_width": 16, "read": "load", **pcie}
    return {"gpus": [{"model": PRO, "pcie": link, "path": [{"kind": "root-port", **port}]} for _ in range(count)]}


@pytest.mark.parametrize("limit", [3, 4])
def test_a_card_is_no_faster_than_the_port_above_it(limit: int) -> None:
    older = diagnosed(cards(2, {"max_gen": limit}, gen=limit))
    assert not accused(older), older

    slower = diagnosed(cards(2, {"max_gen": limit}, gen=limit - 1))
    assert accused(slower) == {"pcie-link-downgraded"}, slower
    assert all(f.values["limit"] == limit for f in slower if f.cause == "pcie-link-downgraded")


def test_the_slowest_port_of_a_way_up_bounds_it() -> None:
    """A switch of generation 5 in a slot of generation 4 runs its uplink at 4."""
    seen = cards(4, {}, gen=5)
    for i, gpu in enumerate(seen["gpus"]):
        port = {"width": 16, "max_width": 16, "gen": 4, "read": "load"}
        slot = {**port, "bus_id": f"0000:0{i // 2}:01.0", "kind": "root-port", "max_gen": 4}
        gpu["path"] = [slot, {**port, "bus_id": f"0000:1{i // 2}:00.0", "kind": "switch", "max_gen": 5}]

    assert "uplink-downgraded" not in accused(diagnosed(seen)), diagnosed(seen)


GB200 = "gpus: {{count: 4, model: NVIDIA GB200}}\nmeasured: {{host_device: [{{gpu: 0, h2d_gb_s: {}, d2h_gb_s: {}}}]}}"
GH200 = GB200.replace("count: 4, model: NVIDIA GB200", "count: 1, model: NVIDIA GH200 480GB")
TWO_NODES = "\nhost: {sockets: 2}"
TWO_RANKS = """
gpus: {{count: 2, model: NVIDIA H100 NVL}}
matrix: [[X, NV12], [NV12, X]]
measured: {{collectives: [{{op: {}, ranks: 2, bytes: 4294967296, busbw_gb_s: {}}}]}}
"""


@pytest.mark.parametrize(
    ("text", "check", "expected"),
    [
        # Copies between a GPU and its Grace CPU are compared with NVLink-C2C, not with PCIe.
        (GB200.format(201, 193), "host-copies", Verdict.PASS),  # Azure/AI-benchmarking-guide, ND GB200 v6
        (GH200.format(346, 295), "host-copies", Verdict.PASS),  # NVIDIA/nvbandwidth#23
        (GB200.format(201, 150), "host-copies", Verdict.WARN),
        (GB200.format(60, 60), "host-copies", Verdict.FAIL),
        (GH200.format(60, 60), "host-copies", Verdict.FAIL),
        (GH200.format(346, 110), "host-copies", Verdict.FAIL),
        # The memory may be that of the other Grace CPU, and how fast copies from there are is not known.
        (GB200.format(160, 150) + TWO_NODES, "host-copies", Verdict.UNKNOWN),
        # A transfer between two ranks is compared with what NCCL reaches between two, and is never a failure.
        (TWO_RANKS.format("sendrecv", 180), "collectives-bandwidth", Verdict.PASS),  # NVIDIA/nccl-tests#268
        (TWO_RANKS.format("all_reduce", 1e7), "collectives-bandwidth", Verdict.UNKNOWN),
        (TWO_RANKS.format("sendrecv", 100), "collectives-bandwidth", Verdict.WARN),
        (TWO_RANKS.format("sendrecv", 20), "collectives-bandwidth", Verdict.WARN),
        (TWO_RANKS.format("all_reduce", 240), "collectives-bandwidth", Verdict.PASS),
        (TWO_RANKS.format("all_reduce", 180), "collectives-bandwidth", Verdict.WARN),
        (TWO_RANKS.format("all_reduce", 100), "collectives-bandwidth", Verdict.FAIL),
    ],
)
def test_nvlink_c2c_and_two_ranks_have_limits_of_their_own(text: str, check: str, expected: Verdict) -> None:
    (found,) = (finding for finding in diagnose(read(text)) if finding.check == check)

    assert found.verdict is expected
    if check == "host-copies":
        assert str(found.values["basis"]).startswith("NVLink-C2C")
        assert found.cause is None, "no cause of PCIe explains it"


def collective(**row: Any) -> dict[str, Any]:
    return {"op": "all_reduce", "bytes": 1 << 33, **row}


def test_without_p2p_a_slow_collective_is_no_failure() -> None:
    seen = {"gpus": {"count": 4, "model": PRO}, "matrix": square(4, "NODE"), "host": {"sockets": 1}}
    seen |= {"measured": {"collectives": [collective(ranks=4, busbw_gb_s=3.0)]}}
    assert verdict(diagnosed(seen | {"p2p_access": "all"})) is Verdict.FAIL

    found = diagnosed(seen | {"p2p_access": "none"})
    assert [f.verdict for f in found if f.check == "collectives-bandwidth"] == [Verdict.UNKNOWN], found

    seen["measured"] = {"collectives": [collective(ranks=4, busbw_gb_s=18.0)]}
    found = diagnosed(seen | {"p2p_access": "none"})
    assert [f.verdict for f in found if f.check == "collectives-bandwidth"] == [Verdict.PASS], found

    # Two of the cards have P2P, and the collective ran on two.
    access = square(4, False)
    access[0][1] = access[1][0] = True
    seen["measured"] = {"collectives": [collective(ranks=2, busbw_gb_s=3.0)]}
    found = diagnosed(seen | {"p2p_access": access})
    assert [f.verdict for f in found if f.check == "collectives-bandwidth"] == [Verdict.FAIL], found


def test_a_small_message_says_nothing_of_the_links() -> None:
    h100 = {"gpus": {"count": 8, "model": "NVIDIA H100 80GB HBM3"}}
    small, large = collective(ranks=8, bytes=1 << 28, busbw_gb_s=150.0), collective(ranks=8, busbw_gb_s=470.0)

    def judged(*rows: dict[str, Any]) -> Verdict:
        return verdict(diagnosed(h100 | {"measured": {"collectives": list(rows)}}))

    assert judged(small) is Verdict.WARN, "slower than if it took twice the longest published time to start"
    assert judged(collective(ranks=8, bytes=1 << 28, busbw_gb_s=220.0)) is Verdict.UNKNOWN
    assert judged(collective(ranks=8, bytes=1 << 30, busbw_gb_s=235.0)) is Verdict.WARN, "one of two links"
    assert judged(collective(ranks=8, bytes=1 << 26, busbw_gb_s=20.0)) is Verdict.UNKNOWN
    assert judged(small, large) is Verdict.PASS
    assert judged(collective(ranks=8, busbw_gb_s=150.0)) is Verdict.FAIL
    assert judged(collective(ranks=8, bytes=1 << 28, busbw_gb_s=420.0)) is Verdict.PASS


@pytest.mark.parametrize("status", ["NS", "CNS", "GNS"])
def test_an_instance_without_p2p_on_any_pair_is_made_so(status: str) -> None:
    seen = {"gpus": {"count": 4, "model": "NVIDIA L4"}, "host": {"virtual": True}, "matrix": square(4, "PHB")}
    found = diagnosed(seen | {"p2p_access": "none", "p2p_status": square(4, status)})

    assert verdict(found) is Verdict.PASS, found
    assert "vm-no-p2p" in named(found)


def test_p2p_that_an_instance_should_have_is_worth_a_warning() -> None:
    access = square(4, True)
    access[0][1] = access[1][0] = False
    seen = {"gpus": {"count": 4, "model": "NVIDIA L4"}, "host": {"virtual": True}, "matrix": square(4, "PHB")}
    assert accused(diagnosed(seen | {"p2p_access": access})) == {"vm-no-p2p"}

    nvlink = {"gpus": {"count": 4, "model": "NVIDIA A100-SXM4-80GB"}, "host": {"virtual": True}, "p2p_access": "none"}
    assert accused(diagnosed(nvlink)) == {"vm-no-p2p"}


def mesh(links: list[list[int]], *, in_matrix: bool) -> dict[str, Any]:
    """Eight V100: the matrix says how they are joined, or only the numbers do."""
    grid = [(i, j) for i in range(8) for j in range(8)]
    rates, access, cells = square(8, 9.2), square(8, False), square(8, "SYS")
    for i, j in grid:
        if links[i][j]:
            rates[i][j], access[i][j], cells[i][j] = 24.2 * links[i][j], True, f"NV{links[i][j]}"
    seen = {"gpus": {"count": 8, "model": "Tesla V100-SXM2-32GB"}, "p2p_access": access, "host": {"sockets": 2}}
    return seen | {"measured": {"p2p_uni_gb_s": rates}} | ({"matrix": cells} if in_matrix else {})


@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("in_matrix", [True, False])
def test_links_that_add_up_to_the_same_for_every_gpu_are_the_wiring(in_matrix: bool, most: int) -> None:
    seen = mesh([[min(int(cell), most) for cell in row] for row in CUBE], in_matrix=in_matrix)
    if most == 1:  # four links each, as the P100 have
        seen["gpus"]["model"] = "Tesla P100-SXM2-16GB"
        seen["measured"]["p2p_uni_gb_s"] = [[v and v * (0.75 if v > 20 else 1) for v in row] for row in
                                            seen["measured"]["p2p_uni_gb_s"]]  # fmt: skip
    assert verdict(diagnosed(seen)) is Verdict.PASS, diagnosed(seen)


def test_links_that_do_not_add_up_are_no_wiring() -> None:
    links = [[int(cell) for cell in row] for row in CUBE]
    links[0][3] = links[3][0] = 1

    assert verdict(diagnosed(mesh(links, in_matrix=False))) is not Verdict.PASS


@pytest.mark.parametrize(
    ("model", "cause"),
    [
        ("NVIDIA H100 80GB HBM3", "fabric-manager-down"),
        ("NVIDIA A100", "fabric-manager-down"),
        ("NVIDIA L4", None),
        ("NVIDIA A100-PCIE-40GB", None),
    ],
)
def test_error_802_names_the_fabric_manager_where_there_may_be_one(model: str, cause: str | None) -> None:
    failure = {"kind": "error", "step": "cudaGetDeviceCount", "code": 802, "detail": "system not yet initialized"}
    found = diagnosed({"gpus": {"count": 1, "model": model}, "measured": {"failures": [failure]}})

    assert [f.cause for f in found if f.verdict is Verdict.FAIL] == [cause], found


@pytest.mark.parametrize(
    "measured",
    [
        "by_class: {PIX: [1000, 26000]}",
        "p2p_uni_gb_s: [[null, 26], [26, null]], p2p_bidir_gb_s: [[null, 9e9], [9e9, null]]",
        "host_device: [{gpu: 0, h2d_gb_s: 9999, d2h_gb_s: 9999}]",
        "integrity_bad_pairs: [], bytes_compared: 0",
    ],
)
def test_a_number_that_nothing_reaches_is_not_healthy_and_nothing_compared_is_not_right(measured):
    text = f"gpus: {{count: 2, model: NVIDIA L40S}}\nmatrix: [[X, PIX], [PIX, X]]\nmeasured: {{{measured}}}\n"

    assert verdict(diagnose(read(text))) is not Verdict.PASS
