"""The real data files: plain or gzip, and every damage is named with the file and what to do."""

import gzip

import numpy as np
import pytest

from gpucheck.train import data


def content(array: np.ndarray, *, magic: bytes | None = None) -> bytes:
    head = magic or bytes((0, 0, 8, array.ndim))
    return head + b"".join(size.to_bytes(4, "big") for size in array.shape) + array.astype(np.uint8).tobytes()


def write_set(folder, *, packed=False, train=20, held_out=10):
    random = np.random.default_rng(1)
    for part, count in (("train", train), ("t10k", held_out)):
        for stem, array in (
            (f"{part}-images-idx3-ubyte", random.integers(0, 256, (count, 28, 28))),
            (f"{part}-labels-idx1-ubyte", np.arange(count) % 10),
        ):
            data = content(array)
            (folder / (stem + (".gz" if packed else ""))).write_bytes(gzip.compress(data) if packed else data)
    return folder


@pytest.mark.parametrize("packed", [False, True])
def test_a_set_is_read_scaled_and_flat(tmp_path, packed):
    samples = data.read(write_set(tmp_path, packed=packed))

    assert samples.images.shape == (20, 784)
    assert (samples.images.dtype, samples.labels.dtype) == (np.float32, np.int64)
    assert samples.labels.tolist() == [*range(10), *range(10)]
    assert samples.held_out_images.shape == (10, 784)
    assert samples.images.min() >= (0 - 0.1307) / 0.3081 - 1e-6
    assert samples.images.max() <= (1 - 0.1307) / 0.3081 + 1e-6


IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


@pytest.mark.parametrize(
    ("file", "damage", "words"),
    [
        (IMAGES, lambda b: b[:-1], "15679 bytes of data, its header states 15680"),
        (IMAGES, lambda b: b + b"x", "15681 bytes of data"),
        (IMAGES, lambda b: b[:3], "not an idx file of 3 dimensions"),
        (IMAGES, lambda b: b"\0\0\x08\x01" + b[4:], "begins with 00000801, not 00000803"),
        (IMAGES, lambda b: b"<html>" + b[6:], "not an idx file"),
        (IMAGES, lambda b: content(np.zeros((20, 32, 32))), "images of 32 x 32 pixels"),
        (IMAGES, lambda b: content(np.zeros((19, 28, 28))), "19 images, but train-labels-idx1-ubyte has 20 labels"),
        (LABELS, lambda b: b[:-1] + b"\x0b", "label 11 of image 19, expected 0 to 9"),
        (LABELS, lambda b: None, "train-labels-idx1-ubyte and train-labels-idx1-ubyte.gz are missing"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, file, damage, words):
    write_set(tmp_path)
    broken = damage((tmp_path / file).read_bytes())
    (tmp_path / file).unlink()
    if broken is not None:
        (tmp_path / file).write_bytes(broken)

    with pytest.raises(ValueError, match=words) as problem:
        data.read(tmp_path)
    assert str(tmp_path) in str(problem.value)


@pytest.mark.parametrize(
    "damage", [lambda b: b[: len(b) // 2], lambda b: b[:20] + b"\xff" * 40 + b[60:], lambda b: b"x"]
)
def test_a_damaged_gzip_file_is_named(tmp_path, damage):
    write_set(tmp_path, packed=True)
    file = tmp_path / f"{IMAGES}.gz"
    file.write_bytes(damage(file.read_bytes()))

    with pytest.raises(ValueError, match="damaged gzip file"):
        data.read(tmp_path)


def test_an_empty_set_is_no_set(tmp_path):
    with pytest.raises(ValueError, match="contains no image"):
        data.read(write_set(tmp_path, train=0))
