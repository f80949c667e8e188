"""Every fault of the simulated engine through plan, runner and judge, in one process."""

import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucheck.measure.facts import Facts
from gpucheck.measure.judge import judge
from gpucheck.measure.judge_both_ways import judge_both_ways
from gpucheck.measure.judge_integrity import RECEIVED
from gpucheck.measure.subjects import pair_subject
from gpucheck.model import Verdict, worst
from tests.machines import p100
from tests.measure.benches import EIGHT_NVSWITCH, EIGHT_PCIE, TWO_PCIE, Bench, by_check, fault


def verdict(findings):
    return worst(finding.verdict for finding in findings)


@pytest.mark.parametrize("bench", [TWO_PCIE, EIGHT_NVSWITCH], ids=["two PCIe", "eight NVSwitch"])
@pytest.mark.parametrize("depth", ["quick", "default", "full"])
def test_a_healthy_machine_passes(bench, depth):
    findings = bench.findings(depth=depth)

    assert {finding.verdict for finding in findings} == {Verdict.PASS}


def test_eight_gpus_are_measured_in_seven_rounds_and_within_twenty_seconds():
    results, _ = EIGHT_NVSWITCH.measure()

    assert results.rounds == 7
    assert results.device_s <= 20
    assert len(dict(results.measured())) == 56


def test_eight_gpus_over_pcie_gen4_and_two_sockets_take_45_seconds_at_most():
    """Every pair across the sockets uses the one link between them: sixteen rounds each way, and no fewer."""
    results, _ = EIGHT_PCIE.measure()

    assert results.rounds == 16
    assert results.device_s <= 45


def test_two_gpus_take_ten_seconds_at_most():
    assert TWO_PCIE.measure()[0].device_s <= 10


def test_a_slow_pair_is_measured_again_alone_and_named_with_its_cause():
    results, here = EIGHT_NVSWITCH.measure(fault("p2p-slow", 2, 5, percent=40))
    (low,) = by_check(EIGHT_NVSWITCH.findings(fault("p2p-slow", 2, 5, percent=40)))["p2p-bandwidth"]

    assert low.verdict is Verdict.FAIL
    assert low.subject == "pair:0000:3b:00.0-0000:6b:00.0"
    assert (low.seen, low.wanted, low.cause) == (229.3, 355.7, "nvlink-errors")
    assert sum(step.purpose == "alone" for step in here.asked) == 2
    assert len(results.alone) == 2


@pytest.mark.parametrize("bench", [TWO_PCIE, EIGHT_NVSWITCH], ids=["two PCIe", "eight NVSwitch"])
def test_a_pair_that_is_slow_only_both_ways_at_once_is_measured_again_alone_and_fails(bench):
    results, here = bench.measure(fault("p2p-half-duplex", 0, 1))
    findings = by_check(bench.findings(fault("p2p-half-duplex", 0, 1)))
    (low,) = findings["p2p-both-ways"]

    assert (low.verdict, low.cause) == (Verdict.FAIL, None)
    assert low.subject == pair_subject(results, [(0, 1)])
    assert low.seen == pytest.approx(dict(results.measured())[0, 1].gb_s, rel=0.01), "no more than one way alone"
    assert results.both_alone.keys() == {(0, 1)}
    assert [step.purpose for step in here.asked].count("both directions alone") == 1
    assert [f.verdict for f in findings["p2p-bandwidth"]] == [Verdict.PASS]


def test_slow_both_ways_with_the_latency_of_host_memory_is_a_grant_that_is_not_used():
    """The driver says yes and stages: one way may look right, both ways and small copies tell."""
    results, _ = TWO_PCIE.measure(fault("p2p-half-duplex", 0, 1))
    for flow in [flow for flow in results.latency if flow.method == "ce-write"]:
        results.latency[flow] = msgspec.structs.replace(results.latency[flow], median_s=14e-6)

    (low,) = judge_both_ways(results, TWO_PCIE.machine)

    assert (low.cause, low.confidence) == ("false-p2p-grant", "likely")


def test_a_pair_that_is_slow_one_way_is_not_told_a_second_time_for_both_ways():
    results, _ = EIGHT_NVSWITCH.measure(fault("p2p-slow", 2, 5, percent=60))

    assert results.both[2, 5]
    assert [f.verdict for f in judge_both_ways(results, EIGHT_NVSWITCH.machine)] == [Verdict.PASS]


