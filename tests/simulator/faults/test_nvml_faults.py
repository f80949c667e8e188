"""Faults of GPUs in what other NVML clients read and gpucheck does not; what gpucheck reads is the fault matrix's."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pynvml
import pytest

from tests.simulator.helpers import code_of


def field(name: str, scope: int = 0) -> Callable[[Any], Any]:
    """Read a field of a GPU in its own type."""

    def read(gpu: Any) -> Any:
        (value,) = pynvml.nvmlDeviceGetFieldValues(gpu, [(getattr(pynvml, f"NVML_FI_DEV_{name}"), scope)])
        assert value.nvmlReturn == pynvml.NVML_SUCCESS
        wide = value.valueType == pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
        return value.value.ullVal if wide else value.value.uiVal

    return read


def refuses(call: Callable[..., Any], *arguments: Any) -> Callable[[Any], int]:
    return lambda gpu: code_of(call, gpu, *arguments)


BUSY = "busy-gpu:gpu=1,memory=2048,pid=4242,name=train.py"
SRAM = pynvml.NVML_MEMORY_LOCATION_SRAM
ECC = "ecc-uncorrected:gpu=1,counter=aggregate,count=3,where=sram"
ERRORS = partial(pynvml.nvmlDeviceGetTotalEccErrors, errorType=pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED)


@pytest.mark.parametrize(
    ("profile", "fault", "read", "first", "second"),
    [
        ("hgx-h100-x8", "nvlink-down:gpu=0,link=4", field("NVLINK_GET_SPEED", 4), 0, 26562),
        ("hgx-h100-x8", ECC, partial(ERRORS, counterType=pynvml.NVML_VOLATILE_ECC), 0, 0),
        ("hgx-h100-x8", ECC, partial(ERRORS, counterType=pynvml.NVML_AGGREGATE_ECC), 0, 3),
        ("hgx-h100-x8", ECC, lambda gpu: pynvml.nvmlDeviceGetMemoryErrorCounter(gpu, 1, 1, SRAM), 0, 3),
        ("hgx-h100-x8", ECC, field("ECC_DBE_AGG_TOTAL"), 0, 3),
        ("hgx-a100-x8", "row-remap-pending:gpu=1", field("REMAPPED_PENDING"), 0, 1),
        ("hgx-a100-x8", "row-remap-failed:gpu=1", lambda gpu: pynvml.nvmlDeviceGetRowRemapperHistogram(gpu).none, 0, 1),
        ("p100-pcie-x2", "row-remap-pending:gpu=1", refuses(pynvml.nvmlDeviceGetRemappedRows), 3, 3),
        ("p100-pcie-x2", "row-remap-pending:gpu=1", lambda gpu: len(pynvml.nvmlDeviceGetRetiredPages(gpu, 1)), 0, 1),
        ("p100-pcie-x2", "throttle-power-brake:gpu=1", lambda gpu: pynvml.nvmlDeviceGetClockInfo(gpu, 1), 1328, 332),
        ("p100-pcie-x2", BUSY, lambda gpu: pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu, 0, 97),
        ("p100-pcie-x2", BUSY, refuses(pynvml.nvmlDeviceGetProcessUtilization, 0), 6, 0),
        ("p100-pcie-x2", BUSY, lambda gpu: len(pynvml.nvmlDeviceGetComputeRunningProcesses_v2(gpu)), 0, 1),
    ],
)
def test_a_fault_of_one_gpu_shows_on_that_one(nvml, profile, fault, read, first, second):
    one, other, *_ = nvml(profile, fault)

    assert (read(one), read(other)) == (first, second)


@pytest.mark.parametrize(
    ("profile", "fault", "read"),
    [
        ("dgx1-v100", "nvlink-errors:gpu=0,link=2,kind=replay,rate=1000", field("NVLINK_REPLAY_ERROR_COUNT_TOTAL")),
        ("dgx1-v100", "nvlink-errors:gpu=0,link=2,kind=replay,rate=1000", field("NVLINK_ERROR_DL_REPLAY", 2)),
        ("a100-pcie-x2-nvlink", "replay-rising:gpu=0,rate=1000", field("PCIE_REPLAY_COUNTER")),
        ("h200-x1", "throttle-thermal", field("CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN")),
        (
            "h200-x1",
            "throttle-thermal",
            lambda gpu: pynvml.nvmlDeviceGetViolationStatus(gpu, pynvml.NVML_PERF_POLICY_THERMAL).violationTime,
        ),
        ("h200-x1", "throttle-power-brake", field("CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN")),
    ],
)
def test_a_counter_rises_with_time(nvml, profile, fault, read):
    gpu, *_ = nvml(profile, fault)
    before = read(gpu)
    for _ in range(1000):
        if read(gpu) > before:
            return
        time.sleep(0.01)
    pytest.fail(f"{before} for ten seconds")
