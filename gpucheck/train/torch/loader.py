"""Batches for a rank: torch's own loader over the planned samples, in pinned memory for a GPU."""

from collections.abc import Iterator
from typing import Any

from gpucheck.train.data import DataSet


class Samples:
    """The training set as torch's loader wants it; a whole batch at a time."""

    def __init__(self, samples: DataSet) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples.labels)

    def __getitems__(self, chosen: list[int]) -> tuple[Any, Any]:
        """The batch of these sample numbers."""
        return self._samples.images[chosen], self._samples.labels[chosen]


class Together:
    """Turn a batch of numpy arrays into tensors,"""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def __call__(self, batch: tuple[Any, Any]) -> tuple[Any, Any]:
        """(images, labels)."""
        return self._torch.from_numpy(batch[0]), self._torch.from_numpy(batch[1])


def batches(torch: Any, samples: DataSet, plan: list[Any], device: Any) -> Iterator[tuple[Any, Any]]:
    """(images, labels) on the device for each step of the plan, a list of arrays of sample numbers."""
    on_gpu = device.type == "cuda"
    loader = torch.utils.data.DataLoader(
        Samples(samples),
        batch_sampler=plan,
        collate_fn=Together(torch),
        pin_memory=on_gpu,
    )
    for images, labels in loader:
        yield images.to(device, non_blocking=on_gpu), labels.to(device, non_blocking=on_gpu)
