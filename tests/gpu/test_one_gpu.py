"""One GPU: our numbers against a second way to measure the same thing, and against themselves.

The second measurement shares no code with ours and makes other calls: the CUDA driver through ctypes, plain copies one
after the other on a stream of their own, timed by their own events.
"""

import ctypes
from statistics import median

import pytest

from gpucheck.measure.running.child import execute, verify
from gpucheck.measure.values import CopyStep, Region
from gpucheck.model.copies import HOST, Flow

pytestmark = pytest.mark.gpu

MIB = 1 << 20
SIZE = 256 * MIB
HOST_SIZE = 64 * MIB
WITHIN = 0.03  # of copies within the GPU
HOST_WITHIN = 0.08  # the second measurement takes pinned memory of any NUMA node
LATENCY_WITHIN = 0.2  # two calls that the driver may do by different engines
GATE_COPIES = 8  # 256 MiB each: more than a millisecond on the fastest GPU there is
STEADY = 0.03
HOST_TO_DEVICE, DEVICE_TO_HOST = "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2"
DEVICE_TO_DEVICE = "cuMemcpyDtoDAsync_v2"


class Libcuda:
    """The second measurement, in the engine's primary context."""

    def __init__(self, device):
        self.library = ctypes.CDLL("libcuda.so.1")
        number, self.context = ctypes.c_int(), ctypes.c_void_p()
        self.stream, self.start, self.end = (ctypes.c_void_p() for _ in range(3))
        self.call("cuDeviceGetByPCIBusId", ctypes.byref(number), device.bus_id.encode())
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), number)
        self.call("cuCtxSetCurrent", self.context)
        self.call("cuStreamCreate", ctypes.byref(self.stream), 1)
        self.call("cuEventCreate", ctypes.byref(self.start), 0)
        self.call("cuEventCreate", ctypes.byref(self.end), 0)

    def call(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        assert status == 0, f"{name}: CUDA error {status}"

    def memory(self, size, *, pinned):
        pointer = ctypes.c_void_p()
        self.call("cuCtxSetCurrent", self.context)
        if pinned:
            self.call("cuMemHostAlloc", ctypes.byref(pointer), ctypes.c_size_t(size), 0)
        else:
            self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer

    def seconds(self, target, source, size, kind, copies, gate=None):
        """Of one copy: the median of fifteen rows of copies, after two that do not count.

        gate: two large buffers; copies between them keep the stream busy until the row is queued, for small copies
        run faster than they are started.
        """
        rows = []
        self.call("cuCtxSetCurrent", self.context)
        for _ in range(17):
            for _ in range(GATE_COPIES if gate else 0):
                self.call(DEVICE_TO_DEVICE, *gate, ctypes.c_size_t(SIZE), self.stream)
            self.call("cuEventRecord", self.start, self.stream)
            for _ in range(copies):
                self.call(kind, target, source, ctypes.c_size_t(size), self.stream)
            self.call("cuEventRecord", self.end, self.stream)
            self.call("cuEventSynchronize", self.end)
            elapsed = ctypes.c_float()
            self.call("cuEventElapsedTime", ctypes.byref(elapsed), self.start, self.end)
            rows.append(elapsed.value / 1e3 / copies)
        return median(rows[2:])


@pytest.fixture(scope="module")
def second(engine, device):
    return Libcuda(device)


def ours(engine, flow, size):
    step = CopyStep(operation="bandwidth", purpose="one direction", flows=(flow,), size=size, samples=(15, 21))
    return execute(engine, step).timings[0]


LOCAL = Flow(src=0, dst=0)
WAYS = {
    "device-local": (LOCAL, SIZE, DEVICE_TO_DEVICE),
    "host-to-device": (Flow(src=HOST, dst=0), HOST_SIZE, HOST_TO_DEVICE),
    "device-to-host": (Flow(src=0, dst=HOST), HOST_SIZE, DEVICE_TO_HOST),
}


@pytest.mark.parametrize("name", WAYS)
def test_bandwidth_agrees_with_plain_calls(engine, second, kept, name):
    flow, size, kind = WAYS[name]
    target = second.memory(size, pinned=kind == DEVICE_TO_HOST)
    source = second.memory(size, pinned=kind == HOST_TO_DEVICE)
    reference = size / second.seconds(target, source, size, kind, 8) / 1e9

    kept.close(
        f"{name} GB/s", ours(engine, flow, size).gb_s, reference, WITHIN if kind == DEVICE_TO_DEVICE else HOST_WITHIN
    )


def test_latency_agrees_with_plain_calls(engine, second, kept):
    """Both queue small copies on one stream and hold them back: ours by a word in host memory, theirs by copies."""
    target, source = second.memory(MIB, pinned=False), second.memory(MIB, pinned=False)
    gate = second.memory(SIZE, pinned=False), second.memory(SIZE, pinned=False)
    reference = min(second.seconds(target, source, 16, DEVICE_TO_DEVICE, 100, gate) for _ in range(5))
    step = CopyStep(operation="latency", purpose="latency", flows=(LOCAL,), samples=(15, 41))
    measured = min(execute(engine, step).timings[0].median_s for _ in range(5))

    kept.close("device-local latency us", measured * 1e6, reference * 1e6, LATENCY_WITHIN)


@pytest.mark.parametrize("name", WAYS)
def test_medians_of_five_runs_agree(engine, kept, name):
    flow, size, _ = WAYS[name]
    medians = [ours(engine, flow, size).gb_s for _ in range(5)]

    kept.close(f"{name}, slowest of five medians GB/s", min(medians), max(medians), STEADY)


def test_every_word_of_a_large_copy_is_compared(engine):
    step = CopyStep(
        operation="integrity",
        purpose="integrity",
        flows=(LOCAL,),
        regions=(Region(offset=4096, size=MIB), Region(offset=0, size=SIZE)),
        rounds=3,
        devices=1,
    )
    (check,) = verify(engine, step)

    assert (check.bad_rounds, check.bytes_verified) == (0, 3 * (SIZE + MIB))


def test_a_flipped_bit_on_the_gpu_is_found(engine):
    region = Region(offset=0, size=MIB)
    engine.fill(0, 99, region)
    engine.copy([LOCAL], region)
    gpu = engine.gpus[0]
    (word,) = gpu.read(gpu.target + 8 * 4321, 1)
    gpu.write(gpu.target + 8 * 4321, [word ^ 1 << 20])
    seen = engine.compare(0, 99, region)

    assert (seen.mismatches, seen.first) == (1, 4321)
