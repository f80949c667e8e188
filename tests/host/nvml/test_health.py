"""How a GPU is, from NVML's answers handed in by call: names, units, and that a refusal costs only its own value."""

from types import SimpleNamespace

import pynvml
import pytest

from gpucheck.host.nvml.calls import Calls
from gpucheck.host.nvml.health import MARGIN, THRESHOLD, margin_c, read_health
from gpucheck.model import (
    EccCounts,
    GpuProcess,
    Health,
    PcieErrors,
    RackPlace,
    RetiredPages,
    RowRemap,
    SpareRows,
    SramErrors,
)

LONG_LONG = 3
FIELDS = {
    pynvml.NVML_FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS: 7,
    pynvml.NVML_FI_DEV_PCIE_COUNT_NON_FATAL_ERROR: 1,
    pynvml.NVML_FI_DEV_PCIE_COUNT_FATAL_ERROR: 0,
    pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION: 4,
    pynvml.NVML_FI_DEV_PCIE_L0_TO_RECOVERY_COUNTER: 5,
    pynvml.NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT: 0,
    pynvml.NVML_FI_DEV_C2C_LINK_COUNT: 0,
}


def filled(reference, **values):
    """What a call that fills a structure does, and what it returns."""
    for name, value in values.items():
        setattr(reference._obj, name, value)
    return pynvml.NVML_SUCCESS


ECC = {(0, 0): 3, (1, 0): 1, (0, 1): 30, (1, 1): 2}
ANSWERS = {
    "nvmlDeviceGetSerial": lambda _: b"1650123456789",
    "nvmlDeviceGetVbiosVersion": lambda _: "96.00.5E.00.01",
    "nvmlDeviceGetPersistenceMode": lambda _: 0,
    "nvmlDeviceGetComputeMode": lambda _: 3,
    "nvmlDeviceGetMigMode": lambda _: [0, 1],
    "nvmlDeviceGetEccMode": lambda _: [1, 1],
    "nvmlDeviceGetTotalEccErrors": lambda _, error, counter: ECC[error, counter],
    "nvmlDeviceGetRemappedRows": lambda _: (1, 2, 1, 0),
    "nvmlDeviceGetRepairStatus": lambda _: [0, 1],
    "nvmlDeviceGetUnrepairableMemoryFlag_v1": lambda _: 1,
    "nvmlDeviceValidateInforom": lambda _: None,
    "nvmlDeviceGetRetiredPagesPendingStatus": lambda _: 1,
    "nvmlDeviceGetRetiredPages": lambda _, cause: [0x1000] * (cause + 1),
    "nvmlDeviceGetPcieReplayCounter": lambda _: 12,
    "nvmlDeviceGetCurrentClocksEventReasons": lambda _: 0x4 | 0x80 | 0x400,
    "nvmlDeviceGetTemperature": lambda _, sensor: 61,
    "nvmlDeviceGetTemperatureThreshold": lambda _, which: {0: 95, 1: 92}[which],
    "nvmlDeviceGetMarginTemperature": lambda _: 28,
    "nvmlDeviceGetPowerUsage": lambda _: 412_500,
    "nvmlDeviceGetPowerManagementLimit": lambda _: 600_000,
    "nvmlDeviceGetEnforcedPowerLimit": lambda _: 500_000,
    "nvmlDeviceGetPowerManagementDefaultLimit": lambda _: 700_000,
    "nvmlDeviceGetPowerManagementLimitConstraints": lambda _: [200_000, 700_000],
    "nvmlDeviceGetClockInfo": lambda _, clock: 1980,
    "nvmlDeviceGetMaxClockInfo": lambda _, clock: 1990,
    "nvmlDeviceGetApplicationsClock": lambda _, clock: 1755,
    "nvmlDeviceGetDefaultApplicationsClock": lambda _, clock: 1980,
    "nvmlDeviceGetUtilizationRates": lambda _: SimpleNamespace(gpu=37, memory=5),
    "nvmlDeviceGetAddressingMode": lambda _: 1,
    "nvmlDeviceGetComputeRunningProcesses": lambda _: [SimpleNamespace(pid=4711, usedGpuMemory=1 << 30)],
    "nvmlDeviceGetGraphicsRunningProcesses": lambda _: [SimpleNamespace(pid=12, usedGpuMemory=None)],
    "nvmlDeviceGetSramEccErrorStatus": lambda _, out: filled(out, volatileUncParity=2, bThresholdExceeded=1),
    "nvmlDeviceGetRowRemapperHistogram": lambda _: SimpleNamespace(max=640, high=4, partial=3, low=2, none=1),
    "nvmlDeviceGetPlatformInfo": lambda _, out: filled(out, chassisSerialNumber=b"1820", slotNumber=14, moduleId=2),
    "nvmlDeviceGetVirtualizationMode": lambda _: 2,
    "nvmlDeviceGetGridLicensableFeatures": lambda _: SimpleNamespace(
        isGridLicenseSupported=1, licensableFeaturesCount=1, gridLicensableFeatures=[SimpleNamespace(featureState=0)]
    ),
    "nvmlDeviceGetGspFirmwareMode": lambda _: [1, 1],
    "nvmlDeviceGetGspFirmwareVersion": lambda _: b"580.178.04",
    "nvmlSystemGetProcessName": lambda pid: {4711: b"/usr/bin/python3", 12: "Xorg"}[pid],
}
WHOLE = Health(
    serial="1650123456789",
    vbios="96.00.5E.00.01",
    persistence=False,
    compute_mode="exclusive-process",
    mig=False,
    mig_pending=True,
    ecc=True,
    ecc_pending=True,
    ecc_counts=EccCounts(volatile_corrected=3, volatile_uncorrected=1, aggregate_corrected=30, aggregate_uncorrected=2),
    row_remap=RowRemap(corrected=1, uncorrected=2, pending=True, failed=False),
    retired_pages=RetiredPages(single_bit=1, double_bit=2, pending=True),
    spare_rows=SpareRows(every=640, most=4, some=3, few=2, none=1),
    repairs_pending=("TPC",),
    unrepairable=True,
    inforom_valid=True,
    sram=SramErrors(
        volatile_corrected=0,
        volatile_parity=2,
        volatile_sec_ded=0,
        aggregate_corrected=0,
        aggregate_parity=0,
        aggregate_sec_ded=0,
        threshold_exceeded=True,
    ),
    pcie_errors=PcieErrors(replays=12, correctable=7, non_fatal=1, fatal=0, recoveries=5),
    recovery_action="drain-and-reset",
    clocks_event_reasons=("sw-power-cap", "hw-power-brake", "0x400"),
    temperature_c=61,
    temperature_slowdown_c=92,
    temperature_shutdown_c=95,
    temperature_margin_c=28,
    power_w=412.5,
    power_limit_w=600.0,
    power_enforced_w=500.0,
    power_default_w=700.0,
    power_min_w=200.0,
    power_max_w=700.0,
    sm_clock_mhz=1980,
    max_sm_clock_mhz=1990,
    application_clock_mhz=1755,
    default_application_clock_mhz=1980,
    memory_used_bytes=5,
    gpu_utilization_percent=37,
    addressing_mode="hmm",
    rack=RackPlace(chassis_serial="1820", slot=14, tray=0, host_id=0, module_id=2),
    virtualization="vgpu",
    licensed=False,
    gsp_firmware="580.178.04",
    nvlink_bandwidth="half",
    processes=(
        GpuProcess(pid=4711, kind="compute", memory_bytes=1 << 30, name="/usr/bin/python3"),
        GpuProcess(pid=12, kind="graphics", memory_bytes=None, name="Xorg"),
    ),
)


