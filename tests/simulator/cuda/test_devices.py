"""Which GPUs a program sees, what they are, and what keeps it from them."""

import os
import re
import subprocess

import pytest

from gpucheck import simulator
from tests.shared import sampled
from tests.simulator.helpers import python, write

COUNT = """
status = code("cuInit", 0)
print(status, code("cuDeviceGetCount") if status else ok("cuDeviceGetCount"))
"""
NAMES = """
ok("cuInit", 0)
for device in range(ok("cuDeviceGetCount")):
    name = ok("cuDeviceGetName", 64, device).rstrip(b"\\0 ").decode()
    place = ok("cuDeviceGetPCIBusId", 32, device).rstrip(b"\\0 ").decode()
    assert int(ok("cuDeviceGetByPCIBusId", place.lower().encode())) == device
    print(name, place)
"""


def test_faster_gpus_come_first_unless_the_bus_decides(run):
    fast = [line.split(" 0000")[0] for line in run("mixed-x4", NAMES).splitlines()]
    bus = [line.split(" 0000")[0] for line in run("mixed-x4", NAMES, CUDA_DEVICE_ORDER="PCI_BUS_ID").splitlines()]

    assert fast == ["NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 3090", "Tesla T4"]
    assert bus == ["NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 4090", "Tesla T4"]


@pytest.mark.parametrize(
    ("visible", "count"),
    sampled([("0", "0 1"), ("1,0", "0 2"), ("0,-1,1", "0 1"), ("0,0", "100 3"), ("", "100 3")], (1, 3)),
)
def test_visible_devices(run, visible, count):
    assert run("p100-pcie-x2", COUNT, CUDA_VISIBLE_DEVICES=visible) == count


def test_a_gpu_is_chosen_by_the_beginning_of_its_uuid(run, activate):
    machine = activate("p100-pcie-x2")
    uuid = re.search(r"gpu.1.uuid = (GPU-\w+)", (machine / "machine.txt").read_text())

    assert run("p100-pcie-x2", NAMES, CUDA_VISIBLE_DEVICES=uuid[1]) == "Tesla P100-PCIE-16GB 0000:05:00.0"


def test_a_process_sees_one_mig_device(run):
    shown = run("a100-mig-x8", NAMES + "print(ok('cuDeviceTotalMem', 0) < 80 << 30)")

    assert re.fullmatch(r"NVIDIA A100\S* MIG \S+ 0000:[0-9A-F]{2}:00.0\nTrue|NVIDIA A100.* MIG .*\nTrue", shown)


@pytest.mark.parametrize(
    ("fault", "status"),
    sampled(
        [
            ("node-missing:node=nvidia-uvm", 999),
            ("node-missing:node=nvidiactl", 100),
            ("driver-not-loaded", 100),
            ("driver-mismatch", 803),
            ("fabric-manager-stopped", 802),
            ("fabric-in-progress", 802),
        ],
        (0, 3, 4),
    ),
)
def test_what_keeps_cuda_from_starting(run, fault, status):
    profile = "hgx-h100-x8" if fault.startswith("fabric") else "p100-pcie-x2"
    assert run(profile, COUNT, fault) == f"{status} 3"


def test_a_gpu_whose_node_is_missing_is_not_there(run):
    assert run("p100-pcie-x2", NAMES, "node-missing:node=nvidia0") == "Tesla P100-PCIE-16GB 0000:05:00.0"


@pytest.mark.parametrize("fault", ["gpu-lost:gpu=0", "compute-exclusive:gpu=0,mode=prohibited", "busy"])
def test_a_gpu_that_cannot_be_used_refuses_a_context(run, fault):
    """46: busy or unavailable. The other GPU works on."""
    faults = ("compute-exclusive:gpu=0", "busy-gpu:gpu=0") if fault == "busy" else (fault,)

    shown = run(
        "p100-pcie-x2",
        "ok('cuInit', 0); print(code('cuDevicePrimaryCtxRetain', 0), code('cuDevicePrimaryCtxRetain', 1))",
        *faults,
    )

    assert shown == "46 0"


def test_exclusive_process_mode_lets_one_process_in(run, tmp_path):
    """And the next one when it has ended."""
    code = """
import os, subprocess, sys
ok("cuInit", 0)
print(code("cuDevicePrimaryCtxRetain", 0), flush=True)
if "SECOND" not in os.environ:
    second = [sys.executable, __file__]
    print(subprocess.run(second, env={**os.environ, "SECOND": "1"}, capture_output=True, text=True).stdout.strip())
    ok("cuDevicePrimaryCtxRelease", 0)
    print(subprocess.run(second, env={**os.environ, "SECOND": "1"}, capture_output=True, text=True).stdout.strip())
"""
    assert run("p100-pcie-x2", code, "compute-exclusive").split() == ["0", "46", "0"]


def test_gpus_are_counted_without_a_machine_as_on_a_host_without_a_driver(run):
    assert run("p100-pcie-x2", COUNT, GPUCHECK_SIMULATOR="/nowhere") == "100 3"


def test_attributes(run):
    """HBM3 of the H100: 5120 bits at 2619 MHz, twice a clock, are 3352 GB/s, as in its data sheet."""
    code = """
ok("cuInit", 0)
names = cu.CUdevice_attribute
for name in ("COMPUTE_CAPABILITY_MAJOR", "MULTIPROCESSOR_COUNT", "PCI_BUS_ID", "ASYNC_ENGINE_COUNT", "HOST_NUMA_ID",
             "CLOCK_RATE", "MEMORY_CLOCK_RATE", "GLOBAL_MEMORY_BUS_WIDTH"):
    print(ok("cuDeviceGetAttribute", getattr(names, "CU_DEVICE_ATTRIBUTE_" + name), 7), end=" ")
print(ok("cuDeviceTotalMem", 7) >> 20, code("cuDeviceGet", 8), code("cuDeviceTotalMem", -1))
"""
    assert run("hgx-h100-x8", code) == "9 132 219 3 1 1980000 2619000 5120 81559 101 101"


