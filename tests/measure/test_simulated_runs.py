"""Faults of copies through plan, runner and observations, in one process."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpucheck.diagnose import diagnose
from gpucheck.measure.reporting.surroundings import surroundings, under_load
from gpucheck.model import AcsControl, EccCounts, NvLink5Counts, Verdict
from gpucheck.model.copies import DataCheck, Flow
from gpucheck.topology.wiring import PARAMS
from tests.machines import p100
from tests.measure.benches import EIGHT_NVSWITCH, EIGHT_PCIE, TWO_PCIE, Bench, by_check, fault


def cells(matrix):
    """The cells of a matrix that hold a number, by ordered pair."""
    return {
        (i, j): value for i, row in enumerate(matrix or ()) for j, value in enumerate(row) if value not in (None, False)
    }


@pytest.mark.parametrize("bench", [TWO_PCIE, EIGHT_NVSWITCH], ids=["two PCIe", "eight NVSwitch"])
@pytest.mark.parametrize("depth", ["quick", "default", "full"])
def test_a_healthy_machine_reaches_what_its_paths_give_and_leaves_no_gap(bench, depth):
    results, _ = bench.measure(depth=depth)
    seen = bench.observed(results, during=bench.links(), after=bench.reading).measured
    expected = {pair: path.expected.unidirectional_gb_s for pair, path in bench.machine.between.items()}

    assert cells(seen.p2p_uni_gb_s) == pytest.approx(expected, rel=0.01)
    assert (seen.integrity_bad_pairs, seen.damaged, seen.failures) == ((), (), ())
    assert seen.bytes_compared > 1 << 20
    assert cells(seen.p2p_uni_alone) == {}, "nothing looked low, so nothing was repeated"
    assert bench.gaps(results) == ()


@pytest.mark.parametrize(
    ("bench", "rounds", "seconds"),
    [
        (TWO_PCIE, 2, 5),
        (EIGHT_NVSWITCH, 14, 10),
        # The sixteen pairs across the sockets use the one link between them, each in a round of its own.
        (EIGHT_PCIE, 17, 45),
    ],
)
def test_a_run_takes_few_rounds_and_seconds(bench, rounds, seconds):
    results, _ = bench.measure()

    assert (results.rounds, results.device_s <= seconds) == (rounds, True)
    assert len(dict(results.measured())) == len(bench.machine.between)


def test_a_slow_pair_is_measured_again_alone():
    results, here = EIGHT_NVSWITCH.measure(fault("p2p-slow", 2, 5, percent=40))
    seen = EIGHT_NVSWITCH.observed(results).measured

    alone = [(step.flows[0].method, step.flows[0].src) for step in here.asked if step.purpose == "alone"]
    assert alone == [("ce-write", 2), ("staged", 2), ("ce-write", 5), ("staged", 5)]
    assert cells(seen.p2p_uni_alone) == {(2, 5): True, (5, 2): True}
    assert seen.p2p_uni_gb_s[2][5] == pytest.approx(0.6 * seen.p2p_uni_gb_s[2][4], rel=0.01)


@pytest.mark.parametrize("bench", [TWO_PCIE, EIGHT_NVSWITCH], ids=["two PCIe", "eight NVSwitch"])
def test_a_pair_that_is_slow_only_both_ways_at_once_is_measured_again_alone(bench):
    results, here = bench.measure(fault("p2p-half-duplex", 0, 1))
    seen = bench.observed(results).measured

    assert seen.p2p_bidir_gb_s[0][1] == pytest.approx(seen.p2p_uni_gb_s[0][1], rel=0.04), "no more than one way alone"
    assert cells(seen.p2p_bidir_alone) == {(0, 1): True, (1, 0): True}
    assert cells(seen.p2p_uni_alone) == {(0, 1): True, (1, 0): True}, "the sum is compared with its parts"
    assert [step.purpose for step in here.asked].count("both directions alone") == 1


def test_a_slow_direction_is_compared_with_the_other_measured_alone_too():
    seen = EIGHT_NVSWITCH.seen(fault("p2p-slow-direction", 6, 2, percent=35)).measured

    assert cells(seen.p2p_uni_alone) == {(6, 2): True, (2, 6): True}
    assert cells(seen.p2p_bidir_alone) == {(6, 2): True, (2, 6): True}
    assert seen.p2p_uni_gb_s[6][2] < 0.7 * seen.p2p_uni_gb_s[2][6]


def nvlinks(*, down: int = 0, errors: int | None = 0, reasons: tuple[str, ...] = ()):
    """The eight GPUs as NVML tells them while copying; GPU 2 has what is told."""
    gpus = list(EIGHT_NVSWITCH.gpus)
    for place, gpu in enumerate(gpus):
        links = tuple(
            replace(link, active=not (place == 2 and link.link < down), replay_errors=errors if place == 2 else 0)
            for link in gpu.nvlinks
        )
        health = replace(gpu.health, clocks_event_reasons=reasons if place == 2 else ())
        gpus[place] = replace(gpu, nvlinks=links, health=health)
    return replace(EIGHT_NVSWITCH.reading, gpus=tuple(gpus))


def blackwell(**counts: int):
    """The same with the counters of NVLink 5; GPU 2 has these."""
    gpus = list(nvlinks(errors=None).gpus)
    counted = NvLink5Counts(**{"recoveries": 0, **counts})
    gpus[2] = replace(gpus[2], nvlinks=tuple(replace(link, counts=counted) for link in gpus[2].nvlinks))
    return replace(EIGHT_NVSWITCH.reading, gpus=tuple(gpus))


@pytest.mark.parametrize(
    ("before", "during", "active", "errors", "throttled"),
    [
        (nvlinks(), nvlinks(), 18, {}, ()),
        (nvlinks(), nvlinks(down=1), 17, {}, ()),
        (nvlinks(), nvlinks(errors=7), 18, {f"NVLink {link} replays": 7 for link in range(18)}, ()),
        (nvlinks(errors=7), nvlinks(errors=7), 18, {}, ()),
        (blackwell(), blackwell(recoveries=2), 18, {f"NVLink {link} recoveries": 2 for link in range(18)}, ()),
        (nvlinks(), nvlinks(reasons=("idle", "hw-thermal")), 18, {}, ("hw-thermal",)),
    ],
    ids=["all up and clean", "one down", "errors rise", "errors of before", "NVLink 5", "a brake"],
)
def test_what_nvml_says_while_copying_is_observed(before, during, active, errors, throttled):
    scene = EIGHT_NVSWITCH.scene(gpus=before.gpus, before=before, during=EIGHT_NVSWITCH.links(during), after=during)
    loaded = under_load(scene)[2]

    assert (loaded.gpu, loaded.errors, loaded.throttled, loaded.readings) == (2, errors, throttled, 1)
    assert surroundings(scene).gpus[2].nvlinks.active == active
    assert surroundings(scene).gpus[2].nvlinks.total == 18


@pytest.mark.parametrize(("limit", "down", "counts"), [(12, 6, (12, 12)), (12, 7, (11, 12)), (0, 18, (None, None))])
def test_links_that_an_option_of_the_driver_switches_off_are_not_missing(limit, down, counts):
    after = nvlinks(down=down)
    files = {PARAMS: f"RmNvlinkBandwidthLinkCount: {limit}\n" if limit else "NvLinkDisable: 1\n"}
    seen = surroundings(EIGHT_NVSWITCH.scene(gpus=after.gpus, before=after, files=files)).gpus[2].nvlinks

    assert (seen.active, seen.total) == counts


def test_the_best_link_state_of_all_readings_counts():
    """Between two steps a link may rest already."""
    resting = tuple(replace(gpu, pcie=replace(gpu.pcie, generation=1)) for gpu in TWO_PCIE.gpus)
    rest = replace(TWO_PCIE.reading, gpus=resting)
    results, _ = TWO_PCIE.measure(depth="quick")
    during = (*TWO_PCIE.links(), *TWO_PCIE.links(rest))
    loaded = TWO_PCIE.observed(results, before=rest, during=during)
    idle = TWO_PCIE.observed(results, before=rest)

    assert (loaded.measured.under_load[0].gen, loaded.measured.under_load[0].readings) == (3, 2)
    assert (loaded.gpus[0].pcie.gen, loaded.gpus[0].pcie.read) == (3, "load")
    assert (idle.measured.under_load, idle.gpus[0].pcie.read) == ((), "idle")


def behind_bridges(**register):
    """Two GPUs, each behind a port of its own."""
    gpus = [p100(0), p100(1)]
    ports = [
        replace(device, bus_id=f"0000:0{n}:00.0", class_id="060400", vendor_id="10b5", **register)
        for n, device in enumerate(Bench(gpus).pci[:2])
    ]
    pci = [replace(device, path=(ports[n].bus_id,)) for n, device in enumerate(Bench(gpus).pci[:2])]
    return Bench(gpus, pci=(*ports, *pci))


@pytest.mark.parametrize(
    ("register", "redirect", "rows"),
    [
        ({"config_readable": False}, None, 0),
        ({"config_readable": True}, False, 0),
        ({"config_readable": True, "acs": AcsControl(capability=0x5F, control=0x01)}, False, 2),
        (
            {"config_readable": True, "acs": AcsControl(capability=0x5F, control=0x1D)},
            ("0000:00:00.0", "0000:01:00.0"),
            2,
        ),
    ],
)
def test_a_register_that_could_not_be_read_is_not_off(register, redirect, rows):
    bench = behind_bridges(kind="root-port", **register)
    results, _ = bench.measure(depth="quick")
    host = bench.observed(results).host

    assert (host.acs_redirect, len(host.acs)) == (redirect, rows)


@pytest.mark.parametrize(
    ("changes", "virtual", "iommu"),
    [
        ({"iommu_group": "3", "iommu_type": "DMA-FQ"}, None, "translating"),
        ({"iommu_group": "3", "iommu_type": "identity"}, None, "identity"),
        ({"iommu_group": "3", "iommu_type": None}, None, None),
        ({"iommu_group": None, "iommu_type": None}, None, "off"),
        ({"iommu_group": None, "iommu_type": None}, "kvm", None),
    ],
)
def test_the_iommu_is_known_where_a_group_says_so(changes, virtual, iommu):
    pci = tuple(replace(device, **changes) for device in TWO_PCIE.pci)
    results, _ = TWO_PCIE.measure(depth="quick")
    host = TWO_PCIE.observed(results, pci=pci, virtual=virtual).host

    assert (host.iommu, host.virtual) == (iommu, virtual is not None)


@pytest.mark.parametrize("at_source", [True, False])
def test_a_gpu_that_changed_what_it_sent_is_accused_and_no_link(at_source):
    results, _ = TWO_PCIE.measure(depth="quick")
    wrong = DataCheck(
        flow=Flow(src=1, dst=0),
        bytes_verified=4096,
        host_bytes_verified=4096,
        rounds=1,
        bad_rounds=1,
        mismatches=3,
        damage="bit-flip",
        at_source=at_source,
    )
    results.checks.append((False, wrong))
    worn = replace(TWO_PCIE.gpus[1].health, ecc_counts=EccCounts(volatile_corrected=5, volatile_uncorrected=2))
    fresh = replace(worn, ecc_counts=EccCounts(volatile_corrected=5, volatile_uncorrected=0))
    after = replace(TWO_PCIE.reading, gpus=(TWO_PCIE.gpus[0], replace(TWO_PCIE.gpus[1], health=worn)))
    gpus = (TWO_PCIE.gpus[0], replace(TWO_PCIE.gpus[1], health=fresh))
    seen = TWO_PCIE.observed(results, gpus=gpus, after=after)
    (found,) = [finding for finding in diagnose(seen) if finding.check == "p2p-integrity"]

    assert "GPU 1: ECC errors during the copies: +0 corrected, +2 uncorrectable" in found.evidence
    assert (found.verdict, seen.measured.integrity_bad_pairs) == (Verdict.FAIL, () if at_source else ((1, 0),))
    assert (found.seen == "GPU 1: its memory changed data before it was sent") is at_source


def test_a_refused_pair_is_found_in_its_round_and_the_others_are_measured():
    results, _ = EIGHT_NVSWITCH.measure(fault("p2p-error", 1, 6, code=217))
    failures = EIGHT_NVSWITCH.observed(results).measured.failures

    assert {failure.kind for failure in failures} == {"error"}
    assert {pair for failure in failures for pair in failure.pairs} <= {(1, 6), (6, 1)}
    assert failures[0].code == 217
    assert failures[0].detail.startswith("CUDA error 217 (cudaErrorPeerAccessUnsupported)")
    assert len(dict(results.measured())) == 54


def test_a_machine_that_copied_nothing_is_not_called_sound():
    """Zero bytes verified is UNKNOWN, however few errors there were."""
    results, _ = TWO_PCIE.measure(fault("p2p-error", code=719))
    seen = TWO_PCIE.observed(results).measured

    assert by_check(TWO_PCIE.gaps(results))["p2p-integrity"][0].verdict is Verdict.UNKNOWN
    assert (seen.integrity_bad_pairs, seen.bytes_compared) == (None, None)


def test_links_that_were_not_read_while_copying_are_a_gap():
    results, _ = TWO_PCIE.measure(depth="quick")
    (gap,) = TWO_PCIE.gaps(results, loaded=False)

    assert (gap.check, gap.verdict) == ("links-under-load", Verdict.UNKNOWN)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), percent=st.integers(1, 20))
def test_the_uncertainty_grows_with_the_noise_and_holds_the_truth(seed, percent):
    seen = TWO_PCIE.seen(fault("copy-noise", percent=percent, seed=seed), depth="quick").measured
    truth = TWO_PCIE.machine.between[0, 1].expected.unidirectional_gb_s

    assert 0 <= seen.p2p_uni_error[0][1] <= percent / 100
    assert abs(seen.p2p_uni_gb_s[0][1] / truth - 1) < 4 * percent / 100
