"""What NVML libraries of others answered, as the binding hands it over: one bad answer costs that answer alone."""

import ctypes

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucheck.host.nvml.calls import Calls, normal_bus_id, plain
from gpucheck.host.nvml.reading import read_nvml
from gpucheck.model import DEFECT, NvmlFailure, NvmlReading


@pytest.fixture
def whole(reading):
    """The reading of a pair of P100 without an error."""
    return reading("p100-pcie-x2")


def changed(monkeypatch, call, answer):
    """Read the pair with one function of the binding replaced."""
    monkeypatch.setattr(pynvml, call, answer)
    return read_nvml(lambda call, subject: None)


def raises(error):
    def call(*_):
        raise error

    return call


NEEDED = ("nvmlInit", "nvmlDeviceGetCount")
CALLED = sorted(
    {"nvmlDeviceGetHandleByIndex", "nvmlDeviceGetPciInfo", "nvmlDeviceGetName", "nvmlDeviceGetMemoryInfo"}
    | {"nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetFieldValues", "nvmlDeviceGetTopologyCommonAncestor"}
    | {
        "nvmlDeviceGetP2PStatus",
        "nvmlDeviceGetGpuFabricInfoV",
        "nvmlSystemGetDriverVersion",
        "nvmlSystemGetNVMLVersion",
    }
    | {"nvmlDeviceGetNvLinkState", "nvmlDeviceGetSerial", "nvmlDeviceGetRemappedRows", "nvmlDeviceGetEccMode"}
)
ERRORS = [
    AttributeError("module 'pynvml' has no attribute 'c_nvmlGpuFabricInfo_v2_t'"),
    UnicodeDecodeError("utf-8", b"caf\xe9", 3, 4, "unexpected end of data"),
    ValueError("not enough values to unpack"),
    pynvml.NVMLLibraryMismatchError("Unversioned function called"),
    ctypes.ArgumentError("argument 1"),
    KeyError(7),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("call", CALLED)
def test_an_error_of_the_binding_is_a_gap_of_that_call_alone(whole, monkeypatch, call, error):
    seen = changed(monkeypatch, call, raises(error))

    assert isinstance(seen, NvmlReading)
    assert {gap.code for gap in seen.gaps if gap.call == call} == {DEFECT}
    assert all(gap.name.startswith(type(error).__name__) for gap in seen.gaps if gap.code == DEFECT)
    if call not in ("nvmlDeviceGetHandleByIndex", "nvmlDeviceGetPciInfo"):
        assert [gpu.pci_bus_id for gpu in seen.gpus] == [gpu.pci_bus_id for gpu in whole.gpus]
        assert seen.gpus[0].pcie == whole.gpus[0].pcie


@pytest.mark.parametrize("call", NEEDED)
def test_an_error_of_the_binding_in_a_call_that_all_else_needs_is_a_defect_and_names_the_call(whole, monkeypatch, call):
    failure = changed(monkeypatch, call, raises(ValueError("not a number")))

    assert isinstance(failure, NvmlFailure)
    assert (failure.call, failure.code, failure.name) == (call, DEFECT, "ValueError")


@pytest.mark.parametrize("text", [b"", b"\xff\xfe\x01", b"FFFFFFFF:FF:FF.0", b"not a bus id", b"0000:3b"])
def test_a_gpu_without_a_bus_id_is_a_gap_and_the_other_is_read(whole, monkeypatch, text):
    real = pynvml.nvmlDeviceGetPciInfo
    first = whole.gpus[0].pci_bus_id

    def call(handle):
        info = real(handle)
        if normal_bus_id(plain(info.busId)) == first:
            info.busId = text
        return info

    seen = changed(monkeypatch, "nvmlDeviceGetPciInfo", call)

    assert isinstance(seen, NvmlReading)
    assert [gpu.index for gpu in seen.gpus] == [1]
    assert [gap.subject for gap in seen.gaps if gap.call == "nvmlPciInfo_t.busId"] == ["gpu index 0"]


@given(st.binary(max_size=32))
def test_a_bus_id_is_as_linux_writes_it_or_none(raw):
    found = normal_bus_id(plain(raw))

    assert found is None or normal_bus_id(found) == found


def test_an_older_library_is_queried_its_own_way(whole, monkeypatch):
    """Drivers before 510 have no second memory structure and no third process list."""
    missing = pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    real = pynvml.nvmlDeviceGetMemoryInfo

    def memory(handle, version=None):
        if version:
            raise missing
        return real(handle)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetCurrentClocksEventReasons", raises(missing))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", raises(missing))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetGraphicsRunningProcesses", raises(missing))
    seen = changed(monkeypatch, "nvmlDeviceGetMemoryInfo", memory)

    assert isinstance(seen, NvmlReading)
    assert seen.gpus[0].memory_bytes == whole.gpus[0].memory_bytes
    assert seen.gpus[0].health.clocks_event_reasons == whole.gpus[0].health.clocks_event_reasons
    assert seen.gpus[0].health.processes == ()
    assert seen.gaps == whole.gaps


def test_a_refusal_that_is_not_absence_is_not_asked_again_another_way(whole, monkeypatch):
    seen = changed(monkeypatch, "nvmlDeviceGetCurrentClocksEventReasons", raises(pynvml.NVMLError(4)))

    assert isinstance(seen, NvmlReading)
    assert seen.gpus[0].health.clocks_event_reasons is None
    assert ("nvmlDeviceGetCurrentClocksEventReasons", 4) in {(gap.call, gap.code) for gap in seen.gaps}


def test_a_part_that_breaks_is_a_gap_of_its_own():
    calls = Calls(lambda call, subject: None)

    assert calls.part("health", "gpu:0000:04:00.0", lambda: 1 // 0, "instead") == "instead"
    assert [(gap.call, gap.subject, gap.code) for gap in calls.gaps] == [("health", "gpu:0000:04:00.0", DEFECT)]
