"""Refusals and slow answers: what the real pynvml makes of each, call by call."""

import ctypes
import os
import time
from pathlib import Path

import pynvml
import pytest

from gpucheck import simulator
from gpucheck.simulator.nvml.library import all_exports, exports
from tests.simulator.helpers import DRIVER, code_of, handle, library_of, write

NO_PERMISSION, LOST, UNKNOWN, UNHEARD_OF = 4, 15, 999, 4242


# ---- nvml-refuse ----


@pytest.fixture
def every_call(tmp_path, cache):
    """The library with NVML started, its machine, a code of its own for each function, and the handles of both GPUs."""
    names = [one.name for one in exports(DRIVER) if not one.name.startswith(("nvmlInit", "nvmlErrorString"))]
    codes = {name: 1000 + place for place, name in enumerate(names)}
    machine = tmp_path / "machine"
    with library_of(machine, cache) as library:
        assert library.nvmlInit_v2() == 0
        yield library, machine, codes, [handle(library, index) for index in range(2)]
        write(machine)
        assert library.nvmlShutdown() == 0


def test_every_function_refuses_with_the_code_that_it_is_given(every_call):
    library, machine, codes, gpus = every_call
    write(machine, faults=[f"nvml-refuse:call={name},code={code}" for name, code in codes.items()])

    assert {name: getattr(library, name)(gpus[0], None, None, None, None) for name in codes} == codes


def test_every_question_about_a_gpu_refuses_for_that_gpu_alone(every_call):
    """But those that look a GPU up by what it is called: they have no handle yet."""
    library, machine, codes, gpus = every_call
    of_gpu = {one.name for one in all_exports() if one.of_gpu and "GetHandleBy" not in one.name}
    chosen = {name: code for name, code in codes.items() if name in of_gpu}
    assert len(chosen) > 200
    write(machine, faults=[f"nvml-refuse:call={name},code={code},gpu=1" for name, code in chosen.items()])

    answers = [{name: getattr(library, name)(gpu, None, None, None, None) for name in chosen} for gpu in gpus]
    assert answers[1] == chosen
    assert not [name for name, code in answers[0].items() if code >= min(chosen.values())]


def test_a_name_without_its_version_means_every_version(nvml):
    gpu, _ = nvml("p100-pcie-x2", "nvml-refuse:call=nvmlDeviceGetMemoryInfo,code=4")

    assert code_of(pynvml.nvmlDeviceGetMemoryInfo, gpu) == NO_PERMISSION
    assert code_of(pynvml.nvmlDeviceGetMemoryInfo, gpu, pynvml.nvmlMemory_v2) == NO_PERMISSION


def test_a_name_with_its_version_means_that_version(nvml):
    gpu, _ = nvml("p100-pcie-x2", "nvml-refuse:call=nvmlDeviceGetMemoryInfo_v2,code=4")

    assert code_of(pynvml.nvmlDeviceGetMemoryInfo, gpu) == 0
    assert code_of(pynvml.nvmlDeviceGetMemoryInfo, gpu, pynvml.nvmlMemory_v2) == NO_PERMISSION


def test_a_code_that_no_header_names_reaches_the_caller(nvml):
    gpu, _ = nvml("p100-pcie-x2", f"nvml-refuse:call=nvmlDeviceGetName,code={UNHEARD_OF}")

    assert code_of(pynvml.nvmlDeviceGetName, gpu) == UNHEARD_OF


@pytest.mark.parametrize(
    "find", ["nvmlDeviceGetHandleByIndex", "nvmlDeviceGetHandleByUUID", "nvmlDeviceGetHandleByPciBusId"]
)
def test_a_handle_is_refused_for_one_gpu(activate, find):
    activate("p100-pcie-x2", [f"nvml-refuse:call={find},code=15,gpu=1"])
    machine = simulator.load("p100-pcie-x2")
    bus_ids = [device.bus_id for device in machine.devices if device.gpu]
    pynvml.nvmlInit()
    try:
        words = {
            "nvmlDeviceGetHandleByIndex": [0, 1],
            "nvmlDeviceGetHandleByPciBusId": [bus_id.encode() for bus_id in bus_ids],
            "nvmlDeviceGetHandleByUUID": [line.partition(" = ")[2].encode() for line in uuids()],
        }[find]
        assert [code_of(getattr(pynvml, find), word) for word in words] == [0, LOST]
    finally:
        pynvml.nvmlShutdown()