def field(number):
    code = 0 if number in FIELDS else pynvml.NVML_ERROR_NOT_SUPPORTED
    value = SimpleNamespace(uiVal=FIELDS.get(number, 99), ullVal=FIELDS.get(number, 99))
    return SimpleNamespace(fieldId=number, nvmlReturn=code, valueType=LONG_LONG, value=value)


@pytest.fixture
def health(monkeypatch):
    """Health and gaps where NVML refuses these calls and knows these fields."""

    def health(*refused, code=pynvml.NVML_ERROR_NOT_SUPPORTED):
        def refuse(*_):
            raise pynvml.NVMLError(code)

        for call, answer in ANSWERS.items():
            monkeypatch.setattr(pynvml, call, refuse if call in refused else answer)
        monkeypatch.setattr(
            pynvml,
            "nvmlDeviceGetFieldValues",
            refuse if "nvmlDeviceGetFieldValues" in refused else lambda _, wanted: [field(n) for n, _ in wanted],
        )
        monkeypatch.setattr(pynvml, "nvmlSystemGetNvlinkBwMode", lambda: 3)
        calls = Calls(lambda call, subject: None)
        return read_health(calls, "gpu:0000:3b:00.0", object(), 5), calls.gaps

    return health


def test_every_answer_has_its_place_and_unit(health):
    assert health() == (WHOLE, [])


def test_a_corrupted_inforom_is_an_answer(health):
    seen, gaps = health("nvmlDeviceValidateInforom", code=pynvml.NVML_ERROR_CORRUPTED_INFOROM)

    assert (seen.inforom_valid, gaps) == (False, [])


@pytest.mark.parametrize("call", [*ANSWERS, "nvmlDeviceGetFieldValues"])
def test_a_refused_call_costs_only_its_own_value(health, call):
    """And it leaves a gap with its code: a value that is not reported is None, never zero or "no"."""
    seen, gaps = health(call, code=pynvml.NVML_ERROR_NO_PERMISSION)
    names = [name for name in Health.__struct_fields__ if getattr(seen, name) != getattr(WHOLE, name)]

    assert {gap.call for gap in gaps} == {call}
    assert {gap.code for gap in gaps} == {pynvml.NVML_ERROR_NO_PERMISSION}
    assert 1 <= len(names) <= 2
    assert {gap.subject for gap in gaps} <= {"gpu:0000:3b:00.0", "process:4711", "process:12"}


@pytest.mark.parametrize(
    ("margin", "slowdown", "limit", "celsius", "left"),
    [
        (59, -2, None, 28, 61),  # H200, which refuses the limit: nvidia-smi-q-h200-idle.yml
        (28, None, None, 61, 28),  # a driver that does not report the slowdown margin
        (28, 2**32 - 3, None, 61, 31),  # one that reports it without a sign
        (-1, -2, 92, 61, 1),  # software may lower the clocks, the hardware does not yet
        (-2, -2, 92, 61, 0),
        (None, None, 92, 61, 31),  # Ampere and older
        (None, None, 92, 95, -3),
        (None, None, 92, None, None),
        (None, None, None, 61, None),
        (None, None, 0, 61, None),  # of a board without the limit
    ],
)
def test_degrees_that_are_left(margin, slowdown, limit, celsius, left):
    answers = {MARGIN: margin, THRESHOLD: limit}

    assert margin_c(lambda call, *_: answers[call], celsius, slowdown) == left


def test_a_number_without_a_name_is_told_by_number(health, monkeypatch):
    monkeypatch.setitem(FIELDS, pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, 12)

    assert health()[0].recovery_action == "unknown-12"
