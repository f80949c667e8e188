"""The one small protocol behind every measurement, and what its engines may raise."""

from collections.abc import Sequence
from typing import Protocol

from gpucheck.measure.values import Comparison, Flow, Opened, Region, Setup


class CopyRefused(Exception):
    """The driver said no to a copy: which flow, and in its words."""

    def __init__(self, flow: Flow, words: str) -> None:
        super().__init__(words)
        self.flow = flow


class CopyEngine(Protocol):
    """Copies between devices. Each device has two buffers of equal size: a source and a destination.

    A region counts from the start of a buffer. No method returns before the devices are done with it.
    Every method may raise CopyRefused; one that never returns is ended from outside.
    """

    def open(self, setup: Setup) -> Opened:
        """Make contexts and buffers. Raises ModuleNotFoundError, LookupError for a device that is not there."""

    def time(self, flows: Sequence[Flow], size: int, repeats: Sequence[int]) -> tuple[float, ...]:
        """Start all flows together, each as many copies of ``size`` bytes in a row as told; seconds of each flow."""

    def latency(self, flow: Flow, repeats: int) -> float:
        """Seconds of one of ``repeats`` small copies in a row, each waiting for the one before."""

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
