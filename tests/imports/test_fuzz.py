"""Whatever comes in, only ImportProblem comes out, and soon."""

import random
import time

import pytest

from gpucheck.imports import ImportProblem, read
from tests.shared import sampled

MEBIBYTE = 1 << 20


def try_to_read(data):
    try:
        topology = read(data)
    except ImportProblem as problem:
        message = str(problem)
    else:
        message = ""
        count = len(topology.gpus)
        assert count > 0
        assert [len(row) for row in topology.matrix] == [count] * count
        assert len({gpu.index for gpu in topology.gpus}) == count
    assert "\n" not in message
    assert len(message) < 600


# By number of bytes: about so many of each kind.
NOISE = {
    "rows of one GPU": lambda size: b"GPU0\n" * (size // 5),
    "rows of one cell": lambda size: b"GPU0 X\n" * (size // 7),
    "headers": lambda size: b"GPU0 GPU1\n" * (size // 10),
    "matrices": lambda size: b"GPU0 GPU1\nN1\nN2\nN3\nN4\nGPU0 X OK\n" * (size // 32),
    "broken matrices": lambda size: b"GPU0 GPU1\nN1\nN2\nN3\nN4\nGPU0 FOO\n" * (size // 31),
    "short rows": lambda size: b"GPU0 GPU1 CPU Affinity\nGPU0 X\n" + b"NV1\n" * (size // 4),
    "a long number": lambda size: b"\tGPU0\tGPU1\nGPU0\tX NV" + b"1" * size,
    "a wide header": lambda size: b" ".join(b"GPU%d" % n for n in range(size // 10)),
    "blanks": lambda size: b"GPU0" + b" " * size + b"GPU1\nGPU0 X",
    "line breaks": lambda size: b"\n" * size + b"GPU0 X",
    "escapes": lambda size: b"\x1b[0" * (size // 3),
    "a list": lambda size: b"GPU 0: a (UUID: " * (size // 16) + b"GPU0",
    "bytes": lambda size: random.Random(7).randbytes(size),
    "lines of bytes": lambda size: random.Random(7).randbytes(size).replace(b"\0", b"\n"),
    "more than is read": lambda size: b"x" * (33 * MEBIBYTE),
}


@pytest.mark.slow
@pytest.mark.parametrize("size", sampled([MEBIBYTE, 10 * MEBIBYTE], (0,)))
@pytest.mark.parametrize("kind", sampled(NOISE, lambda number, _: number % 3 == 0))
def test_megabytes_of_noise_take_seconds_at_most(kind, size):
    """Measured: the worst of 10 MiB takes 2 s on one core of 2026; quadratic work would take minutes for one."""
    noise = NOISE[kind](size)
    start = time.process_time()
    try_to_read(noise)

    assert time.process_time() - start < 20
