"""Programs of others run on the simulated CUDA driver: cuda-core, numba-cuda, and one in C as deviceQueryDrv is.

make test-more installs both packages. NVIDIA's runtime (libcudart 12 and 13) does not run: before its first call it
asks cuGetExportTable for tables of functions, and what is in them is not published.
"""

import json
import subprocess
import sys

import pytest

PROGRAM_IN_C = r"""
#include <stdio.h>
#include <string.h>
typedef int device;
int cuInit(unsigned), cuDeviceGetCount(int *), cuDeviceGet(device *, int), cuDeviceGetName(char *, int, device);
int cuDeviceTotalMem_v2(size_t *, device), cuDeviceGetAttribute(int *, int, device), cuDriverGetVersion(int *);
int cuDeviceCanAccessPeer(int *, device, device);

int main(void)
{
    int version, count, number, other, value;
    const int attributes[] = {75, 76, 16, 13, 36, 37, 8, 10, 39, 1, 40, 32, 41}; /* CUdevice_attribute of cuda.h */
    if (cuInit(0) != 0 || cuDriverGetVersion(&version) != 0 || cuDeviceGetCount(&count) != 0)
        return 1;
    printf("%d %d\n", version, count);
    for (number = 0; number < count; number++) {
        char name[256];
        size_t bytes, place;
        device one, peer;
        if (cuDeviceGet(&one, number) != 0 || cuDeviceGetName(name, sizeof name, one) != 0 ||
            cuDeviceTotalMem_v2(&bytes, one) != 0)
            return 2;
        printf("%s %zu", name, bytes >> 20);
        for (place = 0; place < sizeof attributes / sizeof *attributes; place++) {
            if (cuDeviceGetAttribute(&value, attributes[place], one) != 0)
                return 3;
            printf(" %d", value);
        }
        for (other = 0; other < count; other++) {
            if (cuDeviceGet(&peer, other) != 0 || cuDeviceCanAccessPeer(&value, one, peer) != 0)
                return 4;
            printf(" peer%d=%d", other, value);
        }
        printf("\n");
    }
    return 0;
}
"""
CUDA_CORE = """
import json
from cuda.core import Device, LegacyPinnedMemoryResource
device = Device(0)
device.set_current()
stream = device.create_stream()
event = stream.record()
event.sync()
pinned = LegacyPinnedMemoryResource()
here, host, back = device.allocate(4096, stream=stream), pinned.allocate(4096), pinned.allocate(4096)
bytes_of = lambda buffer: (ctypes.c_char * 4096).from_address(int(buffer.handle))
bytes_of(host)[:] = bytes(range(256)) * 16
here.copy_from(host, stream=stream)
here.copy_to(back, stream=stream)
stream.sync()
capability = device.compute_capability
print(json.dumps([device.name, [capability.major, capability.minor], stream.priority,
                  bytes_of(back)[:] == bytes_of(host)[:]]))
"""
NUMBA = """
import json
import numpy
from numba import cuda
numbers = numpy.arange(100_000.0)
there = cuda.to_device(numbers)
stream, event = cuda.stream(), cuda.event()
event.record(stream)
event.synchronize()
device = cuda.get_current_device()
print(json.dumps([len(cuda.gpus), str(device.name), list(device.compute_capability),
                  bool((there.copy_to_host() == numbers).all()), cuda.current_context().get_memory_info().total >> 20]))
"""


def test_a_program_in_c_that_lists_the_devices(activate, tmp_path):
    machine = activate("p100-pcie-x2")
    source, program = tmp_path / "query.c", tmp_path / "query"
    source.write_text(PROGRAM_IN_C)
    library = machine / "lib" / "libcuda.so.1"
    subprocess.run(["cc", "-Wall", "-Werror", "-o", program, source, library], check=True)
    done = subprocess.run([program], env={"GPUCHECK_SIMULATOR": str(machine), "LD_LIBRARY_PATH": str(machine / "lib")},
                          capture_output=True, text=True, check=True)  # fmt: skip
    about, first, second = done.stdout.splitlines()

    assert about == "13000 2"
    name, numbers = "Tesla P100-PCIE-16GB", "16384 6 0 56 1328000 715000 4096 49152 32 2048 1024 3 1 1"
    assert first == f"{name} {numbers} peer0=0 peer1=1"
    assert second == f"{name} {numbers} peer0=1 peer1=0"


@pytest.mark.more
def test_cuda_core_makes_streams_events_and_copies(run):
    pytest.importorskip("cuda.core", reason="make test-more installs cuda-core")
    shown = json.loads(run("hgx-h100-x8", CUDA_CORE))

    assert shown == ["NVIDIA H100 80GB HBM3", [9, 0], 0, True]


@pytest.mark.more
def test_numba_cuda_finds_gpus_and_copies(run):
    pytest.importorskip("numba_cuda", reason="make test-more installs numba-cuda")
    shown = json.loads(run("p100-pcie-x2", NUMBA, PYTHONPATH=":".join(sys.path)))

    assert shown == [2, "Tesla P100-PCIE-16GB", [6, 0], True, 16384]
