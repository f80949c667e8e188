"""Refusals and slow answers: what the real pynvml makes of each, call by call."""

import time

import pynvml
import pytest

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
