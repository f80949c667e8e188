"""docs/compute-coverage.md names every test of DCGM and SuperBench once, and commands that exist."""

import re
from pathlib import Path

import click
import pytest

from gpucheck.cli import cli

PAGE = (Path(__file__).parents[2] / "docs/compute-coverage.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `([a-z0-9_-]+)` \| (\w+) \|(?: `([^`]+)`)? \| (.*) \|$", PAGE, re.MULTILINE)
# NVIDIA/DCGM, nvvs/include/PluginStrings.h and modules/diag/DcgmDiagManager.h at 72fa3fe.
DCGM = {
    "software", "pcie", "targeted_power", "targeted_stress", "memory", "memtest", "sm_stress", "diagnostic",
    "context_create", "memory_bandwidth", "pulse_test", "eud", "cpu_eud", "rist", "nvbandwidth", "nccl_tests",
}  # fmt: skip
# microsoft/superbenchmark, docs/user-tutorial/benchmarks at 700d6501, without those for AMD GPUs.
SUPERBENCH = {
    "kernel-launch", "gemm-flops", "matmul", "cublaslt-gemm", "cublas-function", "cudnn-function",
    "tensorrt-inference", "ort-inference", "gpu-burn", "cpu-hpl", "cpu-stream", "cpu-memory-bw-latency", "mem-bw",
    "gpu-copy-bw", "gpu-stream", "ib-loopback", "nccl-bw", "tcp-connectivity", "gpcnet-network-test", "ib-traffic",
    "nvbandwidth", "computation-communication-overlap", "sharding-matmul", "dist-inference", "disk-benchmark",
    "model-benchmarks", "megatron-gpt",
}  # fmt: skip


@pytest.mark.parametrize(("heading", "names"), [("## DCGM", DCGM), ("## SuperBench", SUPERBENCH)])
def test_every_test_has_one_row(heading, names):
    part = PAGE[PAGE.index(heading) :].partition("\n## ")[0]
    listed = re.findall(r"^\| `([a-z0-9_-]+)` \|", part, re.MULTILINE)

    assert sorted(listed) == sorted(names)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_names_a_command_that_exists_or_a_reason(row):
    _, covered, command, difference = row

    assert covered in ("yes", "partly", "no")
    assert bool(command) == (covered != "no")
    assert difference
    if command:
        name, *words = command.split()
        options = {text: option for option in cli.get_command(click.Context(cli), name).params for text in option.opts}
        for option, value in zip(words[::2], words[1::2], strict=True):
            assert value in options[option].type.choices


def test_no_row_is_lost():
    assert len(ROWS) == len(DCGM) + len(SUPERBENCH)
