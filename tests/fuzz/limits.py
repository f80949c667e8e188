"""Bounds of one input: processor time that grows with its size, and memory."""

import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

BASE_S, S_PER_BYTE = 0.25, 1 / 100_000
BASE_BYTES, BYTES_PER_BYTE = 192 << 20, 200
ADDRESS_SPACE = 3 << 30
"""On top of what the process has mapped already: the one that forked a worker may be large."""


# Processor time of the work in slowness() on a quiet machine of two cores.
YARDSTICK_S = 0.05


class TooSlow(BaseException):
    """Raised in the middle of the work; no ``except Exception`` there may take it for its own."""


def seconds(size: int) -> float:
    """What an input of so many bytes may take."""
    return BASE_S + size * S_PER_BYTE


def slowness() -> float:
    """How many times more processor time than on a quiet machine the same work takes now, at least 1.

    A processor that is shared with other threads and virtual machines does less in a second that counts as its own.
    """
    started = time.process_time()
    for number in range(40_000):
        str({"number": number, "half": [number / 2]})
    return max(1.0, (time.process_time() - started) / YARDSTICK_S)


def peak_bytes() -> int:
    """The most memory that this process has had; it never falls."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def most_bytes(size: int) -> int:
    """What an input of so many bytes may add."""
    return BASE_BYTES + size * BYTES_PER_BYTE


@contextmanager
def bounded(size: int, times: float = 1) -> Iterator[None]:
    """Raises TooSlow where processor time runs out, in the middle of the work, and again until it ends."""
    limit = seconds(size) * times
    before = signal.signal(signal.SIGPROF, interrupt_slow_work)
    signal.setitimer(signal.ITIMER_PROF, limit, 1.0)
    started = time.process_time()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    if time.process_time() - started > limit:
        raise TooSlow


def bound_address_space() -> None:
    """Of this process: an input that asks for gigabytes gets a MemoryError instead of the machine."""
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + ADDRESS_SPACE, resource.getrlimit(resource.RLIMIT_AS)[1]))


def interrupt_slow_work(signal_: int, frame: FrameType | None) -> None:
    raise TooSlow
