"""CuPy copies between devices, both directions, every byte checked by the receiving GPU and the host.

CuPy has no CPU form: without a CUDA device nothing is run, and this is reported. CuPy is imported inside the functions.
"""

import time
from functools import partial
from typing import Any

from gpucheck.train.progress import Progress, RankDevice, RankReport
from gpucheck.train.session import Rank
from gpucheck.train.spec import RankPlacement, RankSpec, Rejected, devices_used
from gpucheck.train.strategies import Strategy
from gpucheck.train.transfer import FACTOR, POISON, Moved, copy_and_report

ALREADY_ENABLED = 704  # cudaErrorPeerAccessAlreadyEnabled

STRATEGIES = (
    Strategy(
        framework="cupy",
        name="transfer",
        module=__name__,
        summary="checked copies between the devices with CuPy, both directions",
        packages=("cupy", "numpy"),
        trains=False,
        precisions=("fp32",),
        default=True,
    ),
)


def transfer(spec: RankSpec, progress: Progress) -> RankReport:
    """Copy between every ordered pair of devices. Raises Rejected where CuPy sees none, and whatever CuPy raises."""
    progress.enter("import")
    import cupy

    progress.enter("device")
    runtime = cupy.cuda.runtime
    try:
        there = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        raise Rejected("no-device", f"CuPy {cupy.__version__} sees no CUDA device: {error}") from error
    used = spec.options.world_size
    numbers, where = list(range(used)), RankPlacement("gpus", "memcpyPeer", devices_used(used, there))
    if there < used:
        numbers, where = [0] * used, RankPlacement("shared-gpu", "memcpyPeer", f"{where.reason}: copies within cuda:0")
    described = tuple(
        RankDevice(
            name=f"cuda:{number}",
            model=runtime.getDeviceProperties(number)["name"].decode(),
            bus_id=runtime.deviceGetPCIBusId(number).lower(),
        )
        for number in numbers
    )
    progress.on_device(described[0].name, described[0].bus_id)
    versions = {"cupy": cupy.__version__, "cuda": str(runtime.runtimeGetVersion())}
    return copy_and_report(Rank(spec, progress, where, described, versions), partial(_move, cupy, numbers))


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


def _move(cupy: Any, numbers: list[int], from_place: int, to_place: int, pattern: Any, seed: int) -> Moved:
    source, target = numbers[from_place], numbers[to_place]
    peers = _peers(cupy, source, target) if source != target else None
    with cupy.cuda.Device(source) as sender:
        sent = cupy.asarray(pattern)
        sender.synchronize()
    with cupy.cuda.Device(target) as receiver:
        arrived = cupy.full(len(pattern), POISON, dtype=cupy.int64)
        receiver.synchronize()
        began = time.perf_counter()
        cupy.cuda.runtime.memcpyPeer(arrived.data.ptr, target, sent.data.ptr, source, pattern.nbytes)
        receiver.synchronize()
        sender.synchronize()
        seconds = time.perf_counter() - began
        differs = bool((arrived != cupy.arange(len(pattern), dtype=cupy.int64) * FACTOR + seed).any())
        return Moved(seconds, cupy.asnumpy(arrived), differs, peers)