def uuids() -> list[str]:
    text = Path(os.environ["GPUCHECK_SIMULATOR"], "machine.txt").read_text()
    return sorted(line for line in text.splitlines() if line.partition(" = ")[0].endswith(".uuid"))


@pytest.mark.parametrize("name", ["NVML_FI_DEV_PCIE_REPLAY_COUNTER", "94"])
def test_a_field_is_refused_by_name_and_by_number(nvml, name):
    first, second = nvml("p100-pcie-x2", f"nvml-refuse:call={name},code=999,gpu=1")
    wanted = [pynvml.NVML_FI_DEV_PCIE_REPLAY_COUNTER, pynvml.NVML_FI_DEV_POWER_INSTANT]

    assert [value.nvmlReturn for value in pynvml.nvmlDeviceGetFieldValues(first, wanted)] == [0, 0]
    assert [value.nvmlReturn for value in pynvml.nvmlDeviceGetFieldValues(second, wanted)] == [UNKNOWN, 0]


def test_a_field_of_a_link_is_refused_for_every_link(nvml):
    gpus = nvml("dgx1-v100", "nvml-refuse:call=NVML_FI_DEV_NVLINK_GET_SPEED,code=4")
    wanted = [(pynvml.NVML_FI_DEV_NVLINK_GET_SPEED, link) for link in range(6)]

    assert {value.nvmlReturn for gpu in gpus for value in pynvml.nvmlDeviceGetFieldValues(gpu, wanted)} == {
        NO_PERMISSION
    }


def test_a_pair_is_refused_where_one_of_it_is(nvml):
    gpus = nvml("l40s-x4", "nvml-refuse:call=nvmlDeviceGetP2PStatus,code=4,gpu=2")

    refused = {
        (a, b)
        for a in range(4)
        for b in range(4)
        if a != b and code_of(pynvml.nvmlDeviceGetP2PStatus, gpus[a], gpus[b], 0) == NO_PERMISSION
    }
    assert refused == {(a, b) for a in range(4) for b in range(4) if a != b and 2 in (a, b)}


@pytest.mark.parametrize("name", ["nvmlInit", "nvmlInit_v2", "nvmlInitWithFlags"])
@pytest.mark.parametrize("code", [9, 18, UNKNOWN])
def test_nvml_does_not_start(activate, name, code):
    library = ctypes.CDLL(
        str(activate("p100-pcie-x2", [f"nvml-refuse:call={name},code={code}"]) / "lib/libnvidia-ml.so.1")
    )

    function = getattr(library, name)
    assert function(0) == code
    assert library.nvmlDeviceGetCount_v2(ctypes.byref(ctypes.c_uint())) == pynvml.NVML_ERROR_UNINITIALIZED


def test_nvml_does_not_end(tmp_path, monkeypatch, cache):
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("GPUCHECK_SIMULATOR", str(tmp_path / "machine"))
    simulator.make(simulator.load("p100-pcie-x2"), tmp_path / "machine", ["nvml-refuse:call=nvmlShutdown,code=999"], ())
    library = ctypes.CDLL(str(tmp_path / "machine/lib/libnvidia-ml.so.1"))
    assert (library.nvmlInit_v2(), library.nvmlShutdown()) == (0, UNKNOWN)
    simulator.switch(tmp_path / "machine", [])
    assert (library.nvmlShutdown(), library.nvmlShutdown()) == (0, pynvml.NVML_ERROR_UNINITIALIZED)


# ---- nvml-slow ----


def test_the_first_handle_of_each_gpu_takes_long(activate):
    """Not the second of the same GPU, and the first again after NVML was shut down."""
    activate("p100-pcie-x2", ["nvml-slow:seconds=0.2"])
    for _ in range(2):
        pynvml.nvmlInit()
        took = []
        for index in (0, 1, 0, 1):
            clock = time.monotonic()
            pynvml.nvmlDeviceGetHandleByIndex(index)
            took.append(time.monotonic() - clock)
        pynvml.nvmlShutdown()
        assert min(took[:2]) >= 0.2
        assert sum(took[2:]) < 0.2
