"""SIMULATED small machines: what a diagnosis must get right whatever its numbers and tables are, and must never say."""

from collections.abc import Callable
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gpucheck.model import Finding, Verdict
from tests.diagnose.results import BAD, accused, diagnosed, named, verdict

LINK_FAULTS = {"pcie-link-downgraded", "pcie-width-reduced", "uplink-downgraded"}
ADA = "NVIDIA GeForce RTX 4090"


def square(count: int, cell: Callable[[int, int], Any]) -> list[list[Any]]:
    return [[None if i == j else cell(i, j) for j in range(count)] for i in range(count)]


def words(found: tuple[Finding, ...]) -> str:
    return "\n".join(f"{f.verdict.value} {f.cause} {f.subject} {f.why}" for f in found)


def two(model: str, cls: str = "PHB", **measured: Any) -> dict[str, Any]:
    """Two cards; a number among the measured stands for both directions, a pair of numbers for each."""
    grids = {}
    for name, value in measured.items():
        there, back = value if isinstance(value, tuple) else (value, value)
        grids[name] = [[None, there], [back, None]]
    return {
        "gpus": [{"model": model, "bus_id": f"0000:{bus}:00.0"} for bus in ("01", "02")],
        "matrix": [[None, cls], [cls, None]],
        "p2p_access": "all",
        "measured": grids,
    }


def test_copies_slower_than_staged_ones_in_both_directions_are_no_link_fault():
    """A slow link would slow the staged copies down as well."""
    found = diagnosed(two("NVIDIA RTX A6000", p2p_uni_gb_s=(5.1, 9.3), staged_uni_gb_s=(16.2, 16.4)))

    assert verdict(found) in BAD, words(found)
    assert not accused(found) & LINK_FAULTS, words(found)


def test_eight_lanes_for_each_of_two_cards_is_how_desktop_boards_are_made():
    seen = two("NVIDIA GeForce RTX 3090", p2p_uni_gb_s=9.6, staged_uni_gb_s=9.6)
    seen["p2p_access"] = "none"
    for gpu in seen["gpus"]:
        gpu["pcie"] = {"gen": 4, "width": 8, "max_gen": 4, "max_width": 16, "read": "load"}
    found = diagnosed(seen)

    assert verdict(found) is Verdict.PASS, words(found)
    assert "narrow-by-design" in named(found)


def test_peer_access_that_the_stock_driver_does_not_grant_is_a_claim_until_data_was_compared():
    seen = two(ADA, p2p_uni_gb_s=25.6, p2p_latency_us=1.3, staged_uni_gb_s=20.1)
    found = diagnosed(seen)

    assert verdict(found) is not Verdict.FAIL, words(found)
    assert "false-p2p-grant" in named(found), words(found)
    seen["measured"]["integrity_bad_pairs"] = []
    assert verdict(diagnosed(seen)) is Verdict.PASS, words(diagnosed(seen))


def test_wrong_data_of_two_gpus_is_no_suspect_of_slow_copies_of_another():
    rates = square(4, lambda i, j: 12.0 if 0 in (i, j) else 24.0)
    seen = {
        "gpus": [{"model": "NVIDIA L40S", "bus_id": f"0000:0{n}:00.0"} for n in range(1, 5)],
        "matrix": square(4, lambda _i, _j: "PHB"),
        "p2p_access": "all",
        "measured": {"p2p_uni_gb_s": rates, "damaged": [{"pairs": [[2, 3]], "damage": "bit-flip"}]},
    }
    found = diagnosed(seen)
    (slow,) = (one for one in found if one.check == "p2p-bandwidth" and one.verdict in BAD)

    assert [one.subject for one in found if one.check == "p2p-integrity"] == ["pair:0000:03:00.0-0000:04:00.0"]
    assert (slow.subject, slow.cause) == ("gpu:0000:01:00.0", "pcie-width-reduced"), words(found)
    assert "data-corruption" not in named((slow,))

    seen["measured"]["p2p_uni_gb_s"] = square(4, lambda i, j: 12.0 if i + j == 1 else 24.0)
    for trouble in ({}, {"failures": [{"kind": "stuck", "step": "p2p", "detail": "no progress", "pairs": [[2, 3]]}]}):
        seen["measured"] |= trouble
        (pair,) = (one for one in diagnosed(seen) if one.check == "p2p-bandwidth" and one.verdict in BAD)
        assert "false-p2p-grant" not in named((pair,)), words((pair,))


