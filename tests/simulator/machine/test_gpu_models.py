"""Every GPU model through the real pynvml: what its architecture has is reported, the rest is not supported."""

import dataclasses

import pynvml
import pytest

from gpucheck import simulator
from gpucheck.host.nvml.reading import read_nvml
from gpucheck.model import NvmlReading
from gpucheck.simulator.answers import answers
from gpucheck.simulator.data import HERE
from gpucheck.simulator.machine import Link, build
from gpucheck.simulator.machine.profile import gpu_model
from tests.simulator.helpers import answering, code_of

MODELS = sorted(path.stem for path in (HERE / "gpus").glob("*.yml"))
NOT_SUPPORTED = 3
TURING, AMPERE, ADA, HOPPER = 6, 7, 8, 9
GEFORCE = 5


@pytest.fixture(params=MODELS)
def gpu(request, activate, nvml_on, tmp_path):
    """(model, handle): two GPUs of the model in the box of two P100, cabled where it has NVLink."""
    made = activate("p100-pcie-x2")
    profile = simulator.load("p100-pcie-x2")
    machine, model = build(profile, profile.driver.state()), gpu_model(request.param)
    ports = model.nvlink.links if model.nvlink else 0
    for index, one in enumerate(machine.gpus):
        other = machine.gpus[1 - index].function.bus_id
        links = [Link(True, 0, other, (1 - index, port)) for port in range(ports)]
        function = dataclasses.replace(one.function, ids=f"10de:{model.device_id}")
        machine.gpus[index] = dataclasses.replace(one, model=model, links=links, function=function)
    return model, nvml_on(answering(tmp_path, made, answers(machine)))[0]


def supported(call, *arguments):
    """Whether the call succeeds. Any code but NOT_SUPPORTED is an error of the simulator."""
    code = code_of(getattr(pynvml, call), *arguments)
    assert code in (0, NOT_SUPPORTED)
    return code == 0


def test_what_the_architecture_has_is_supported_and_nothing_else(gpu):
    model, handle = gpu
    counts_errors = model.ecc and model.ecc_enabled

    assert supported("nvmlDeviceGetNvLinkState", handle, 0) == (model.nvlink is not None)
    assert supported("nvmlDeviceGetEccMode", handle) == model.ecc
    assert supported("nvmlDeviceGetTotalEccErrors", handle, 1, 1) == counts_errors
    sram = pynvml.NVML_MEMORY_LOCATION_SRAM
    assert supported("nvmlDeviceGetMemoryErrorCounter", handle, 1, 1, sram) == (
        counts_errors and model.architecture >= TURING
    )
    assert supported("nvmlDeviceGetRemappedRows", handle) == model.row_remap
    assert supported("nvmlDeviceGetRetiredPagesPendingStatus", handle) == model.retired_pages
    assert supported("nvmlDeviceGetMigMode", handle) == model.mig
    assert supported("nvmlDeviceGetFanSpeed", handle) == model.fan
    assert supported("nvmlDeviceGetSerial", handle) == (model.brand != GEFORCE)
    assert supported("nvmlDeviceGetMarginTemperature", handle) == (model.architecture >= ADA)
    assert supported("nvmlDeviceGetRepairStatus", handle) == (model.architecture >= HOPPER)


def test_error_counters_of_nvlink_5_are_fields_and_of_older_ones_calls(gpu):
    model, handle = gpu
    if model.nvlink is None:
        pytest.skip("no NVLink")
    fields = pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_CRC, pynvml.NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS
    old, new = (
        value.nvmlReturn == 0 for value in pynvml.nvmlDeviceGetFieldValues(handle, [(field, 0) for field in fields])
    )

    assert (old, new) == (model.nvlink.version < 7, model.nvlink.version >= 7)
    assert supported("nvmlDeviceGetNvLinkErrorCounter", handle, 0, 2) == old


def test_limits_are_those_of_the_model(gpu):
    model, handle = gpu
    thresholds = {
        "shutdown": pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN,
        "slowdown": pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN,
        "memory": pynvml.NVML_TEMPERATURE_THRESHOLD_MEM_MAX,
        "operating": pynvml.NVML_TEMPERATURE_THRESHOLD_GPU_MAX,
    }
    for name, which in thresholds.items():
        limit = getattr(model.thermal, name)
        if limit is None:
            assert not supported("nvmlDeviceGetTemperatureThreshold", handle, which)
        else:
            assert pynvml.nvmlDeviceGetTemperatureThreshold(handle, which) == limit
    watts = [value // 1000 for value in pynvml.nvmlDeviceGetPowerManagementLimitConstraints(handle)]
    assert tuple(watts) == model.power_range_w
    assert pynvml.nvmlDeviceGetName(handle) == model.name
    assert pynvml.nvmlDeviceGetPciInfo(handle).pciDeviceId == int(model.device_id, 16) << 16 | 0x10DE
    assert pynvml.nvmlDeviceGetArchitecture(handle) == model.architecture
    assert pynvml.nvmlDeviceGetBrand(handle) == model.brand
    assert pynvml.nvmlDeviceGetMemoryInfo(handle).total == model.memory_mib << 20


def test_everything_that_gpucheck_asks_is_answered_or_not_supported(gpu):
    """No odd refusal: neither UNKNOWN nor INVALID_ARGUMENT nor a function that is not there."""
    reading = read_nvml(lambda call, subject: None)

    assert isinstance(reading, NvmlReading)
    assert len(reading.gpus) == 2
    assert {(gap.call, gap.code) for gap in reading.gaps if gap.code != NOT_SUPPORTED} <= {
        ("nvmlSystemGetProcessName", pynvml.NVML_ERROR_NOT_FOUND)
    }
