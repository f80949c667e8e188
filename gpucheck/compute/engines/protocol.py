"""What a bench of several devices is."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from gpucheck.compute.values import Answer, ComputeStep, Failure, Opened


class Bench(Protocol):
    """Several devices, each of which is known by its place."""

    def open(self) -> Sequence[Opened | Failure]:
        """Open all devices at the same time; one answer for each place."""

    def run(self, step: ComputeStep, places: Sequence[int]) -> Mapping[int, Answer | Failure]:
        """Run a step on these devices at the same time. A device that failed is not to be used again."""

    def close(self) -> None:
        """End what was started."""