def test_a_link_that_another_gpu_lost_is_no_suspect_of_a_hang():
    def suspect(gpu: int) -> str | None:
        stuck = {"kind": "stuck", "step": "p2p", "detail": "no progress", "pairs": [[2, 3]]}
        gpus = [
            {
                "model": "NVIDIA H100 80GB HBM3",
                "bus_id": f"0000:0{n}:00.0",
                "nvlinks": {"active": 18 - (n == gpu), "total": 18},
            }
            for n in range(4)
        ]
        found = diagnosed({"gpus": gpus, "p2p_access": "all", "measured": {"failures": [stuck]}})
        assert ("nvlink-down", f"gpu:0000:0{gpu}:00.0") in {(one.cause, one.subject) for one in found}, words(found)
        return next(one.cause for one in found if one.check == "p2p-copies")

    assert suspect(3) == "nvlink-down"
    assert suspect(0) != "nvlink-down"


def meshed(**changes: Any) -> dict[str, Any]:
    """Four A100 with four NVLinks each two; copies of GPU 0 and 1 are slow."""
    gpus = [{"model": "NVIDIA A100-SXM4-80GB", "bus_id": f"0000:0{n}:00.0"} for n in range(1, 5)]
    rates = square(4, lambda i, j: 55.0 if i + j == 1 else 92.0)
    matrix = square(4, lambda _i, _j: "NV4")
    return {"gpus": gpus, "matrix": matrix, "p2p_access": "all", "measured": {"p2p_uni_gb_s": rates}} | changes


def of_pair(found: tuple[Finding, ...], a: int, b: int) -> Finding:
    (one,) = (
        one for one in found if one.check == "p2p-bandwidth" and one.subject == f"pair:0000:0{a}:00.0-0000:0{b}:00.0"
    )
    return one


def test_a_slow_pair_with_all_its_links_has_not_lost_one_that_another_pair_lost():
    seen = meshed(matrix=square(4, lambda i, j: "NV3" if i + j == 2 and i * j == 0 else "NV4"))
    for number, gpu in enumerate(seen["gpus"]):
        gpu["nvlinks"] = {"active": 11 if number in (0, 2) else 12, "total": 12}
    slow = of_pair(diagnosed(seen), 1, 2)

    assert not {"nvlink-down", "nvlink-missing"} & named((slow,)), words((slow,))


def test_a_pair_without_access_is_not_put_together_with_another_slow_pair():
    rates = square(4, lambda i, j: 55.0 if i + j == 1 else 20.5 if i + j == 5 else 92.0)
    status = square(4, lambda i, j: "CNS" if i + j == 5 else "OK")
    found = diagnosed(meshed(measured={"p2p_uni_gb_s": rates}, p2p_access=None, p2p_status=status))

    assert [of_pair(found, *pair).seen for pair in ((1, 2), (3, 4))] == ["55 GB/s", "20.5 GB/s"]


def test_small_copies_that_take_as_long_as_staged_ones_are_no_pass():
    """All pairs are equally late, so that none is odd: the grant is not used, as of a driver that grants it falsely."""

    def of(us: float, staged: float | None = None) -> Finding:
        found = diagnosed(two("NVIDIA RTX A6000", p2p_latency_us=us, staged_latency_us=staged))
        return next(one for one in found if one.check == "p2p-latency")

    late = of(48000.0)
    assert (late.verdict, late.seen, late.cause) == (Verdict.WARN, 48000.0, None)
    assert {one.cause for one in late.alternatives} >= {"iommu-translation", "false-p2p-grant"}
    assert of(13.5, staged=14.0).code == late.code
    # An old host: half of what copies through host memory take.
    assert of(10.0, staged=21.0).verdict is Verdict.PASS

    denied = two("NVIDIA RTX A6000", "NV4", p2p_latency_us=14.0) | {"p2p_access": "none"}
    assert "p2p-latency" not in {one.check for one in diagnosed(denied)}


def test_peer_access_in_a_guest_that_nobody_verified_is_not_faulty():
    seen = two("NVIDIA RTX PRO 6000 Blackwell Server Edition", "PIX", p2p_uni_gb_s=54.9, p2p_latency_us=0.6)
    seen["host"] = {"virtual": True}

    assert not accused(diagnosed(seen)), words(diagnosed(seen))


def test_a_chipset_that_nvidia_does_not_support_is_named():
    seen = two("NVIDIA A10", p2p_uni_gb_s=10.1, staged_uni_gb_s=10.1)
    del seen["p2p_access"]
    seen["p2p_status"] = [[None, "CNS"], ["CNS", None]]
    real = words(diagnosed(seen))
    seen["host"] = {"virtual": True}
    guest = words(diagnosed(seen))

    assert "chipset" in real, real
    assert "chipset" in guest, guest
    assert "emulate" in guest, guest


