"""Digests: repeats, a vote of GPUs, error counters, devices that failed."""

import pytest
from msgspec.structs import replace

from gpucheck.compute.evaluation import checked, evaluate
from gpucheck.model import Verdict
from gpucheck.model.compute import ComputeDevice
from tests.compute.machines import device


def about(devices, check="compute-results"):
    return [f for f in evaluate(devices) if f.check == check]


def test_equal_digests_pass_and_tell_how_much_was_checked():
    (finding,) = about([device(number) for number in range(4)])

    assert finding.verdict is Verdict.PASS
    assert "1.00e+11 values checked on each" in finding.seen
    assert checked([device(0)]) == (10**11, pytest.approx(0.0, abs=1e-40))


def test_repeats_that_differ_are_certain_wherever_others_stand():
    odd, others = about([device(0, differing=3), device(1)])

    assert (odd.verdict, odd.cause, odd.confidence) == (Verdict.FAIL, "silent-corruption", "certain")
    assert odd.subject == f"gpu:{device(0).bus_id}"
    assert "3 of 20 repeats differ" in odd.seen
    assert others.verdict is Verdict.PASS


def test_the_minority_is_named():
    odd, others = about([device(0), device(1), device(2, digest="bb"), device(3)])

    assert (odd.verdict, odd.cause, odd.confidence) == (Verdict.FAIL, "silent-corruption", "likely")
    assert odd.subject == f"gpu:{device(2).bus_id}"
    assert others.verdict is Verdict.PASS


@pytest.mark.parametrize("digests", ["ab", "aabb", "abcd"])
def test_without_a_majority_nobody_is_named(digests):
    (finding,) = about([device(number, digest=digest) for number, digest in enumerate(digests)])

    assert (finding.verdict, finding.subject) == (Verdict.UNKNOWN, "host")


def test_models_do_not_vote_on_each_other():
    other = replace(device(1, digest="bb"), name="NVIDIA L40S")

    assert [f.verdict for f in about([device(0), other])] == [Verdict.PASS, Verdict.PASS]


@pytest.mark.parametrize(
    ("counter", "cause", "verdict"),
    [
        ("ecc_uncorrected", "ecc-uncorrected", Verdict.FAIL),
        ("pcie_replays", "pcie-errors", Verdict.WARN),
        ("pcie_fatal", "pcie-errors", Verdict.FAIL),
        ("nvlink_crc", "nvlink-errors", Verdict.WARN),
    ],
)
def test_a_counter_that_rose_is_named(counter, cause, verdict):
    (finding,) = about([replace(device(0), errors={counter: 2}), device(1)], "compute-errors")

    assert (finding.verdict, finding.cause, finding.confidence) == (verdict, cause, "certain")


def test_errors_that_ecc_corrected_are_no_finding():
    assert about([replace(device(0), errors={"ecc_corrected": 2})], "compute-errors") == []


def empty(number, failed):
    """A GPU without results."""
    bus_id = f"0000:0{number}:00.0"
    return ComputeDevice(index=number, name="NVIDIA L40S", bus_id=bus_id, failed=failed, failure="torch")


@pytest.mark.parametrize(
    ("failed", "verdict", "cause", "code"),
    [
        ("stuck", Verdict.FAIL, "wedged-driver", "compute.work-stuck"),
        ("cuda-error", Verdict.FAIL, None, "compute.cuda-error"),
        ("crashed", Verdict.UNKNOWN, None, "compute.process-crashed"),
        ("no-memory", Verdict.UNKNOWN, None, "compute.no-memory"),
        ("not-started", Verdict.UNKNOWN, None, "compute.torch-rejects-gpu"),
        ("no-process", Verdict.UNKNOWN, "host-resources", "compute.no-process"),
        ("defect", Verdict.UNKNOWN, None, "compute.engine-failed"),
        ("missing-package", Verdict.UNKNOWN, None, "compute.torch-missing"),
    ],
)
def test_a_device_without_results_is_a_finding_with_a_code(failed, verdict, cause, code):
    (finding,) = about([empty(0, failed)], "compute")

    assert (finding.verdict, finding.cause, finding.code) == (verdict, cause, code)


def test_a_missing_package_is_one_finding_for_all():
    (finding,) = evaluate([empty(number, "missing-package") for number in range(4)])

    assert (finding.subject, finding.seen) == ("host", "compute unknown: package torch is not installed")
