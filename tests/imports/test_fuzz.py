"""Whatever comes in, only ImportProblem comes out, and soon."""

import random
import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucheck.imports import ImportProblem, read
from tests.imports.corpus import CASES, raw
from tests.shared import sampled

MEBIBYTE = 1 << 20
PASTES = [raw(case) for case in CASES]
LABELS = ["GPU0", "GPU1", "GPU2", "NIC0", "mlx5_0", "CPU Affinity", "NUMA Affinity", "GPU NUMA ID", "Legend:"]
CELLS = ["X", "NV4", "NV", "PIX", "SYS", "NODE", "SOC", "OK", "?", "N/A", "0-7", "1", ","]
BLANKS = ["\t", " ", "\n", "\n", "\r\n", "|", "#", "\x1b[4m", "[0m", "\u200b", "\ud7ff", "é"]
words = st.sampled_from([*LABELS, *CELLS, *BLANKS, "GPU 0: H100 (UUID: GPU-1)"])


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


@given(st.binary(max_size=400))
def test_random_bytes(data):
    try_to_read(data)


@given(st.text(max_size=400))
def test_random_text(text):
    try_to_read(text)


@settings(max_examples=300)
@given(st.lists(words, max_size=60).map("".join))
def test_random_pieces_of_a_matrix(text):
    """Noise that looks like the real thing reaches the code that random bytes do not."""
    try_to_read(text)


@settings(max_examples=300)
@given(st.sampled_from(PASTES), st.randoms(use_true_random=False))
def test_real_pastes_with_holes_swaps_and_repeats(paste, rng):
    characters = list(paste)
    for _ in range(rng.randint(1, 12)):
        start = rng.randrange(len(characters) + 1)
        end = min(start + rng.randint(0, 40), len(characters))
        characters[start:end] = rng.choice([[], ["\n"], ["\t"], characters[start:end] * 2, ["GPU1"], ["\0"]])
    try_to_read("".join(characters))


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


def test_ten_megabytes_in_one_line_take_no_memory_to_speak_of():
    """Cut into words it would be two million strings."""
    noise = b"GPU0 " * (2 * MEBIBYTE)
    tracemalloc.start()
    try_to_read(noise)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 5 * len(noise)