def islands(model: str, *groups: int) -> dict[str, Any]:
    """Groups of GPUs with peer access inside, and none between them."""
    of = [group for group, size in enumerate(groups) for _ in range(size)]
    numbers = square(len(of), lambda i, j: 272.0 if of[i] == of[j] else 19.5)
    access = square(len(of), lambda i, j: of[i] == of[j])
    return {"gpus": [{"model": model}] * len(of), "p2p_access": access, "measured": {"p2p_uni_gb_s": numbers}}


def test_gpu_without_peer_access_on_a_board_that_joins_all_is_not_of_another_socket():
    assert verdict(diagnosed(islands("NVIDIA A100-SXM4-80GB", 3, 1))) is not Verdict.PASS
    assert verdict(diagnosed(islands("NVIDIA A100-SXM4-80GB", 4, 4))) is not Verdict.PASS


def test_one_gpu_that_no_other_may_access_is_not_taken_for_the_only_one_of_a_socket():
    assert "cross-socket" in named(diagnosed(islands("Tesla P100-PCIE-16GB", 2, 2)))
    assert "cross-socket" not in named(diagnosed(islands("Tesla P100-PCIE-16GB", 3, 1)))


def test_number_that_no_wiring_of_the_product_carries_is_not_healthy():
    """With 150 GB/s of six links; POWER9 hosts join two V100 with three."""
    seen = two("Tesla V100-SXM2-16GB", p2p_uni_gb_s=70.0)
    del seen["matrix"]
    assert verdict(diagnosed(seen)) is Verdict.PASS

    seen["measured"] = two("Tesla V100-SXM2-16GB", p2p_uni_gb_s=1e8)["measured"]
    assert verdict(diagnosed(seen)) is Verdict.WARN


def test_gpu_that_a_complete_table_leaves_out_is_unknown():
    seen = {"gpus": {"count": 4, "model": "NVIDIA L40S"}, "matrix": square(4, lambda *_: "PIX")}
    numbers = square(4, lambda i, j: None if 3 in (i, j) else 26.2)

    assert verdict(diagnosed({**seen, "measured": {"p2p_uni_gb_s": numbers}})) is Verdict.UNKNOWN


def test_what_is_not_known_stays_unknown():
    assert verdict(diagnosed({"gpus": {"count": 2}})) is Verdict.UNKNOWN
    assert verdict(diagnosed({"gpus": {"count": 1}})) is Verdict.UNKNOWN


@settings(max_examples=20)
@given(factor=st.floats(0.4, 2.5), count=st.integers(3, 6), slow=st.integers(0, 2), noise=st.floats(0.0, 0.02))
def test_the_scale_of_an_unknown_product_changes_nothing(factor: float, count: int, slow: int, noise: float):
    """Which GPU is slower than the others does not depend on how fast the product is."""
    first, second = (_unknown(count, slow, noise, scale) for scale in (1.0, factor))

    assert {f.subject for f in first if f.verdict in BAD and f.subject.startswith("gpu:")} == {
        f.subject for f in second if f.verdict in BAD and f.subject.startswith("gpu:")
    }


def _unknown(count: int, slow: int, noise: float, scale: float) -> tuple[Finding, ...]:
    rng = Random(3)
    rates = square(count, lambda i, j: (5.0 if slow in (i, j) else 20.0) * scale * (1 + noise * rng.uniform(-1, 1)))
    gpus = [{"bus_id": f"0000:{i:02x}:00.0"} for i in range(count)]
    return diagnosed({"gpus": gpus, "measured": {"p2p_uni_gb_s": rates}})


def narrow(**measured: Any) -> dict[str, Any]:
    """Four cards of which the second has four lanes, and copies at the rate of these."""
    full = {"gen": 4, "width": 16, "max_gen": 4, "max_width": 16, "read": "load"}
    gpus = [{"model": "NVIDIA A10", "bus_id": f"0000:1{i}:00.0", "pcie": dict(full)} for i in range(4)]
    gpus[1]["pcie"] = {**full, "width": 4}
    rates = square(4, lambda i, j: 6.6 if 1 in (i, j) else 26.0)
    return {"gpus": gpus, "matrix": square(4, lambda i, j: "PIX"), "measured": {"p2p_uni_gb_s": rates, **measured}}


def test_a_hang_does_not_hide_a_slow_gpu():
    findings = diagnosed(narrow(hang={"op": "all_reduce", "gpus": [2, 3], "with_p2p_off": True}))

    assert any(f.verdict in BAD and "0000:11:00.0" in f.subject and f.cause in LINK_FAULTS for f in findings)
    assert any(f.verdict in BAD and f.check == "p2p-copies" for f in findings)


def test_lost_lanes_that_only_the_other_gpus_show_do_not_pass():
    """The link is read as the fault made it, and the copies over it are healthy for that."""
    seen = narrow()
    seen["gpus"][1]["pcie"]["max_width"] = 4

    assert verdict(diagnosed(seen)) is not Verdict.PASS
