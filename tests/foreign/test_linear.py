"""Readers take time in proportion to their input: four times the text takes less than eight times the CPU."""

import contextlib
import gc
import time

import pytest

from gpucheck import imports
from gpucheck.diagnose import diagnose
from gpucheck.foreign.documents import DocumentProblem, load
from gpucheck.imports import ImportProblem
from gpucheck.model.diagnosis.observations import Observations
from gpucheck.run.pastes.merge import merge
from tests.imports import logs as kernel_log
from tests.shared import sampled

PAIR = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tPIX\t0-7\nGPU1\tPIX\t X \t0-7\n"
NCCL = "#  size  count  type  redop  root  time  algbw  busbw  #wrong\n"
RANK = "#  Rank  0 Group  0 Pid  28307 on  gpu59 device  0 [0x16] NVIDIA A100-SXM4-80GB\n"
SUM = "    1048576  262144  float  sum  -1  90.5  11.6  23.1  0\n"


def diagnosed(content):
    """Read and diagnosed, as gpucheck diagnose does."""
    (part,) = parts(content + SUM.encode())
    return diagnose(merge(Observations(), part.facts.observed)[0])


def parts(content):
    return imports.read_all(content, "paste.txt").parts


SIZE = 1 << 16
NOISE_S = 0.02
SHAPES = {
    "cells": (imports.read, PAIR + "GPU1\tX\n", "0 "),
    "rows": (imports.read, PAIR, "GPU0\tX\n"),
    "brackets": (imports.read, PAIR, "[1;"),
    "pipes": (imports.read, PAIR, "GPU0|"),
    "spaces": (imports.read, "<system>", " "),
    "headers": (imports.read, "", "\tGPU0\tGPU1\nGPU0\tX\tPIX\n"),
    "ranks": (parts, NCCL, RANK),
    "diagnosed ranks": (diagnosed, NCCL, RANK),
    "settings": (parts, NCCL, "NCCL_A set by environment to " + " " * 600 + "x\n"),
    "devices": (parts, "memcpy CE GPU(row) -> GPU(column)\n", "Device 0: a" + " " * 60_000 + "x\n"),
    "a blank": (parts, "", " "),
    "a long name": (parts, "", "NCCL "),
    "brackets of a log": (kernel_log.read, "[    1.0] NVRM: x\n", "["),
    "hardware errors": (kernel_log.read, "[    1.0] NVRM: x\n", "{1}[Hardware Error]: event severity: fatal\n"),
    "json": (kernel_log.read, "[    1.0] NVRM: x\n", '{"MESSAGE":'),
    "priorities": (kernel_log.read, "[    1.0] NVRM: x\n", "<6>"),
    "quotes": (kernel_log.read, "[    1.0] NVRM: x\n", "> "),
    "yaml keys": (load, "", "a: b\n"),
    "yaml items": (load, "", "- [a]\n"),
}


def seconds(reader, text):
    """The best of three."""
    best = float("inf")
    for _ in range(3):
        gc.disable()  # its full collections grow with all that lives, whatever the reader does
        start = time.process_time()
        with contextlib.suppress(ImportProblem, DocumentProblem):
            reader(text if reader is load else text.encode())
        best = min(best, time.process_time() - start)
        gc.enable()
    return best


@pytest.mark.parametrize("shape", sampled(SHAPES, lambda number, _: number % 3 == 0))
def test_four_times_the_input_takes_less_than_eight_times_as_long(shape):
    reader, head, unit = SHAPES[shape]
    small, large = (head + unit * (size // len(unit)) for size in (SIZE, 4 * SIZE))

    assert seconds(reader, large) < 8 * max(seconds(reader, small), NOISE_S)


def test_one_row_of_the_longest_line_is_no_search():
    """A line of cells that ends in what no cell is: it took 6.7 s for 65 kB, two attempts for each place to begin."""
    line = "0 " * 30_000 + "_"
    short = seconds(imports.read, PAIR + "GPU1\tX\n" + "0 " * 3_000 + "_\n")

    assert seconds(imports.read, PAIR + "GPU1\tX\n" + line + "\n") < 40 * max(short, NOISE_S)