def nvlinks(*, down: int = 0, errors: int | None = 0, reasons: tuple[str, ...] = ()):
    """The eight GPUs as NVML tells them while copying; GPU 2 has what is told."""
    gpus = list(EIGHT_NVSWITCH.gpus)
    for place, gpu in enumerate(gpus):
        links = tuple(
            msgspec.structs.replace(
                link, active=not (place == 2 and link.link < down), replay_errors=errors if place == 2 else 0
            )
            for link in gpu.nvlinks
        )
        health = msgspec.structs.replace(gpu.health, clocks_event_reasons=reasons if place == 2 else ())
        gpus[place] = msgspec.structs.replace(gpu, nvlinks=links, health=health)
    return msgspec.structs.replace(EIGHT_NVSWITCH.reading, gpus=tuple(gpus))


@pytest.mark.parametrize(
    ("before", "during", "cause", "confidence"),
    [
        (nvlinks(), nvlinks(), None, None),
        (nvlinks(), nvlinks(down=1), "nvlink-down", "likely"),
        (nvlinks(), nvlinks(errors=7), "nvlink-errors", "likely"),
        (nvlinks(errors=7), nvlinks(errors=7), "nvlink-errors", "possible"),
        (nvlinks(), nvlinks(reasons=("hw-thermal",)), "throttled", "likely"),
    ],
    ids=["all up and clean", "one down", "errors rise", "errors of before", "a brake"],
)
def test_a_slow_nvlink_pair_is_blamed_on_what_its_links_say(before, during, cause, confidence):
    results, _ = EIGHT_NVSWITCH.measure(fault("p2p-slow", 2, 5, percent=40))
    facts = Facts(before=before, during=(during,), after=during)

    (low,) = by_check(judge(results, EIGHT_NVSWITCH.machine, facts))["p2p-bandwidth"]

    assert (low.cause, low.confidence) == (cause, confidence)
    assert f"0000:3b:00.0: {during.gpus[2].active_nvlinks} of 18 NVLink ports up" in low.evidence


def test_nvlink_is_never_blamed_on_bridges_that_it_does_not_cross():
    """Slower than through host memory is the mark of ACS on PCIe; an NVLink copy meets no bridge."""
    findings = by_check(EIGHT_NVSWITCH.findings(fault("p2p-slow", percent=97), redirecting=("0000:02:00.0",)))

    assert "p2p-against-staged" not in findings
    assert findings["p2p-bandwidth"][0].verdict is Verdict.FAIL


def test_a_redirecting_bridge_elsewhere_is_not_the_proof():
    (finding,) = by_check(TWO_PCIE.findings(fault("p2p-slow", percent=60), redirecting=("0000:77:00.0",)))[
        "p2p-against-staged"
    ]

    assert (finding.cause, finding.confidence) == (None, None)
    assert "no bridge on the way redirects" in finding.why


def test_a_slow_direction_names_that_direction_only():
    (low,) = by_check(EIGHT_NVSWITCH.findings(fault("p2p-slow-direction", 6, 2, percent=35)))["p2p-bandwidth"]

    assert low.why.startswith("GPU 6 -> 2:")
    assert low.verdict is Verdict.FAIL


def test_a_pair_slower_than_through_host_memory_is_one_finding_about_that():
    """The loss is explained once: no second finding says that the pair is slow."""
    findings = by_check(TWO_PCIE.findings(fault("p2p-slow", percent=60)))

    assert findings["p2p-against-staged"][0].cause == "acs-redirect"
    assert "p2p-bandwidth" not in findings


@pytest.mark.parametrize(
    ("facts", "cause", "confidence"),
    [
        ({"redirecting": ("0000:02:00.0",)}, "acs-redirect", "certain"),
        ({"iommu_translates": True}, "iommu-translation", "likely"),
        ({}, "acs-redirect", "possible"),
        ({"redirecting": ()}, None, None),
    ],
)
def test_what_the_host_shows_decides_why_peer_access_harms(facts, cause, confidence):
    (finding,) = by_check(TWO_PCIE.findings(fault("p2p-slow", percent=60), **facts))["p2p-against-staged"]

    assert (finding.cause, finding.confidence) == (cause, confidence)


def test_one_gpu_that_is_slow_to_everyone_is_one_finding():
    faults = [fault("p2p-slow", 3, other, percent=40) for other in range(8) if other != 3]
    (low,) = by_check(EIGHT_NVSWITCH.findings(*faults))["p2p-bandwidth"]

    assert low.subject == "gpu:0000:4b:00.0"
    assert "its own link or slot" in low.why


def test_everything_slow_is_one_finding_about_the_host():
    faults = [fault("p2p-slow", a, b, percent=40) for a in range(8) for b in range(a)]
    (low,) = by_check(EIGHT_NVSWITCH.findings(*faults))["p2p-bandwidth"]

    assert low.subject == "host"
    assert "every pair" in low.why


