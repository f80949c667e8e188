"""Checks of how a GPU is: a healthy one gets no complaint, one broken value is named with its cause."""

import msgspec
import pytest

from gpucheck.checks.gpu import (
    clock_limit,
    compute_mode,
    memory_errors,
    mig,
    persistence,
    power_limit,
    processes,
    throttle,
)
from gpucheck.checks.nvlink import errors as nvlink_errors
from gpucheck.checks.p2p import status as p2p_status
from gpucheck.checks.pcie import bar1
from gpucheck.model import EccCounts, GpuProcess, NvmlGap, RetiredPages, RowRemap
from tests.checks.judging import FAIL, PASS, SKIP, WARN, judge, with_health
from tests.fakes import facts
from tests.machines import h100, p100, reading

CHECKS = (
    bar1,
    clock_limit,
    compute_mode,
    memory_errors,
    mig,
    nvlink_errors,
    p2p_status,
    persistence,
    power_limit,
    processes,
    throttle,
)
PENDING = RowRemap(corrected=0, uncorrected=1, pending=True, failed=False)
FAILED = msgspec.structs.replace(PENDING, failed=True)
RETIRED = RetiredPages(single_bit=0, double_bit=1, pending=True)


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.NAME)
@pytest.mark.parametrize("gpu", [p100, h100])
def test_healthy_gpus_get_no_complaint(check, gpu):
    """On the old and on the new generation."""
    found = judge(check, facts(nvml=reading(with_health(gpu(0)), with_health(gpu(1)))))

    assert {finding.verdict for finding in found} <= {PASS, SKIP}


BRAKE, HOT = ("hw-slowdown", "hw-power-brake"), ("hw-slowdown", "hw-thermal")
ECC_NOW, ECC_EVER = EccCounts(volatile_uncorrected=1), EccCounts(aggregate_uncorrected=3)
SHARED_BY_NONE = "exclusive-process"
LEAVES_MIG = {"mig": True, "mig_pending": False}


@pytest.mark.parametrize(
    ("check", "changes", "verdict", "cause", "seen"),
    [
        (memory_errors, {"ecc_counts": ECC_NOW}, FAIL, "ecc-uncorrected", "1 uncorrectable ECC error (volatile)"),
        (memory_errors, {"ecc_counts": ECC_EVER}, WARN, "ecc-uncorrected", "3 uncorrectable ECC errors (aggregate)"),
        (memory_errors, {"row_remap": PENDING}, WARN, "row-remap", "row remapping pending"),
        (memory_errors, {"row_remap": FAILED}, FAIL, "row-remap", "row remapping failed"),
        (memory_errors, {"retired_pages": RETIRED}, WARN, "row-remap", "page retirement pending"),
        (memory_errors, {"recovery_action": "reboot"}, FAIL, "gpu-reset-required", "recovery action reboot"),
        (memory_errors, {"ecc_pending": False}, WARN, None, "ECC change pending (now on, off after reset)"),
        (throttle, {"clocks_event_reasons": HOT}, FAIL, "throttled", "clock event reasons hw-slowdown, hw-thermal"),
        (throttle, {"clocks_event_reasons": BRAKE}, FAIL, "throttled", f"clock event reasons {', '.join(BRAKE)}"),
        (throttle, {"clocks_event_reasons": ("sw-thermal",)}, WARN, "throttled", "clock event reasons sw-thermal"),
        (throttle, {"temperature_c": 86, "temperature_margin_c": 4}, WARN, "throttled", "86 C, 4 C below slowdown"),
        (power_limit, {"power_limit_w": 350.0}, WARN, "power-limit-lowered", 350.0),
        (clock_limit, {"application_clock_mhz": 1200}, WARN, "clock-limited", 1200),
        (persistence, {"persistence": False}, WARN, "persistence-off", "persistence mode off"),
        (
            compute_mode,
            {"compute_mode": SHARED_BY_NONE},
            WARN,
            "compute-mode-exclusive",
            f"compute mode {SHARED_BY_NONE}",
        ),
        (compute_mode, {"compute_mode": "prohibited"}, FAIL, "compute-mode-exclusive", "compute mode prohibited"),
        (mig, {"mig": True, "mig_pending": True}, WARN, "mig-enabled", "MIG enabled"),
        (mig, {"mig_pending": True}, WARN, "mig-enabled", "MIG change pending (now off, on after reset)"),
        (mig, LEAVES_MIG, WARN, "mig-enabled", "MIG change pending (now on, off after reset)"),
        (processes, {"processes": (GpuProcess(pid=7, kind="compute"),)}, WARN, "gpu-busy", 1),
    ],
)
def test_one_broken_value_is_named_with_its_cause(check, changes, verdict, cause, seen):
    """On the GPU that has it and nowhere else; the headline is the observed value with unit and noun."""
    found = judge(check, facts(nvml=reading(with_health(h100(0)), with_health(h100(1), **changes))))
    complaints = [finding for finding in found if finding.verdict is not PASS]

    assert [(f.verdict, f.cause, f.subject, f.seen) for f in complaints] == [(verdict, cause, "gpu:0000:2b:00.0", seen)]


@pytest.mark.parametrize("reasons", [("sw-power-cap",), ("app-clocks",), ()])
def test_what_is_normal_under_load_is_no_throttling(reasons):
    """A software power cap is how a busy GPU runs."""
    (finding,) = judge(throttle, facts(nvml=reading(with_health(h100(0), clocks_event_reasons=reasons))))

    assert finding.verdict is PASS


def test_pass_of_memory_errors_names_only_what_was_reported():
    """A GPU without row remapping has none pending, and is not called free of it."""
    health = {"row_remap": None, "retired_pages": None}
    gap = NvmlGap(call="nvmlDeviceGetRemappedRows", subject="gpu:0000:1b:00.0", code=3, name="NotSupported")
    nvml = msgspec.structs.replace(reading(with_health(h100(0), **health)), gaps=(gap,))

    (finding,) = judge(memory_errors, facts(nvml=nvml))

    assert (finding.verdict, finding.seen) == (PASS, "0 uncorrectable ECC errors")


@pytest.mark.parametrize(
    ("reasons", "code"),
    [
        (BRAKE, "gpu.power-brake"),
        (HOT, "gpu.hardware-thermal-slowdown"),
        (("hw-slowdown",), "gpu.hardware-slowdown"),
        (("sw-thermal",), "gpu.software-thermal-slowdown"),
    ],
)
def test_each_reason_of_throttling_is_a_code(reasons, code):
    """A power brake is not cooled away."""
    (finding,) = judge(throttle, facts(nvml=reading(with_health(h100(0), clocks_event_reasons=reasons))))

    assert finding.code == code
