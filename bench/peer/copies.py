"""The same lanes by three methods: gpucheck's driver engine, nvbandwidth's and p2pBandwidthLatencyTest's.

usage: python bench/peer/copies.py [PROFILE]    PROFILE: a simulated machine; without it, the GPUs of this host.

The two other methods are written anew from their descriptions, on plain calls of cuda.bindings.driver:
nvbandwidth (device_to_device_memcpy_write_ce): 512 MiB buffers, 16 copies in a row on a stream of the source that is
held back, CUDA events around all of them, median of 3.
p2pBandwidthLatencyTest (write): 160 MB, 5 copies in a row, one event pair, with peer access enabled and disabled.
"""

import ctypes
import os
import sys
from statistics import median

MIB = 1 << 20
NVBANDWIDTH = (512 * MIB, 16, 3)  # bytes, copies in a row, samples
P2P_TEST = (160_000_000, 5, 1)


class Method:
    """Copies between two GPUs, in contexts that the engine made: primary contexts are one for each process."""

    def __init__(self, src: object, dst: object) -> None:
        from cuda.bindings import driver

        self.cu = driver
        self.contexts = [self.ok("cuDevicePrimaryCtxRetain", device) for device in (src, dst)]
        self.word = self.ok("cuMemHostAlloc", 64, driver.CU_MEMHOSTALLOC_PORTABLE | driver.CU_MEMHOSTALLOC_DEVICEMAP)
        self.value = ctypes.c_uint32.from_address(int(self.word))

    def ok(self, name: str, *arguments: object) -> object:
        status, *values = getattr(self.cu, name)(*arguments)
        if int(status):
            raise SystemExit(f"{name}: {status!r}")
        return values[0] if values else None

    def peers(self, *, on: bool) -> None:
        for one, other in (self.contexts, self.contexts[::-1]):
            self.ok("cuCtxSetCurrent", one)
            (status,) = self.cu.cuCtxEnablePeerAccess(other, 0) if on else self.cu.cuCtxDisablePeerAccess(other)
            if int(status) not in (0, 217, 704, 705):
                raise SystemExit(f"peer access: {status!r}")

    def gb_s(self, size: int, copies: int, samples: int) -> float:
        source, target = self.contexts
        self.ok("cuCtxSetCurrent", target)
        there = self.ok("cuMemAlloc", size)
        self.ok("cuCtxSetCurrent", source)
        here = self.ok("cuMemAlloc", size)
        stream = self.ok("cuStreamCreate", 1)
        start, end = self.ok("cuEventCreate", 0), self.ok("cuEventCreate", 0)
        rates = []
        for _ in range(samples + 1):
            self.value.value = 0
            self.ok("cuStreamWaitValue32", stream, int(self.word), 1, 0)
            self.ok("cuEventRecord", start, stream)
            for _ in range(copies):
                self.ok("cuMemcpyPeerAsync", there, target, here, source, size, stream)
            self.ok("cuEventRecord", end, stream)
            self.value.value = 1
            self.ok("cuEventSynchronize", end)
            rates.append(size * copies / float(self.ok("cuEventElapsedTime", start, end)) / 1e6)  # type: ignore[arg-type]
        self.ok("cuMemFree", here)
        self.ok("cuCtxSetCurrent", target)
        self.ok("cuMemFree", there)
        return median(rates[1:])


def main(profile: str | None) -> None:
    if profile is not None:
        from gpucheck.simulator import activate

        activate(profile)
    from gpucheck.host import live_source
    from gpucheck.measure.engines.driver.engine import DriverEngine
    from gpucheck.measure.planning.selection import device
    from gpucheck.measure.running.child import execute
    from gpucheck.measure.values import CopyStep, Flow, Setup
    from gpucheck.model import NvmlReading

    reading = live_source(isolated=True, deadline_s=60.0).read("nvml").nvml
    if not isinstance(reading, NvmlReading) or len(reading.gpus) < 2:
        raise SystemExit("bench/peer/copies.py: two GPUs are needed, or the name of a profile with two.")
    devices = tuple(device(gpu) for gpu in reading.gpus[:2])
    engine = DriverEngine()
    engine.open(Setup(engine="driver", devices=devices, buffer_bytes=256 * MIB, parent_pid=os.getpid()))
    lanes = [engine.gpus[place].device for place in (0, 1)]
    print(f"{devices[0].name}, GPU 0 to 1" + (f" (SIMULATED {profile})" if profile else ""))
    print("| lane | gpucheck GB/s | nvbandwidth's method | p2pBandwidthLatencyTest's method |")
    print("|---|---|---|---|")
    for name, method, on in (("peer access on", "ce-write", True), ("peer access off", "staged", False)):
        flow = Flow(src=0, dst=1, method=method)  # type: ignore[arg-type]
        step = CopyStep(operation="bandwidth", purpose="x", flows=(flow,), size=256 * MIB, samples=(15, 41))
        ours = execute(engine, step).timings[0].gb_s
        other = Method(*lanes)
        other.peers(on=on)
        theirs = [other.gb_s(*how) for how in (NVBANDWIDTH, P2P_TEST)]
        print(f"| {name} | {ours:.2f} | {theirs[0]:.2f} | {theirs[1]:.2f} |")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
