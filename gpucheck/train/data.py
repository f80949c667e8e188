"""What is trained on: a set of MNIST's shape made on the fly, or the real one.

No download, the same bytes on every rank, learnable in a few steps.

Ten class prototypes of 28 x 28 pixels, each sample its prototype plus noise. numpy is imported inside the functions.

The MNIST files are plain or gzip: a big-endian magic number (0, 0, type 8 = unsigned byte, number of dimensions), one
32-bit size for each dimension, then the bytes. Every promise of a header is checked before a byte is trained on.
"""

import gzip
import math
import zlib
from pathlib import Path
from typing import Any, NamedTuple

CLASSES = 10
SIDE = 28
PIXELS = SIDE * SIDE
# Mean and deviation of MNIST's training pixels, with which every guide scales them.
MEAN, DEVIATION = 0.1307, 0.3081
UNSIGNED_BYTE = 8
MOST_BYTES = 256 << 20  # MNIST is 47 MB; a wrong file must not fill the memory


class DataSet(NamedTuple):
    """images: float32 [n, 784]; labels: int64 [n]; the held-out part is never trained on."""

    images: Any
    labels: Any
    held_out_images: Any
    held_out_labels: Any


def read(folder: Path) -> DataSet:
    """The set in a directory. Raises ValueError naming the file and what is wrong, OSError if it cannot be read."""
    return DataSet(*_part(folder, "train"), *_part(folder, "t10k"))


def _part(folder: Path, part: str) -> tuple[Any, Any]:
    import numpy as np

    images_file, sizes, pixels = _file(folder, f"{part}-images", dimensions=3)
    labels_file, (count,), classes = _file(folder, f"{part}-labels", dimensions=1)
    if sizes[1:] != (SIDE, SIDE):
        raise ValueError(f"{images_file}: images of {sizes[1]} x {sizes[2]} pixels, MNIST's have {SIDE} x {SIDE}")
    if sizes[0] != count:
        raise ValueError(f"{images_file}: {sizes[0]} images, but {labels_file.name} has {count} labels")
    if count == 0:
        raise ValueError(f"{images_file}: contains no image")
    labels = np.frombuffer(classes, dtype=np.uint8).astype(np.int64)
    if labels.max() >= CLASSES:
        wrong = int((labels >= CLASSES).argmax())
        raise ValueError(f"{labels_file}: label {labels[wrong]} of image {wrong}, expected 0 to {CLASSES - 1}")
    scaled = np.frombuffer(pixels, dtype=np.uint8).astype(np.float32).reshape(count, PIXELS) / np.float32(255)
    return (scaled - np.float32(MEAN)) / np.float32(DEVIATION), labels


def _file(folder: Path, stem: str, dimensions: int) -> tuple[Path, tuple[int, ...], bytes]:
    name = f"{stem}-idx{dimensions}-ubyte"
    names = (name, f"{name}.gz", name.replace("-idx", ".idx"), name.replace("-idx", ".idx") + ".gz")
    file = next((folder / each for each in names if (folder / each).is_file()), None)
    if file is None:
        raise ValueError(f"{folder}: {name} and {name}.gz are missing. Omit --data to train on generated data")
    content = _bytes(file)
    magic, wanted, header = content[:4], bytes((0, 0, UNSIGNED_BYTE, dimensions)), 4 + 4 * dimensions
    if magic != wanted or len(content) < header:
        words = f"begins with {magic.hex()}, not {wanted.hex()}"
        raise ValueError(f"{file}: not an idx file of {dimensions} dimensions: {words}")
    sizes = tuple(int.from_bytes(content[at : at + 4], "big") for at in range(4, header, 4))
    there, stated = len(content) - header, math.prod(sizes)
    if there != stated:
        raise ValueError(f"{file}: {there} bytes of data, its header states {stated}. Download it again")
    return file, sizes, content[header:]


def _bytes(file: Path) -> bytes:
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as opened:
            content = opened.read(MOST_BYTES + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{file}: damaged gzip file: {error}. Download it again") from error
    if len(content) > MOST_BYTES:
        raise ValueError(f"{file}: larger than {MOST_BYTES >> 20} MiB, which is not an MNIST file")
    return content


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

    return DataSet(*draw(TRAIN), *draw(HELD_OUT))


def load(folder: str | None, seed: int) -> DataSet:
    """The real set from the folder, the synthetic one without. Raises ValueError or OSError for a damaged folder."""
    return synthetic(seed) if folder is None else read(Path(folder))


def order(seed: int, samples: int, size: int, steps: int) -> Any:
    """Sample numbers of each global batch [steps, size]: a fresh permutation every epoch, the same for all ranks.

    A rank takes every world_size-th sample of the global batch. That is part of what the smoke test proves: a rank
    with another order trains on samples that another rank has too, converges nevertheless, and is wrong.
    """
    import numpy as np

    if not 0 < size <= samples:
        raise ValueError(f"global batch of {size} samples, the data set has {samples}")
    each = samples // size
    epochs = [np.random.Generator(np.random.PCG64([seed, n])).permutation(samples) for n in range(-(-steps // each))]
    return np.concatenate([epoch[: each * size].reshape(each, size) for epoch in epochs])[:steps]
