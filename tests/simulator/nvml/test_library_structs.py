"""Structs with a version: the right one is filled to its size and no further, another one is refused untouched."""

import ctypes

import pytest

from tests.simulator.helpers import handle

SUCCESS, INVALID_ARGUMENT, WRONG_VERSION = 0, 2, 25
# name, size, version, arguments after the struct, about the host
STRUCTS = [
    ("nvmlDeviceGetMemoryInfo_v2", 40, 2, (), False),
    ("nvmlDeviceGetTemperatureV", 12, 1, (), False),
    ("nvmlDeviceGetMarginTemperature", 8, 1, (), False),
    ("nvmlDeviceGetAddressingMode", 8, 1, (), False),
    ("nvmlDeviceGetRepairStatus", 12, 1, (), False),
    ("nvmlDeviceGetNvLinkInfo", 8, 1, (), False),
    ("nvmlDeviceGetPciInfoExt", 64, 1, (), False),
    ("nvmlDeviceGetRunningProcessDetailList", 24, 1, (), False),
    ("nvmlDeviceGetGpuFabricInfoV", 36, 2, (), False),
    ("nvmlDeviceGetGpuFabricInfoV", 40, 3, (), False),
    ("nvmlSystemGetConfComputeSettings", 20, 1, (), True),
    ("nvmlSystemGetDriverBranch", 84, 1, (80,), True),
]


@pytest.fixture
def library(activate):
    """The library of one H200, which has all of these, initialised."""
    library = ctypes.CDLL(str(activate("h200-x1") / "lib/libnvidia-ml.so.1"))
    assert library.nvmlInit_v2() == SUCCESS
    yield library
    library.nvmlShutdown()


@pytest.mark.parametrize(("name", "size", "version", "more", "of_host"), STRUCTS)
def test_struct_version_is_checked_and_its_size_kept(library, name, size, version, more, of_host):
    before = () if of_host else (handle(library),)
    right = size | version << 24
    for stated, wanted in ((right, SUCCESS), (right + 1, WRONG_VERSION), (size, WRONG_VERSION), (0, WRONG_VERSION)):
        buffer = ctypes.create_string_buffer(stated.to_bytes(4, "little") + b"\0" * (size - 4) + b"#" * 16)
        untouched = buffer.raw
        # Where there is nothing to tell, all zero is what a healthy GPU answers.
        assert getattr(library, name)(*before, buffer, *more) == wanted
        assert buffer.raw[size : size + 16] == b"#" * 16
        if wanted != SUCCESS:
            assert buffer.raw == untouched
    assert getattr(library, name)(*before, None, *more) == INVALID_ARGUMENT


def test_old_forms_of_calls_fill_their_own_smaller_structs(library):
    """What a client built with an old header calls: 52 bytes of PCI info, 16 of a process."""
    device, count = ctypes.c_void_p(), ctypes.c_uint()
    assert library.nvmlDeviceGetHandleByIndex(0, ctypes.byref(device)) == SUCCESS
    assert (library.nvmlDeviceGetCount(ctypes.byref(count)), count.value) == (SUCCESS, 1)
    for name in ("nvmlDeviceGetPciInfo", "nvmlDeviceGetPciInfo_v2"):
        buffer = ctypes.create_string_buffer(b"\0" * 52 + b"#" * 16)
        assert getattr(library, name)(device, buffer) == SUCCESS
        assert buffer.raw[:16].rstrip(b"\0") == b"0000:00:05.0"
        assert buffer.raw[52:68] == b"#" * 16
