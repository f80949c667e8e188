"""SIMULATED small machines: what a diagnosis must get right whatever its numbers and tables are, and must never say."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gpucheck.model import Finding, Verdict
from tests.diagnose.faulty import FAULTS, SHAPES, shape
from tests.diagnose.machines import Shape, healthy, permuted, redirected, slow_device, translated
from tests.diagnose.results import BAD, accused, diagnosed, named, verdict

LINK_FAULTS = {"pcie-link-downgraded", "pcie-width-reduced", "uplink-downgraded"}
ADA = "NVIDIA GeForce RTX 4090"


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


def without_links(seen: dict[str, Any]) -> dict[str, Any]:
    for gpu in seen["gpus"]:
        gpu.pop("pcie", None)
    return seen


def test_copies_slower_than_staged_ones_in_both_directions_are_no_link_fault():
    """A slow link would slow the staged copies down as well."""
    found = diagnosed(two("NVIDIA RTX A6000", p2p_uni_gb_s=(5.1, 9.3), staged_uni_gb_s=(16.2, 16.4)))

    assert verdict(found) in BAD, words(found)
    assert not accused(found) & LINK_FAULTS, words(found)


def test_two_gpus_of_one_board_share_its_uplink():
    """One way at a time every number is full; only both ways at once through host memory halves."""
    s = Shape(4, 2, 1, 3)
    seen = healthy(s, "Tesla K80")
    seen["measured"]["staged_uni_gb_s"] = s.rates(lambda i, j: 0.62 * 15.75)
    seen["measured"]["staged_bidir_gb_s"] = s.rates(lambda i, j: (0.62 if s.pairs(i, j) else 1.1) * 15.75)
    found = diagnosed(seen)

    assert verdict(found) is Verdict.PASS, words(found)


def test_half_the_rate_is_a_lower_generation_or_half_the_lanes():
    """The same number: both are named."""
    for at in ((4, 1, 1, 4), (8, 4, 1, 5)):
        seen = slow_device(shape(at, 0.02), "gen", reported=False)

        assert {"pcie-link-downgraded", "pcie-width-reduced"} <= named(diagnosed(seen))


def test_a_quarter_of_the_rate_is_two_generations_or_a_quarter_of_the_lanes():
    seen = without_links(slow_device(shape((4, 2, 1, 4), 0.02), "width", reported=False))

    assert {"pcie-link-downgraded", "pcie-width-reduced"} <= named(diagnosed(seen))


def test_a_gpu_that_shares_a_switch_with_a_fast_one_is_not_behind_the_chipset():
    seen = slow_device(shape((4, 2, 1, 4)), "width")
    for gpu in seen["gpus"]:
        del gpu["pcie"]["read"]
    found = diagnosed(seen)

    assert "gpu-behind-chipset" not in named(found), words(found)
    assert "pcie-width-reduced" in accused(found), words(found)


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


def test_peer_access_in_a_guest_that_nobody_verified_is_not_faulty():
    seen = two("NVIDIA RTX PRO 6000 Blackwell Server Edition", "PIX", p2p_uni_gb_s=54.9, p2p_latency_us=0.6)
    seen["host"] = {"virtual": True}

    assert not accused(diagnosed(seen)), words(diagnosed(seen))


def test_a_bridge_redirects_only_what_passes_it():
    clear = redirected(shape((4, 2, 1, 4)), acs_redirect=False)
    clear["host"]["acs"] = [{"bus_id": "0000:00:01.0", "control": 0}]
    assert "acs-redirect" not in named(diagnosed(clear)), words(diagnosed(clear))

    far = translated(shape((8, 4, 1, 5), 0.03))
    assert "acs-redirect" not in named(diagnosed(far)), words(diagnosed(far))


def test_far_pairs_at_a_quarter_where_the_iommu_translates_are_a_fault():
    """All alike, so nothing but the way they go explains them. A slow uplink would hold the host copies too."""
    for noise in (0.0, 0.03):
        found = diagnosed(translated(shape((8, 4, 1, 5), noise), acs_redirect=False, iommu="translating"))

        assert verdict(found) in BAD, words(found)
        assert accused(found) == {"iommu-translation"}, words(found)


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


def test_fewer_links_than_a_like_pair_has_is_a_missing_link():
    seen: dict[str, Any] = {
        "gpus": [{"model": "NVIDIA A100-SXM4-40GB"}] * 4,
        "matrix": [
            [None, "NV12", "NODE", "NODE"],
            ["NV12", None, "NODE", "NODE"],
            ["NODE", "NODE", None, "NV10"],
            ["NODE", "NODE", "NV10", None],
        ],
        "p2p_access": "all",
        "measured": {"p2p_uni_gb_s": [[None] * 4 for _ in range(4)]},
    }
    for a, b, value in ((0, 1, 274.0), (2, 3, 230.0)):
        seen["measured"]["p2p_uni_gb_s"][a][b] = seen["measured"]["p2p_uni_gb_s"][b][a] = value
    found = diagnosed(seen)

    assert accused(found) & {"nvlink-missing", "nvlink-down"}, words(found)


def test_a_hang_does_not_hide_a_slow_gpu():
    seen = slow_device(shape((4, 1, 1, 4)), "width")
    seen["measured"]["hang"] = {"op": "all_reduce", "gpus": [2, 3], "with_p2p_off": True}
    findings = diagnosed(seen)

    assert any(f.verdict in BAD and "0000:11:00.0" in f.subject and f.cause in LINK_FAULTS for f in findings)
    assert any(f.verdict in BAD and f.check == "p2p-copies" for f in findings)


def test_two_cards_far_below_what_they_can_do_do_not_pass():
    assert verdict(diagnosed(two(ADA, p2p_uni_gb_s=6.6))) is not Verdict.PASS


def test_what_is_not_known_stays_unknown():
    assert verdict(diagnosed({"gpus": {"count": 2}})) is Verdict.UNKNOWN
    assert verdict(diagnosed({"gpus": {"count": 1}})) is Verdict.UNKNOWN


MACHINES = st.sampled_from(sorted(FAULTS))


@settings(max_examples=12)
@given(at=st.sampled_from(SHAPES), name=MACHINES, seed=st.integers(0, 1000))
def test_other_numbers_for_the_gpus_name_the_same_gpus(at: tuple[int, int, int, int], name: str, seed: int):
    for seen in (healthy(shape(at, 0.03)), FAULTS[name][0]()):
        assert _stated(diagnosed(seen)) == _stated(diagnosed(permuted(*_shuffled(seen, seed))))


def _shuffled(seen: dict[str, Any], seed: int) -> tuple[dict[str, Any], list[int]]:
    order = list(range(len(seen["gpus"])))
    shape((2, 1, 1, 4), seed=seed).rng.shuffle(order)
    return seen, order


def _stated(found: tuple[Finding, ...]) -> list[tuple[str, str, str, tuple[str, ...]]]:
    """Verdict, cause and subject, with the two GPUs of a pair in one order."""
    return sorted(
        (f.verdict.value, f.cause or "", f.check, tuple(sorted(f.subject.removeprefix("pair:").split("-"))))
        for f in found
    )


@settings(max_examples=20)
@given(factor=st.floats(0.4, 2.5), count=st.integers(3, 6), slow=st.integers(0, 2), noise=st.floats(0.0, 0.02))
def test_the_scale_of_an_unknown_product_changes_nothing(factor: float, count: int, slow: int, noise: float):
    """Which GPU is slower than the others does not depend on how fast the product is."""
    first, second = (_unknown(count, slow, noise, scale) for scale in (1.0, factor))

    assert {f.subject for f in first if f.verdict in BAD and f.subject.startswith("gpu:")} == {
        f.subject for f in second if f.verdict in BAD and f.subject.startswith("gpu:")
    }


def _unknown(count: int, slow: int, noise: float, scale: float) -> tuple[Finding, ...]:
    s = Shape(count, 1, 1, 4, noise, 3)
    rates = s.rates(lambda i, j: 5.0 if slow in (i, j) else 20.0)
    grid = [[value and value * scale for value in row] for row in rates]
    return diagnosed(
        {"gpus": [{"bus_id": f"0000:{i:02x}:00.0"} for i in range(count)], "measured": {"p2p_uni_gb_s": grid}}
    )


def test_lost_lanes_that_only_the_other_gpus_show_do_not_pass():
    """The link is read as the fault made it, and the copies over it are healthy for that."""
    seen = slow_device(shape((8, 4, 1, 5)), "width")
    seen["gpus"][1]["pcie"]["max_width"] = 4
    del seen["measured"]["host_device"]

    assert verdict(diagnosed(seen)) is not Verdict.PASS