@pytest.mark.parametrize("bench", [TWO_PCIE, EIGHT_NVSWITCH], ids=["two PCIe", "eight NVSwitch"])
@pytest.mark.parametrize("kind", ["zeros", "stale", "untouched", "other-pair", "shifted", "bit-flip"])
def test_damaged_data_fails_by_its_kind(bench, kind):
    findings = by_check(bench.findings(fault("p2p-corrupt", kind=kind)))
    (damaged,) = findings["p2p-integrity"]

    assert damaged.verdict is Verdict.FAIL
    assert re.fullmatch(
        rf"GPU 0 <?-> 1: data corrupted, {RECEIVED[kind]} \([\d,]+ of [\d,]+ 8-byte words\)", damaged.seen
    )
    assert damaged.cause in ("data-corruption", "false-p2p-grant", "iommu-translation")
    assert damaged.subject.startswith("pair:")
    assert any("got " in line for line in damaged.evidence)


def test_zeros_over_pcie_with_a_translating_iommu_are_its_fault():
    (damaged,) = by_check(TWO_PCIE.findings(fault("p2p-corrupt", kind="zeros"), iommu_translates=True))["p2p-integrity"]

    assert (damaged.cause, damaged.confidence) == ("iommu-translation", "certain")


def test_a_refused_pair_is_found_in_its_round_and_the_others_are_measured():
    results, _ = EIGHT_NVSWITCH.measure(fault("p2p-error", 1, 6, code=217))
    findings = by_check(EIGHT_NVSWITCH.findings(fault("p2p-error", 1, 6, code=217)))
    (refused,) = findings["p2p-copies"]

    assert refused.subject == "pair:0000:2b:00.0-0000:7b:00.0"
    assert "cudaErrorPeerAccessUnsupported" in str(refused.seen)
    assert refused.cause == "false-p2p-grant"
    assert len(dict(results.measured())) == 54


def test_a_machine_that_copied_nothing_is_not_called_sound():
    """Zero bytes verified is UNKNOWN, however few errors there were."""
    faults = [fault("p2p-error", code=719)]
    findings = by_check(TWO_PCIE.findings(*faults))

    assert findings["p2p-integrity"][0].verdict is Verdict.UNKNOWN


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_three_percent_noise_fails_nothing(seed):
    for bench in (TWO_PCIE, EIGHT_NVSWITCH):
        assert bench.speed(fault("copy-noise", percent=3, seed=seed)) is Verdict.PASS


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), a=st.integers(0, 7), step=st.integers(1, 7))
def test_three_percent_noise_hides_no_loss_of_thirty_percent(seed, a, step):
    noise = fault("copy-noise", percent=3, seed=seed)
    slow = EIGHT_NVSWITCH.speed(noise, fault("p2p-slow", a, (a + step) % 8, percent=30))
    pcie = TWO_PCIE.speed(noise, fault("p2p-slow-direction", percent=30))

    assert slow is Verdict.FAIL
    assert pcie in (Verdict.WARN, Verdict.FAIL)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_three_percent_noise_fails_no_pair_both_ways_and_hides_no_half_duplex(seed):
    noise = fault("copy-noise", percent=3, seed=seed)
    healthy = by_check(TWO_PCIE.findings(noise))["p2p-both-ways"]
    shared = by_check(TWO_PCIE.findings(noise, fault("p2p-half-duplex")))["p2p-both-ways"]

    assert verdict(healthy) is Verdict.PASS
    assert verdict(shared) is Verdict.FAIL


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), percent=st.integers(4, 20))
def test_more_noise_never_fails_a_healthy_pair(seed, percent):
    """A number that scatters so much may earn a warning, and is too uncertain to fail on."""
    for bench in (TWO_PCIE, EIGHT_NVSWITCH):
        assert bench.speed(fault("copy-noise", percent=percent, seed=seed)) is not Verdict.FAIL


def test_drift_within_a_run_is_no_fault():
    assert verdict(EIGHT_NVSWITCH.findings(fault("copy-noise", percent=1, drift=5))) is Verdict.PASS


def test_pairs_that_the_driver_refuses_are_skipped_with_their_number():
    """GeForce over PCIe: the staged figure is the right one here, and no fault."""
    bench = Bench([p100(0), p100(1)])
    bench.machine.between.update(
        {pair: path.__class__(cls="PHB", resources=path.resources) for pair, path in bench.machine.between.items()}
    )
    findings = by_check(bench.findings(refused={(0, 1): "GNS"}))

    (skipped,) = findings["p2p-bandwidth"]
    assert skipped.verdict is Verdict.SKIP
    assert skipped.cause == "geforce-p2p-disabled"
