"""The protocol of copy engines, and their exceptions."""

from collections.abc import Sequence
from typing import Protocol

from gpucheck.measure.values import Comparison, Flow, Opened, Region, Setup, TimingWay
from gpucheck.model.finding import Finding

# Exceptions of programming errors; engines raise other types if a device is missing.
MISTAKES = (ArithmeticError, AssertionError, AttributeError, IndexError, KeyError, NameError, TypeError)


class NotOpened(Exception):
    """The engine cannot copy on this host, for a known reason. where: the device, empty for all of them."""

    def __init__(self, finding: Finding, where: str = "") -> None:
        super().__init__(f"{where}: {finding.why}" if where else finding.why)
        self.finding = finding


class NotTimed(Exception):
    """Copies began before all of them were queued, so their time would include the queueing. Data is not affected."""


class NotShared(Exception):
    """The driver gives out no memory by a fabric handle. code: of the call, cudaError_t."""

    def __init__(self, why: str, code: int) -> None:
        super().__init__(why)
        self.code = code


class CopyEngine(Protocol):
    """Copies between devices. Each device has two buffers of equal size: a source and a destination.

    A region counts from the start of a buffer. No method returns before the devices are done with it.
    Every method may raise exceptions of its library; the parent terminates a method that hangs.
    way: how the last copies were timed.
    """

    way: TimingWay

    def open(self, setup: Setup) -> Opened:
        """Make contexts and buffers. Raises ModuleNotFoundError, NotOpened, LookupError for a missing device."""

    def error_code(self, error: Exception) -> int | None:
        """Return the cudaError_t of this exception of the engine's library, None for any other exception."""

    def time(self, flows: Sequence[Flow], size: int, repeats: Sequence[int]) -> tuple[float, ...]:
        """Start all flows together, each with its number of consecutive copies of ``size`` bytes.

        Returns the seconds of each flow. Raises NotTimed.
        """

    def latency(self, flow: Flow, repeats: int) -> float:
        """Return seconds of one of ``repeats`` small copies, each started after the previous one. Raises NotTimed.

        sm-read: of one load by a kernel of the destination from the source's memory.
        """

    def fill(self, device: int, key: int, region: Region) -> None:
        """Write the pattern of this key into the source buffer."""

    def poison(self, device: int, value: int, region: Region) -> None:
        """Fill the region of the destination buffer with one word."""

    def copy(self, flows: Sequence[Flow], region: Region) -> None:
        """Copy the region from source to destination buffers, all flows together. Raises NotShared."""

    def compare(self, device: int, key: int, region: Region) -> Comparison:
        """Compare the destination buffer with the pattern of this key, on its device."""

    def words(self, device: int, region: Region, *, source: bool = False) -> tuple[int, ...]:
        """Return words of the destination buffer, or of the source buffer, as the host reads them."""

    def device_seconds(self) -> float:
        """Return how long the devices have been busy, by the engine's clock."""

    def close(self) -> None:
        """Release all resources."""
