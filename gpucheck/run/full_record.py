"""Take what ``gpucheck record --full`` adds to a recording."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from gpucheck.model import Host
from gpucheck.model.full_record import CopyTiming, FullRecord

if TYPE_CHECKING:
    from gpucheck.measure.values import Answer, Step, Timing

MODULES = "/sys/module"
DRIVER_MODULES = ("nvidia", "nvidia_drm", "nvidia_fs", "nvidia_modeset", "nvidia_peermem", "nvidia_uvm")
PARTS = ("parameters", "cuda", "copies")
CUDA_S = 120.0  # contexts on eight GPUs, and compiling the kernels on the first run


def take(host: Host, started: Callable[[str], None] = lambda part: None) -> FullRecord:  # noqa: ARG005 - no progress
    """Read CUDA, and measure at level full. started: called with each part."""
    from gpucheck.measure.bandwidth import Options, Watch
    from gpucheck.measure.engines.driver.reading import read_cuda
    from gpucheck.measure.planning.selection import Unmeasurable
    from gpucheck.run.links import measured

    seconds: dict[str, float] = {}
    timings: list[CopyTiming] = []

    def answered(step: "Step", answer: "Answer") -> None:
        timings.extend(_timing(step.purpose, len(answer.timings), one) for one in answer.timings)

    @contextmanager
    def part(number: int) -> Iterator[None]:
        started(PARTS[number])
        clock = time.monotonic()
        yield
        seconds[PARTS[number]] = round(time.monotonic() - clock, 3)

    with part(0):
        for module in DRIVER_MODULES:
            folder = f"{MODULES}/{module}/parameters"
            for name in host.list_names(folder) or ():
                host.read_text(f"{folder}/{name}")
    with part(1):
        cuda = read_cuda(CUDA_S)
    bandwidth, why = None, None
    with part(2):
        try:
            bandwidth = measured(host, Options(depth="full"), Watch(answered=answered))
        except Unmeasurable as error:
            why = str(error)
    return FullRecord(cuda=cuda, bandwidth=bandwidth, not_measured=why, timings=tuple(timings), seconds=seconds)


def _timing(purpose: str, together: int, timing: "Timing") -> CopyTiming:
    values = asdict(timing)
    return CopyTiming(purpose=purpose, together=together, **asdict(values.pop("flow")), **values)
