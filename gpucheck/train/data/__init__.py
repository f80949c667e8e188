"""What is trained on: a set of MNIST's shape made on the fly, or the real one.

No download, the same bytes on every rank, learnable in a few steps.

Ten class prototypes of 28 x 28 pixels, each sample its prototype plus noise. numpy is imported inside the functions.
"""

from pathlib import Path
from typing import Any

from gpucheck.train.data import idx
from gpucheck.train.data.idx import CLASSES, PIXELS, DataSet

TRAIN = 2048
HELD_OUT = 512
# A single pixel carries next to no information, all 784 together enough: accuracy rises from 0.1 to 0.99 in ten steps.
CONTRAST = 0.25
NOISE = 1.0


def synthetic(seed: int) -> DataSet:
    """The whole set; equal seeds give equal bytes."""
    import numpy as np

    random = np.random.Generator(np.random.PCG64(seed))
    prototypes = random.standard_normal((CLASSES, PIXELS), dtype=np.float32) * np.float32(CONTRAST)

    def draw(count: int) -> tuple[Any, Any]:
        labels = random.integers(0, CLASSES, size=count, dtype=np.int64)
        noise = random.standard_normal((count, PIXELS), dtype=np.float32) * np.float32(NOISE)
        return prototypes[labels] + noise, labels

    images, labels = draw(TRAIN)
    held_out_images, held_out_labels = draw(HELD_OUT)
    return DataSet(images, labels, held_out_images, held_out_labels)


def load(folder: str | None, seed: int) -> DataSet:
    """The real set from the folder, the synthetic one without. Raises ValueError or OSError for a damaged folder."""
    return synthetic(seed) if folder is None else idx.read(Path(folder))


class Order:
    """Which samples make up the global batch of each step: a fresh permutation every epoch, the same for all ranks.

    A rank takes every world_size-th sample of the global batch. That is part of what the smoke test proves: a rank
    with another order trains on samples that another rank has too, converges nevertheless, and is wrong.
    """

    def __init__(self, seed: int, samples: int, global_batch: int) -> None:
        if not 0 < global_batch <= samples:
            raise ValueError(f"global batch of {global_batch} samples, the data set has {samples}")
        self._seed, self._samples, self._batch = seed, samples, global_batch
        self._per_epoch = samples // global_batch
        self._epoch: tuple[int, Any] | None = None

    def batch(self, step: int) -> Any:
        """Sample numbers of the global batch; step counts from 1."""
        import numpy as np

        epoch, place = divmod(step - 1, self._per_epoch)
        if self._epoch is None or self._epoch[0] != epoch:
            self._epoch = (epoch, np.random.Generator(np.random.PCG64([self._seed, epoch])).permutation(self._samples))
        return self._epoch[1][place * self._batch : (place + 1) * self._batch]

    def shard(self, step: int, rank: int, world_size: int) -> Any:
        """The part of the global batch that this rank trains on."""
        return self.batch(step)[rank::world_size]
