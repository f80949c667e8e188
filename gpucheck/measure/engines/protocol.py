"""The one small protocol behind every measurement, and what its engines may raise."""

from collections.abc import Sequence
from typing import Protocol

from gpucheck.measure.values import Comparison, Flow, Opened, Region, Setup

# What only a mistake in a program raises; engines raise other types, on purpose, if a device is not there.
MISTAKES = (ArithmeticError, AssertionError, AttributeError, IndexError, KeyError, NameError, TypeError)


class NotOpened(Exception):
    """The engine cannot copy on this machine, for a reason that it knows. fix: what to do about it."""

    def __init__(self, why: str, fix: str) -> None:
        super().__init__(why)
        self.fix = fix


class NotTimed(Exception):
    """Copies began before all of them were queued, so their time would include the queueing. Data is not affected."""


class CopyEngine(Protocol):
    """Copies between devices. Each device has two buffers of equal size: a source and a destination.

    A region counts from the start of a buffer. No method returns before the devices are done with it.
    Every method may raise what its library raises; one that never returns is ended from outside.
    """

    def open(self, setup: Setup) -> Opened:
        """Make contexts and buffers. Raises ModuleNotFoundError, NotOpened, LookupError for a missing device."""

    def error_code(self, error: Exception) -> int | None:
        """Return the cudaError_t that this exception of the engine's library carries, None for any other exception."""

    def time(self, flows: Sequence[Flow], size: int, repeats: Sequence[int]) -> tuple[float, ...]:
        """Start all flows together, each with its number of copies of ``size`` bytes in a row; seconds of each flow.

        Raises NotTimed.
        """

    def latency(self, flow: Flow, repeats: int) -> float:
        """Seconds of one of ``repeats`` small copies in a row, each waiting for the one before. Raises NotTimed.

        sm-read: of one load by a kernel of the destination from the source's memory.
        """

    def fill(self, device: int, key: int, region: Region) -> None:
        """Write the pattern of this key into the source buffer."""

    def poison(self, device: int, value: int, region: Region) -> None:
        """Write one word all over the destination buffer's region."""

    def copy(self, flows: Sequence[Flow], region: Region, bursts: int) -> None:
        """Copy the region from source to destination buffers, all flows together, ``bursts`` times each."""

    def compare(self, device: int, key: int, region: Region) -> Comparison:
        """Let the owner compare its destination buffer with the pattern of this key."""

    def words(self, device: int, region: Region) -> tuple[int, ...]:
        """Words of the destination buffer as they arrive on the host."""

    def device_seconds(self) -> float:
        """How long the devices have been busy so far, by the engine's clock."""

    def close(self) -> None:
        """Give everything back."""