@pytest.mark.parametrize("names", ["cuStreamWaitValue32", "cuMemAlloc,cuStreamWaitValue32"])
def test_an_entry_point_can_be_missing(run, names):
    """As in a driver older than it."""
    code = """
try:
    cu.cuStreamWaitValue32(0, 0, 0, 0)
except RuntimeError as error:
    print(error)
"""
    assert "cuStreamWaitValue32" in run("p100-pcie-x2", code, GPUCHECK_CUDA_WITHOUT=names)


def test_entry_points_are_those_of_the_drivers_version(run):
    """cuEventElapsedTime got its second form with CUDA 12.8."""
    code = """
library = ctypes.CDLL("libcuda.so.1")
def ask(name, version):
    found, status = ctypes.c_void_p(), ctypes.c_int()
    result = library.cuGetProcAddress_v2(name, ctypes.byref(found), version, ctypes.c_uint64(0), ctypes.byref(status))
    return result, status.value, found.value
old, new = ask(b"cuEventElapsedTime", 2000), ask(b"cuEventElapsedTime", 12080)
print(old[0], new[0], old[2] == new[2], *ask(b"cuMemGetInfo", 3010)[:2], *ask(b"cuGraphCreate", 12000)[:2])
"""
    assert run("p100-pcie-x2", code) == "0 0 False 500 2 500 1"
    assert run("p100-pcie-x2", code, GPUCHECK_CUDA_VERSION="12020") == "0 0 True 500 2 500 1"


@pytest.mark.parametrize(
    ("loaded", "fabric", "status"),
    [("580.95.05", "completed", 0), ("580.178.04", "completed", 803), ("580.95.05", "in-progress", 802)],
)
def test_a_library_of_a_package_has_the_version_of_its_file(tmp_path, cache, loaded, fabric, status):
    """As on a lab host: packages install driver and library, and fabric manager trains the NVSwitches later."""
    machine, installed = tmp_path / "machine", tmp_path / "usr/lib64"
    write(machine, "hgx-h100-x8", driver=None)
    table = (machine / "machine.txt").read_text().replace("fabric.state = in-progress", f"fabric.state = {fabric}")
    (machine / "machine.txt").write_text(table)
    module = machine / "root/sys/module/nvidia"
    module.mkdir(parents=True)
    (module / "version").write_text(f"{loaded}\n")
    simulator.build_cuda_library(installed, "580.95.05")
    code = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"
    printed = python(code, GPUCHECK_SIMULATOR=str(machine), LD_LIBRARY_PATH=str(installed))

    assert int(printed) == status


def test_a_child_of_a_process_that_used_cuda_has_no_cuda(run):
    """3: not initialized, from cuInit on. A child of a process that had not begun starts as any other."""
    code = """
import os
def child(do):
    pid = os.fork()
    if pid == 0:
        os._exit(do())
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
before = child(lambda: code("cuInit", 0))
made = contexts()
print(before, child(lambda: code("cuInit", 0)), child(lambda: code("cuDeviceGetCount")),
      child(lambda: code("cuCtxSetCurrent", made[0])), child(lambda: code("cuMemAlloc", 4096)),
      code("cuMemAlloc", 4096))
"""
    assert run("p100-pcie-x2", code) == "0 3 3 3 3 0"


def test_stream_waits_of_cuda_8_are_off(run):
    """cuStreamWaitValue32 without suffix needs NVreg_EnableStreamMemOPs=1; what CUDA 11.7 gave the name does not."""
    code = """
made = contexts()
address, library = int(ok("cuMemHostAlloc", 64, 1)), ctypes.CDLL("libcuda.so.1")
def wait(version):
    found, status = ctypes.c_void_p(), ctypes.c_int()
    library.cuGetProcAddress_v2(
        b"cuStreamWaitValue32", ctypes.byref(found), version, ctypes.c_uint64(0), ctypes.byref(status)
    )
    types = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint)
    return ctypes.CFUNCTYPE(*types)(found.value)(None, address, 0, 0)
print(wait(8000), wait(11060), wait(11070), wait(13000))
"""
    assert run("p100-pcie-x2", code) == "801 801 0 0"


def test_a_framework_is_told_in_one_line_that_the_gpu_is_simulated(tmp_path, activate):
    """CUDA's runtime says "API call is not supported in the installed CUDA driver"; bindings look up all names."""
    source, program = tmp_path / "runtime.c", tmp_path / "runtime"
    source.write_text(
        "int cuGetProcAddress_v2(const char *, void *, int, unsigned long, int *);\n"
        'int main(void) { void *f; for (int i = 0; i < 2; i++) cuGetProcAddress_v2("cuGraphCreate", &f, 12000, 0, 0);\n'
        'return cuGetProcAddress_v2("cuInit", &f, 12000, 0, 0); }\n'
    )
    library = activate("p100-pcie-x2", ()) / "lib"
    subprocess.run(["cc", source, "-o", program, library / "libcuda.so.1"], check=True)

    done = subprocess.run(
        [program], env={**os.environ, "LD_LIBRARY_PATH": str(library)}, capture_output=True, text=True
    )

    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "gpucheck: the simulated CUDA driver has copies only, no cuGraphCreate: PyTorch, TensorFlow and other "
        "frameworks are not supported on a simulated GPU"
    ]
