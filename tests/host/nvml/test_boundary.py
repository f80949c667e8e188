"""What NVML libraries of others answered, as the binding hands it over: one bad answer costs that answer alone."""

import ctypes
from itertools import product

import pynvml
import pytest

from gpucheck.host.nvml.calls import normal_bus_id, plain
from gpucheck.host.nvml.reading import read_nvml
from gpucheck.model import DEFECT, NvmlFailure, NvmlReading
from tests.shared import sampled


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
CALLED = (
    *("nvmlDeviceGetHandleByIndex", "nvmlDeviceGetPciInfo", "nvmlDeviceGetName", "nvmlDeviceGetMemoryInfo"),
    *("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetFieldValues", "nvmlDeviceGetTopologyCommonAncestor"),
    *("nvmlDeviceGetP2PStatus", "nvmlDeviceGetGpuFabricInfoV", "nvmlSystemGetDriverVersion"),
    *("nvmlSystemGetNVMLVersion", "nvmlDeviceGetNvLinkState", "nvmlDeviceGetSerial", "nvmlDeviceGetRemappedRows"),
    "nvmlDeviceGetEccMode",
)
ERRORS = [
    AttributeError("module 'pynvml' has no attribute 'c_nvmlGpuFabricInfo_v2_t'"),
    UnicodeDecodeError("utf-8", b"caf\xe9", 3, 4, "unexpected end of data"),
    ValueError("not enough values to unpack"),
    pynvml.NVMLLibraryMismatchError("Unversioned function called"),
    ctypes.ArgumentError("argument 1"),
    KeyError(7),
]


PAIRS = list(product(CALLED, ERRORS))


# Each call with one error, and the errors in turn.
@pytest.mark.parametrize(("call", "error"), sampled(PAIRS, range(0, len(PAIRS), len(ERRORS) + 1)))
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
