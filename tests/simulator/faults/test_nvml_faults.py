"""Each fault of the GPUs themselves, as the real pynvml reads it."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.simulator.helpers import code_of, write

THERMAL, BRAKE, CAP = 0x8 | 0x40, 0x8 | 0x80, 0x4
LOAD = "GPUCHECK_SIMULATOR_LOAD"


def field(gpu: Any, number: int, scope: int = 0) -> Any:
    """The value of a field in its own type. Raises NVMLError as its own return code says."""
    (value,) = pynvml.nvmlDeviceGetFieldValues(gpu, [(number, scope)])
    if value.nvmlReturn:
        raise pynvml.NVMLError(value.nvmlReturn)
    wide = value.valueType == pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
    return value.value.ullVal if wide else value.value.uiVal


def rises(read: Callable[[], int]) -> bool:
    """Two reads differ: the counter grows with time."""
    before, deadline = read(), time.monotonic() + 5
    while read() == before and time.monotonic() < deadline:
        time.sleep(0.01)
    return read() > before


def total(gpu: Any, counter: int, kind: int = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED) -> int:
    count: int = pynvml.nvmlDeviceGetTotalEccErrors(gpu, kind, counter)
    return count


def test_nvlink_errors_rise_on_one_link_and_in_the_total(nvml):
    first, second, *_ = nvml("dgx1-v100", "nvlink-errors:gpu=1,link=2,kind=replay,rate=1000")

    assert rises(lambda: pynvml.nvmlDeviceGetNvLinkErrorCounter(second, 2, pynvml.NVML_NVLINK_ERROR_DL_REPLAY))
    assert rises(lambda: field(second, pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY, 2))
    assert rises(lambda: field(second, pynvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_L2))
    assert rises(lambda: field(second, pynvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL))
    assert field(second, pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY, 3) == 0
    assert field(second, pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_CRC, 2) == 0
    assert field(first, pynvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL) == 0


def test_nvlink_that_is_down_has_neither_speed_nor_a_far_end(nvml):
    first, *_ = nvml("hgx-h100-x8", "nvlink-down:gpu=0,link=4")

    assert pynvml.nvmlDeviceGetNvLinkState(first, 4) == 0
    assert field(first, pynvml.NVML_FI_DEV_NVLINK_GET_STATE, 4) == 0
    assert field(first, pynvml.NVML_FI_DEV_NVLINK_GET_SPEED, 4) == 0
    assert code_of(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, first, 4) == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert field(first, pynvml.NVML_FI_DEV_NVLINK_GET_SPEED, 5) == 26562


def test_replays_rise_in_the_call_and_in_the_field(nvml):
    quiet, noisy = nvml("a100-pcie-x2-nvlink", "replay-rising:gpu=1,rate=1000")

    assert rises(lambda: pynvml.nvmlDeviceGetPcieReplayCounter(noisy))
    assert rises(lambda: field(noisy, pynvml.NVML_FI_DEV_PCIE_REPLAY_COUNTER))
    assert rises(lambda: field(noisy, pynvml.NVML_FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS))
    assert pynvml.nvmlDeviceGetPcieReplayCounter(quiet) == field(quiet, pynvml.NVML_FI_DEV_PCIE_REPLAY_COUNTER) == 0


@pytest.mark.parametrize(
    ("fault", "read", "idle", "busy"),
    [
        ("pcie-gen:gpu=0,gen=1", pynvml.nvmlDeviceGetCurrPcieLinkGeneration, 1, 1),
        ("pcie-gen:gpu=0,gen=1,when=load", pynvml.nvmlDeviceGetCurrPcieLinkGeneration, 5, 1),
        ("pcie-width:gpu=0,width=4", pynvml.nvmlDeviceGetCurrPcieLinkWidth, 4, 4),
        ("pcie-width:gpu=0,width=4,when=load", pynvml.nvmlDeviceGetCurrPcieLinkWidth, 16, 4),
    ],
)
def test_link_falls_back_always_or_under_load(nvml, monkeypatch, fault, read, idle, busy):
    """The maximum stays what it is, and so do the other GPUs. Sysfs shows the link as it is while nothing runs."""
    first, second, *_ = nvml("hgx-h100-x8", fault)
    healthy = read(second)
    device = Path(os.environ["GPUCHECK_SIMULATOR"]) / "root/sys/bus/pci/devices/0000:19:00.0"
    shown = {"gen": "current_link_speed", "width": "current_link_width"}["gen" if "gen" in fault else "width"]
    words = {1: "2.5 GT/s PCIe", 5: "32.0 GT/s PCIe", 4: "4", 16: "16"}

    assert (device / shown).read_text() == f"{words[idle]}\n"
    assert (read(first), healthy) == (idle, 5 if "gen" in fault else 16)
    assert pynvml.nvmlDeviceGetMaxPcieLinkGeneration(first) == 5
    assert pynvml.nvmlDeviceGetMaxPcieLinkWidth(first) == 16
    monkeypatch.setenv(LOAD, "1")
    assert (read(first), read(second)) == (busy, healthy)


@pytest.mark.parametrize(("status", "code"), [("CNS", 1), ("GNS", 2), ("TNS", 3), ("DR", 4), ("NS", 5)])
def test_p2p_status_holds_both_ways_and_leaves_nvlink_alone(nvml, status, code):
    gpus = nvml("hgx-h100-x8", f"p2p-status:pair=0-3,status={status}")

    for a, b in ((0, 3), (3, 0)):
        assert [pynvml.nvmlDeviceGetP2PStatus(gpus[a], gpus[b], n) for n in (0, 1, 2, 3, 4)] == [
            code, code, 0, code, code,
        ]  # fmt: skip
    assert pynvml.nvmlDeviceGetP2PStatus(gpus[0], gpus[1], 0) == 0


@pytest.mark.parametrize(("counter", "volatile", "aggregate"), [("volatile", 3, 3), ("aggregate", 0, 3)])
def test_uncorrected_errors_are_counted_where_they_belong(nvml, counter, volatile, aggregate):
    first, second, *_ = nvml("hgx-h100-x8", f"ecc-uncorrected:gpu=1,counter={counter},count=3,where=sram")

    assert [total(second, 0), total(second, 1)] == [volatile, aggregate]
    assert [total(second, span, pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED) for span in (0, 1)] == [0, 0]
    assert [total(first, 0), total(first, 1)] == [0, 0]
    by_place = [
        pynvml.nvmlDeviceGetMemoryErrorCounter(second, 1, 1, place)
        for place in (pynvml.NVML_MEMORY_LOCATION_DRAM, pynvml.NVML_MEMORY_LOCATION_SRAM)
    ]
    assert by_place == [0, 3]
    assert field(second, pynvml.NVML_FI_DEV_ECC_DBE_AGG_TOTAL) == 3


def test_pending_remap_asks_for_a_reset(nvml):
    first, second, *_ = nvml("hgx-a100-x8", "row-remap-pending:gpu=1")

    assert pynvml.nvmlDeviceGetRemappedRows(second) == (0, 1, 1, 0)
    assert field(second, pynvml.NVML_FI_DEV_REMAPPED_PENDING) == 1
    assert field(second, pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION) == 1
    assert pynvml.nvmlDeviceGetRemappedRows(first) == (0, 0, 0, 0)
    assert field(first, pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION) == 0


def test_before_ampere_a_page_is_retired_instead(nvml):
    first, second = nvml("p100-pcie-x2", "row-remap-pending:gpu=0")

    assert code_of(pynvml.nvmlDeviceGetRemappedRows, first) == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert pynvml.nvmlDeviceGetRetiredPagesPendingStatus(first) == 1
    assert len(pynvml.nvmlDeviceGetRetiredPages(first, 1)) == len(pynvml.nvmlDeviceGetRetiredPages_v2(first, 1)) == 1
    assert pynvml.nvmlDeviceGetRetiredPagesPendingStatus(second) == 0
    assert pynvml.nvmlDeviceGetRetiredPages(second, 1) == []


def test_failed_remap_has_no_spare_row_left(nvml):
    first, *_ = nvml("hgx-a100-x8", "row-remap-failed:gpu=0")

    assert pynvml.nvmlDeviceGetRemappedRows(first) == (0, 8, 0, 1)
    assert pynvml.nvmlDeviceGetRowRemapperHistogram(first).none == 1


def test_too_hot(nvml):
    (only,) = nvml("h200-x1", "throttle-thermal")
    slowdown = pynvml.nvmlDeviceGetTemperatureThreshold(only, pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)

    assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(only) == THERMAL
    assert pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(only) == THERMAL
    assert pynvml.nvmlDeviceGetTemperature(only, 0) == pynvml.nvmlDeviceGetTemperatureV(only, 0) > slowdown
    # One degree above the slowdown, which is two above the operating temperature that the margin counts to.
    assert pynvml.nvmlDeviceGetMarginTemperature(only) == -3
    assert pynvml.nvmlDeviceGetClockInfo(only, pynvml.NVML_CLOCK_SM) < pynvml.nvmlDeviceGetMaxClockInfo(only, 1)
    assert rises(lambda: field(only, pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN))
    assert rises(lambda: pynvml.nvmlDeviceGetViolationStatus(only, pynvml.NVML_PERF_POLICY_THERMAL).violationTime)


def test_too_hot_under_load_only(nvml, monkeypatch):
    first, second = nvml("p100-pcie-x2", "throttle-thermal:gpu=0,by=software,when=load")

    assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(first) == pynvml.nvmlClocksEventReasonGpuIdle
    monkeypatch.setenv(LOAD, "1")
    assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(first) == 0x20
    assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(second) == 0


def test_power_brake(nvml):
    first, second = nvml("p100-pcie-x2", "throttle-power-brake:gpu=1")

    assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(second) == BRAKE
    assert pynvml.nvmlDeviceGetClockInfo(second, pynvml.NVML_CLOCK_SM) == 332
    assert rises(lambda: field(second, pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN))
    assert pynvml.nvmlDeviceGetClockInfo(first, pynvml.NVML_CLOCK_SM) == 1328


def test_lowered_power_limit_caps_the_clocks_under_load(nvml, monkeypatch):
    (only,) = nvml("h200-x1", "power-limit:watts=350")

    assert pynvml.nvmlDeviceGetPowerManagementLimit(only) == pynvml.nvmlDeviceGetEnforcedPowerLimit(only) == 350_000
    assert pynvml.nvmlDeviceGetPowerManagementDefaultLimit(only) == 700_000
    assert pynvml.nvmlDeviceGetPowerManagementLimitConstraints(only) == [200_000, 700_000]
    assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(only) == pynvml.nvmlClocksEventReasonGpuIdle
    monkeypatch.setenv(LOAD, "1")
    assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(only) == CAP
    assert pynvml.nvmlDeviceGetPowerUsage(only) == 350_000


def test_load_is_seen_in_use_heat_and_power(nvml, monkeypatch):
    (only,) = nvml("h200-x1")
    idle = pynvml.nvmlDeviceGetPowerUsage(only), pynvml.nvmlDeviceGetTemperature(only, 0)
    monkeypatch.setenv(LOAD, "1")

    assert pynvml.nvmlDeviceGetUtilizationRates(only).gpu == 100
    assert (pynvml.nvmlDeviceGetPowerUsage(only), pynvml.nvmlDeviceGetTemperature(only, 0)) > idle
    assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(only) == 0


def test_modes_of_all_gpus_or_of_one(nvml):
    gpus = nvml(
        "hgx-a100-x8", "persistence-off", "compute-exclusive:gpu=2", "compute-exclusive:gpu=3,mode=prohibited",
        "mig-pending:gpu=1",
    )  # fmt: skip

    assert [pynvml.nvmlDeviceGetPersistenceMode(gpu) for gpu in gpus] == [0] * 8
    assert [pynvml.nvmlDeviceGetComputeMode(gpu) for gpu in gpus] == [0, 0, 3, 2, 0, 0, 0, 0]
    assert [pynvml.nvmlDeviceGetMigMode(gpu) for gpu in gpus[:2]] == [[0, 0], [0, 1]]


def test_busy_gpu_has_a_process_with_a_name(nvml):
    first, second = nvml("p100-pcie-x2", "busy-gpu:gpu=1,memory=2048,pid=4242,name=train.py")
    (process,) = pynvml.nvmlDeviceGetComputeRunningProcesses(second)

    assert (process.pid, process.usedGpuMemory) == (4242, 2048 << 20)
    assert (process.gpuInstanceId, process.computeInstanceId) == (0xFFFFFFFF, 0xFFFFFFFF)
    assert pynvml.nvmlDeviceGetComputeRunningProcesses_v2(second)[0].pid == 4242
    detail = pynvml.nvmlDeviceGetRunningProcessDetailList(second, pynvml.nvmlProcessDetailList_v1, 0)
    assert [one.pid for one in detail] == [4242]
    assert pynvml.nvmlSystemGetProcessName(4242) == "train.py"
    assert code_of(pynvml.nvmlSystemGetProcessName, 1) == pynvml.NVML_ERROR_NOT_FOUND
    assert pynvml.nvmlDeviceGetUtilizationRates(second).gpu == 97
    assert pynvml.nvmlDeviceGetProcessUtilization(second, 0)[0].smUtil == 97
    assert code_of(pynvml.nvmlDeviceGetProcessUtilization, first, 0) == pynvml.NVML_ERROR_NOT_FOUND
    assert pynvml.nvmlDeviceGetMemoryInfo(second).used - pynvml.nvmlDeviceGetMemoryInfo(first).used == 2048 << 20


def test_gpu_that_is_lost_while_a_client_runs(activate, nvml_on, tmp_path):
    """A fault is switched by writing the machine again; the client's handle is lost, the other GPU is not."""
    activate("p100-pcie-x2")
    machine = write(tmp_path / "machine")
    first, second = nvml_on(machine)
    events = pynvml.nvmlEventSetCreate()
    pynvml.nvmlDeviceRegisterEvents(second, pynvml.nvmlEventTypeXidCriticalError, events)
    assert code_of(pynvml.nvmlEventSetWait_v2, events, 1) == pynvml.NVML_ERROR_TIMEOUT

    write(machine, faults=["gpu-lost:gpu=1"])
    lost = pynvml.NVML_ERROR_GPU_IS_LOST
    for call in (pynvml.nvmlDeviceGetName, pynvml.nvmlDeviceGetPciInfo, pynvml.nvmlDeviceGetMemoryInfo):
        assert code_of(call, second) == lost
    assert code_of(pynvml.nvmlDeviceGetP2PStatus, first, second, 0) == lost
    assert code_of(pynvml.nvmlDeviceGetFieldValues, second, [91]) == lost
    assert code_of(pynvml.nvmlDeviceGetAccountingMode, second) == lost
    assert code_of(pynvml.nvmlEventSetWait_v2, events, 60_000) == lost
    assert pynvml.nvmlDeviceGetTopologyCommonAncestor(first, second) == pynvml.NVML_TOPOLOGY_SINGLE
    assert pynvml.nvmlDeviceGetName(first) == "Tesla P100-PCIE-16GB"

    write(machine)
    assert pynvml.nvmlDeviceGetName(second) == "Tesla P100-PCIE-16GB"
    pynvml.nvmlEventSetFree(events)
