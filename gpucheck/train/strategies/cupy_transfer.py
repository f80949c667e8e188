"""CuPy copies between devices, both directions, every byte checked by the receiving GPU and the host.

CuPy has no CPU form: without a CUDA device nothing is run, and this is reported. CuPy is imported inside the functions.
"""

import platform
import time
from functools import partial
from itertools import permutations
from typing import Any

from gpucheck.model.smoke import Copy
from gpucheck.train.progress import Progress, RankDevice, RankReport
from gpucheck.train.spec import NoDevice, RankSpec, devices_used
from gpucheck.train.strategies import Strategy
from gpucheck.train.transfer import FACTOR, POISON, checked, copies

ALREADY_ENABLED = 704  # cudaErrorPeerAccessAlreadyEnabled

STRATEGY = Strategy(
    framework="cupy",
    name="transfer",
    summary="checked copies between the devices with CuPy, both directions",
    process_per_device=False,
    level="full",
    packages=("cupy", "numpy"),
    trains=False,
    precisions=("fp32",),
    default=True,
)


def run(spec: RankSpec, progress: Progress) -> RankReport:
    """Copy between every ordered pair of devices. Raises NoDevice where CuPy sees none, and whatever CuPy raises."""
    progress.enter("import")
    import cupy

    progress.enter("device")
    try:
        there = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise NoDevice(f"CuPy {cupy.__version__} sees no CUDA device: {error}") from error
    if there == 0:
        raise NoDevice(f"CuPy {cupy.__version__} sees no CUDA device")
    shared = there < spec.options.world_size
    numbers = [0 if shared else number for number in range(spec.options.world_size)]
    described = tuple(_describe(cupy, number) for number in numbers)
    progress.on_device(described[0].name, described[0].bus_id)
    peers = {pair: _peers(cupy, *pair) for pair in permutations(dict.fromkeys(numbers), 2)}
    made = tuple(copies(progress, [device.name for device in described], partial(_copy, cupy, numbers, peers)))
    progress.enter("report")
    reason = devices_used(len(numbers), there)
    return RankReport(
        rank=0,
        world_size=1,
        model="none",
        backend="memcpyPeer",
        placement="shared-gpu" if shared else "gpus",
        placement_reason=f"{reason}: copies within cuda:0" if shared else reason,
        devices=described,
        copies=made,
        seconds=dict(progress.seconds),
        versions={
            "python": platform.python_version(),
            "cupy": cupy.__version__,
            "cuda": str(cupy.cuda.runtime.runtimeGetVersion()),
        },
    )


def _describe(cupy: Any, number: int) -> RankDevice:
    properties = cupy.cuda.runtime.getDeviceProperties(number)
    bus_id = cupy.cuda.runtime.deviceGetPCIBusId(number).lower()
    return RankDevice(name=f"cuda:{number}", model=properties["name"].decode(), bus_id=bus_id)


def _peers(cupy: Any, source: int, target: int) -> bool:
    """Let the source write to the target where the driver offers it; False if copies go through host memory.

    Without it cudaMemcpyPeer is staged. Source: CUDA C++ programming guide, peer-to-peer memory copy.
    """
    runtime = cupy.cuda.runtime
    if not (runtime.deviceCanAccessPeer(source, target) and runtime.deviceCanAccessPeer(target, source)):
        return False
    for device, other in ((source, target), (target, source)):
        with cupy.cuda.Device(device):
            try:
                runtime.deviceEnablePeerAccess(other)
            except runtime.CUDARuntimeError as error:
                if error.status != ALREADY_ENABLED:
                    raise
    return True


def _copy(
    cupy: Any,
    numbers: list[int],
    peers: dict[tuple[int, int], bool],
    pair: tuple[int, int],
    names: tuple[str, str],
    size: int,
    seed: int,
) -> Copy:
    import numpy as np

    source, target = (numbers[place] for place in pair)
    runtime = cupy.cuda.runtime
    pattern = np.arange(size // 8, dtype=np.int64) * FACTOR + seed
    with cupy.cuda.Device(source):
        sent = cupy.asarray(pattern)
        cupy.cuda.Device(source).synchronize()
    with cupy.cuda.Device(target):
        arrived = cupy.full(size // 8, POISON, dtype=cupy.int64)
        cupy.cuda.Device(target).synchronize()
        began = time.perf_counter()
        runtime.memcpyPeer(arrived.data.ptr, target, sent.data.ptr, source, size)
        cupy.cuda.Device(target).synchronize()
        cupy.cuda.Device(source).synchronize()
        seconds = time.perf_counter() - began
        differs = bool((arrived != cupy.arange(size // 8, dtype=cupy.int64) * FACTOR + seed).any())
        seen = cupy.asnumpy(arrived)
    way = peers.get((source, target))
    return checked(names, seconds, seen.tobytes(), pattern.tobytes(), differs=differs, peers=way)
