"""Whatever machine.txt holds, and however it changes: the library answers, or refuses, and never guesses or dies."""

import ctypes
import threading

import pytest

from gpucheck.simulator.compiler import compile_library
from gpucheck.simulator.nvml.library import exports
from tests.simulator.helpers import DRIVER, SANITIZED, handle, library_of, run_sanitized, sanitizer

SUCCESS, NOT_SUPPORTED, UNKNOWN = 0, 3, 999
HEAD = "profile = made-up\ngpu.count = 1\ngpu.0.name = Any\n"


@pytest.fixture(scope="module")
def machine(tmp_path_factory, cache):
    """A machine directory and the initialized library that reads it."""
    folder = tmp_path_factory.mktemp("table")
    with library_of(folder, cache) as library:
        assert library.nvmlInit_v2() == SUCCESS
        yield folder, library
        library.nvmlShutdown()


def put(folder, content):
    """As a writer does: a new file in the old one's place."""
    (folder / "new").write_bytes(content if isinstance(content, bytes) else content.encode())
    (folder / "new").replace(folder / "machine.txt")


def name_of(library, index=0):
    """(return code, name) of a GPU."""
    device, buffer = ctypes.c_void_p(), ctypes.create_string_buffer(96)
    library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device))
    return library.nvmlDeviceGetName(device, buffer, 96), buffer.value


def power(library):
    device, value = ctypes.c_void_p(), ctypes.c_uint(77)
    library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
    return library.nvmlDeviceGetPowerUsage(device, ctypes.byref(value)), value.value


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        ("12", (SUCCESS, 12)),
        ("0x1a", (SUCCESS, 26)),
        ("!15", (15, 77)),
        ("many", (UNKNOWN, 77)),
        ("", (UNKNOWN, 77)),
        ("4+nan/s", (SUCCESS, 4)),
        ("4+1e300/s", (SUCCESS, 4)),
        ("4+-5/s", (SUCCESS, 4)),
        ("99999999999999999999999", (SUCCESS, 0xFFFFFFFF)),
    ],
)
def test_values(machine, value, answer):
    folder, library = machine
    put(folder, f"{HEAD}gpu.0.power.usage_mw = {value}\n")

    assert power(library) == answer


def test_value_under_load_holds_only_then(machine, monkeypatch):
    folder, library = machine
    put(folder, f"{HEAD}gpu.0.power.usage_mw = 1\ngpu.0.power.usage_mw.load = 9\n")
    assert power(library) == (SUCCESS, 1)
    monkeypatch.setenv("GPUCHECK_SIMULATOR_LOAD", "1")
    assert power(library) == (SUCCESS, 9)
    monkeypatch.setenv("GPUCHECK_SIMULATOR_LOAD", "")
    assert power(library) == (SUCCESS, 1)


@pytest.mark.parametrize("damage", ["", "# being written\n", "gpu.0.name = Other", "no table at all\n"])
def test_file_without_a_machine_in_it_changes_nothing(machine, damage):
    """Empty, or half written: the values are still those of before."""
    folder, library = machine
    put(folder, HEAD)
    assert name_of(library) == (SUCCESS, b"Any")
    put(folder, damage)
    assert name_of(library) == (SUCCESS, b"Any")
    (folder / "machine.txt").unlink()
    assert name_of(library) == (SUCCESS, b"Any")
    (folder / "machine.txt").mkdir()
    assert name_of(library) == (SUCCESS, b"Any")
    (folder / "machine.txt").rmdir()


def test_same_size_in_the_same_second_is_another_file(machine):
    folder, library = machine
    for name in (b"Aaa", b"Bbb", b"Aaa"):
        put(folder, HEAD.replace("Any", name.decode()))
        assert name_of(library) == (SUCCESS, name)


def test_one_call_never_mixes_two_machines(machine):
    """Total, reserved and used come from one table, whichever it was."""
    folder, library = machine
    tables = [
        f"{HEAD}gpu.0.memory.total = {n}00\ngpu.0.memory.reserved = {n}0\ngpu.0.memory.used = {n}\n" for n in (1, 2)
    ]
    put(folder, tables[0])
    device, memory = handle(library), (ctypes.c_ulonglong * 5)()
    stop = threading.Event()

    def switch():
        while not stop.is_set():
            for table in tables:
                put(folder, table)

    thread = threading.Thread(target=switch)
    thread.start()
    seen = set()
    for _ in range(1000):
        memory[0] = 0x02000028
        assert library.nvmlDeviceGetMemoryInfo_v2(device, memory) == SUCCESS
        seen.add(tuple(memory[1:]))
    stop.set()
    thread.join()

    assert seen <= {(100, 10, 89, 1), (200, 20, 178, 2)}


def test_library_has_no_memory_error(activate, tmp_path):
    """The calls of a client under the address and undefined-behaviour sanitizers, with the tightest buffers."""
    activate("p100-pcie-x2")
    runtime = sanitizer()
    compile_library(tmp_path, exports(DRIVER), SANITIZED).rename(tmp_path / f"libnvidia-ml.so.{DRIVER}")
    (tmp_path / "libnvidia-ml.so.1").symlink_to(f"libnvidia-ml.so.{DRIVER}")
    program = (
        "import pynvml\n"
        "pynvml.nvmlInit()\n"
        "for i in range(pynvml.nvmlDeviceGetCount()):\n"
        "    h = pynvml.nvmlDeviceGetHandleByIndex(i)\n"
        "    pynvml.nvmlDeviceGetName(h); pynvml.nvmlDeviceGetPciInfo(h); pynvml.nvmlDeviceGetCpuAffinity(h, 1)\n"
        "    pynvml.nvmlDeviceGetMemoryInfo(h, pynvml.nvmlMemory_v2); pynvml.nvmlDeviceGetFieldValues(h, [91, 94])\n"
        "    pynvml.nvmlDeviceGetComputeRunningProcesses(h)\n"
        "pynvml.nvmlShutdown()\nprint('done')\n"
    )
    run_sanitized(runtime, tmp_path, program)


def test_what_a_compiler_that_is_ended_leaves_is_in_the_folder_of_the_library(tmp_path):
    """cc removes its temporary files on SIGTERM, not on SIGKILL."""
    compile_library(tmp_path, exports(DRIVER), compiler=("sh", "-c", 'touch "$TMPDIR/cc.s"'))

    assert (tmp_path / "cc.s").exists()
