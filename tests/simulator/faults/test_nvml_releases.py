"""Libraries of older driver branches: the functions of their time, and what the real pynvml makes of it."""

import ctypes

import pynvml
import pytest

from gpucheck import simulator
from gpucheck.simulator.live import STAND_INS
from gpucheck.simulator.nvml.library import OWN, exports
from tests.simulator.helpers import DRIVER, exported, python, write


@pytest.mark.parametrize(("branch", "answer"), [(450, "NVMLLibraryMismatchError"), (550, "[]")])
def test_the_binding_meets_a_missing_function(activate, branch, answer):
    """In a process of its own, as the loader keeps the library that this one has."""
    machine = activate("p100-pcie-x2", [f"nvml-release:branch={branch}"])
    program = (
        "import pynvml; pynvml.nvmlInit(); gpu = pynvml.nvmlDeviceGetHandleByIndex(0)\n"
        "try: print(pynvml.nvmlDeviceGetComputeRunningProcesses(gpu))\n"
        "except Exception as error: print(type(error).__name__)\n"
    )

    assert python(program, LD_LIBRARY_PATH=str(machine / "lib")) == answer


def test_switching_the_release_leaves_a_running_program_alone(tmp_path, monkeypatch, cache):
    """It keeps the functions that it has loaded; what starts afterwards finds those of the old release."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("GPUCHECK_SIMULATOR", str(tmp_path / "machine"))
    simulator.make(simulator.load("p100-pcie-x2"), tmp_path / "machine", (), STAND_INS)
    file = tmp_path / "machine/lib/libnvidia-ml.so.1"
    running = ctypes.CDLL(str(file))
    whole = exported(file)
    simulator.switch(tmp_path / "machine", ["nvml-release:branch=450"])

    assert running.nvmlInit_v2() == 0
    assert running.nvmlDeviceGetMemoryInfo_v2(None, None) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    running.nvmlShutdown()
    assert exported(file) == {one.name for one in exports("450")} | {OWN}
    simulator.switch(tmp_path / "machine", [])
    assert exported(file) == whole
    names = [f"{library}.so.{version}" for library in ("libcuda", "libnvidia-ml") for version in ("1", DRIVER)]
    assert sorted(path.name for path in file.parent.iterdir()) == names


def test_a_library_that_a_package_brought_is_not_changed(tmp_path):
    release = ["nvml-release:branch=470"]
    with pytest.raises(ValueError, match="was installed by a package"):
        simulator.switch(write(tmp_path / "machine"), release)
    with pytest.raises(ValueError, match="comes with a package that is not installed yet"):
        write(tmp_path / "bare", driver=None, faults=release)
