"""The C library itself, through ctypes: error codes, buffers, versions, what it does when its table changes."""

import ctypes
from pathlib import Path

import pytest

from gpucheck import simulator
from tests.simulator.helpers import exported, handle, library_of

(SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND, INSUFFICIENT_SIZE) = (0, 1, 2, 3, 6, 7)
DRIVER_NOT_LOADED, MISMATCH, UNKNOWN = 9, 18, 999


@pytest.fixture
def machine(tmp_path):
    """The directory of the library's machine, to be changed under it."""
    return tmp_path / "machine"


@pytest.fixture
def library(machine, cache):
    """The library for that machine, not yet initialized, shut down again afterwards."""
    with library_of(machine, cache) as library:
        yield library
        while library.nvmlShutdown() == SUCCESS:
            pass


@pytest.fixture
def gpu(library):
    """A handle of GPU 0 of the initialised library."""
    assert library.nvmlInit_v2() == SUCCESS
    return handle(library, 0)


def edit(machine, **changes):
    """Set keys of machine.txt the way a writer does: a new file in its place."""
    lines = [line.partition(" = ") for line in (machine / "machine.txt").read_text().splitlines()]
    table = {key: value for key, _, value in lines if value} | changes
    new = machine / "new"
    new.write_text("".join(f"{key} = {value}\n" for key, value in table.items()))
    new.replace(machine / "machine.txt")


def test_nothing_answers_before_init_or_after_shutdown(library):
    count = ctypes.c_uint(77)
    assert library.nvmlDeviceGetCount_v2(ctypes.byref(count)) == UNINITIALIZED
    assert library.nvmlInitWithFlags(0) == SUCCESS
    assert library.nvmlDeviceGetCount_v2(ctypes.byref(count)) == SUCCESS
    assert library.nvmlShutdown() == SUCCESS
    assert library.nvmlDeviceGetCount_v2(ctypes.byref(count)) == UNINITIALIZED
    assert library.nvmlShutdown() == UNINITIALIZED
    assert count.value == 2


def test_shutdown_counts_the_inits(library):
    assert [library.nvmlInit_v2(), library.nvmlInit_v2(), library.nvmlShutdown()] == [SUCCESS] * 3
    assert library.nvmlDeviceGetCount_v2(ctypes.byref(ctypes.c_uint())) == SUCCESS


def test_null_is_an_invalid_argument_everywhere(library, gpu):
    """Every function of a GPU that takes only where to put the answer; none may write to NULL."""
    names = [
        name
        for name in exported(library._name)
        if name.startswith("nvmlDeviceGet") and not ("Handle" in name or "Count" in name)
    ]
    null = ctypes.c_void_p(None)
    assert len(names) > 50
    for name in names:
        assert getattr(library, name)(gpu, null, null, null, null) in (INVALID_ARGUMENT, NOT_SUPPORTED), name
    for name in ("nvmlDeviceGetCount_v2", "nvmlSystemGetDriverVersion", "nvmlSystemGetCudaDriverVersion"):
        assert getattr(library, name)(null, 80) == INVALID_ARGUMENT, name


@pytest.mark.parametrize("wrong", [None, 1, 2**62])
def test_wrong_handle_is_an_invalid_argument(library, gpu, wrong):
    name = ctypes.create_string_buffer(96)
    assert library.nvmlDeviceGetName(ctypes.c_void_p(wrong), name, 96) == INVALID_ARGUMENT
    assert library.nvmlDeviceGetP2PStatus(gpu, ctypes.c_void_p(wrong), 0, ctypes.byref(ctypes.c_uint())) == 2
    beyond = ctypes.c_void_p(gpu.value + 2)
    assert library.nvmlDeviceGetName(beyond, name, 96) == INVALID_ARGUMENT


def test_text_that_does_not_fit_is_not_written(library, gpu):
    """The name has 20 characters and its NUL: 21 fit, 20 do not, and nothing beyond may be touched."""
    buffer = ctypes.create_string_buffer(b"#" * 40)
    assert library.nvmlDeviceGetName(gpu, buffer, 20) == INSUFFICIENT_SIZE
    assert buffer.raw[:40] == b"#" * 40
    assert library.nvmlDeviceGetName(gpu, buffer, 21) == SUCCESS
    assert buffer.raw[:40] == b"Tesla P100-PCIE-16GB\0" + b"#" * 19


def test_the_firmware_version_has_no_length_that_its_caller_states(machine, library, gpu):
    edit(machine, **{"gpu.0.gsp.version": "580.178.04"})
    buffer = ctypes.create_string_buffer(64)
    # A third argument stands for what the register happens to hold.
    assert library.nvmlDeviceGetGspFirmwareVersion(gpu, buffer, 0) == SUCCESS
    assert buffer.value == b"580.178.04"


def test_cpu_set_that_is_too_small(library, gpu):
    """CPUs 0-13 and 28-41 need one word; with none there is nowhere to write."""
    words = (ctypes.c_ulong * 2)(7, 7)
    assert library.nvmlDeviceGetCpuAffinity(gpu, 0, words) == INVALID_ARGUMENT
    assert library.nvmlDeviceGetCpuAffinity(gpu, 1, words) == SUCCESS
    assert list(words) == [0x3FFF | 0x3FFF << 28, 7]


def test_lookups_that_find_nothing(library, gpu):
    device = ctypes.c_void_p()
    assert library.nvmlDeviceGetHandleByIndex_v2(2, ctypes.byref(device)) == INVALID_ARGUMENT
    assert library.nvmlDeviceGetHandleByUUID(b"GPU-0", ctypes.byref(device)) == NOT_FOUND
    assert library.nvmlDeviceGetHandleByPciBusId_v2(b"0000:7f:00.0", ctypes.byref(device)) == NOT_FOUND
    assert library.nvmlDeviceGetHandleByPciBusId_v2(b"not a bus id", ctypes.byref(device)) == INVALID_ARGUMENT


def test_processes_are_counted_before_they_are_listed(library, machine, gpu):
    """NULL queries the count; a buffer that is too small is reported, and not written to."""
    edit(machine, **{"gpu.0.process.compute.count": 2, "gpu.0.process.compute.1.pid": 41})
    count = ctypes.c_uint(0)
    assert library.nvmlDeviceGetComputeRunningProcesses_v3(gpu, ctypes.byref(count), None) == INSUFFICIENT_SIZE
    assert count.value == 2
    buffer = (ctypes.c_uint * 18)(*[9] * 18)
    count.value = 1
    assert library.nvmlDeviceGetComputeRunningProcesses_v3(gpu, ctypes.byref(count), buffer) == INSUFFICIENT_SIZE
    assert (count.value, set(buffer)) == (2, {9})
    assert library.nvmlDeviceGetComputeRunningProcesses_v3(gpu, ctypes.byref(count), buffer) == SUCCESS
    assert (buffer[6], list(buffer[12:])) == (41, [9] * 6)


def test_changed_table_is_read_again_and_a_broken_one_is_not_used(library, machine, gpu, capfd):
    """A fault can be switched while a client runs; a file in the middle of being damaged changes nothing."""
    mode = ctypes.c_uint(9)
    assert library.nvmlDeviceGetComputeMode(gpu, ctypes.byref(mode)) == SUCCESS
    assert mode.value == 0
    text = (machine / "machine.txt").read_text()
    (machine / "machine.txt").write_text(text.replace("gpu.0.compute_mode = 0", "gpu.0.compute_mode = 3"))
    assert (library.nvmlDeviceGetComputeMode(gpu, ctypes.byref(mode)), mode.value) == (SUCCESS, 3)
    (machine / "machine.txt").write_text("nonsense\n")
    assert (library.nvmlDeviceGetComputeMode(gpu, ctypes.byref(mode)), mode.value) == (SUCCESS, 3)
    assert "machine.txt line 1: no '=' in it" in capfd.readouterr().err


def test_error_strings(library):
    library.nvmlErrorString.restype = ctypes.c_char_p
    assert library.nvmlErrorString(0) == b"Success"
    assert library.nvmlErrorString(18) == b"Driver/library version mismatch"
    assert library.nvmlErrorString(29) == b"Invalid state"
    assert library.nvmlErrorString(UNKNOWN) == library.nvmlErrorString(-1) == b"Unknown Error"


def test_version_comes_from_the_file_name(library, machine, tmp_path):
    """One compilation, another name: the loaded module is then of another version."""
    library = ctypes.CDLL(str(simulator.build_library(tmp_path / "other", "550.90.07")))
    assert library.nvmlInit_v2() == MISMATCH
    version = machine / "root/sys/module/nvidia/version"
    version.write_text("550.90.07\n")
    assert library.nvmlInit_v2() == SUCCESS
    words, cuda = ctypes.create_string_buffer(80), ctypes.c_int()
    assert library.nvmlSystemGetDriverVersion(words, 80) == SUCCESS
    assert library.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(cuda)) == SUCCESS
    assert (words.value, cuda.value) == (b"550.90.07", 12040)
    library.nvmlShutdown()


def test_without_a_machine_there_is_no_driver(library, monkeypatch):
    """The library never looks at the real /sys."""
    monkeypatch.delenv("GPUCHECK_SIMULATOR")
    if Path("/run/gpucheck-simulator/simulation.json").exists():
        pytest.skip("this host is a simulated one")
    assert library.nvmlInit_v2() == DRIVER_NOT_LOADED
