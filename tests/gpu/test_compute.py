"""Computing on real GPUs: rates against a second measurement, digests over repeats, ceilings, traces."""

import ctypes
import json
import os
import statistics
import time

import msgspec
import pytest
from click.testing import CliRunner

from gpucheck.cli import cli
from gpucheck.compute.engines.cublas import CublasEngine
from gpucheck.compute.engines.torch import TorchEngine
from gpucheck.compute.measure import ComputeOptions
from gpucheck.compute.values import ComputeStep, Setup
from gpucheck.host import live_source
from gpucheck.host.simulated import machine_directory
from gpucheck.model import Verdict
from gpucheck.run.steps.compute import compute
from tests.gpu.kept import RESULTS

pytestmark = pytest.mark.gpu
SIDE, MOST_DIFFERENCE = 8192, 0.08


@pytest.fixture(scope="module")
def report(request, tmp_path_factory):
    """One whole run, whose report is kept. Simulated GPUs compute without torch."""
    simulated = machine_directory() is not None
    if not simulated:
        request.getfixturevalue("cuda")
    made = compute(live_source(isolated=True, deadline_s=120.0), ComputeOptions())
    folder = tmp_path_factory.mktemp("compute") if simulated else RESULTS
    folder.mkdir(parents=True, exist_ok=True)
    name = made.gpus[0].name.replace(" ", "-")
    (folder / f"compute-{name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(made), indent=1))
    return made


def test_every_gpu_computed_in_every_type_that_it_should_have(report):
    for gpu in report.gpus:
        assert gpu.failed is None, gpu.failure
        assert {"fp32"} <= {type_ for type_, rate in gpu.gemm.items() if rate.tflops}, gpu.gemm
        assert all(rate.tflops or rate.note for rate in gpu.gemm.values()), gpu.gemm


def test_nothing_is_above_its_ceiling_and_nothing_is_found(report):
    for gpu in report.gpus:
        parts = [rate.of_ceiling for rate in gpu.gemm.values() if rate.of_ceiling is not None]
        assert parts
        assert max(parts) < 1.03
        assert gpu.memory.ceiling_gb_s
        assert max(gpu.memory.read_gb_s, gpu.memory.write_gb_s, gpu.memory.copy_gb_s) < 1.03 * gpu.memory.ceiling_gb_s
    assert not [f for f in report.findings if f.verdict in (Verdict.FAIL, Verdict.UNKNOWN)], report.findings


def test_digests_agree_over_twenty_repeats_in_every_operation(report):
    for gpu in report.gpus:
        for what, repeats in gpu.repeats.items():
            assert repeats.repeats >= 20, what
            assert repeats.differing == 0, what


def test_the_clock_was_read_under_load(report):
    for gpu in report.gpus:
        clocks = [sample.sm_clock_mhz for sample in gpu.traces if sample.sm_clock_mhz]
        assert len(clocks) > 50
        assert max(sample.power_w or 0 for sample in gpu.traces) > 0.4 * (gpu.power_limit_w or 0)


def seconds_by_the_host(cuda, once, count):
    """The time of one call by the clock of the host, as the median of rows that outlast a launch."""
    for _ in range(3):
        once()
    cuda.cuda.synchronize()
    rows = []
    for _ in range(9):
        began = time.perf_counter()
        for _ in range(count):
            once()
        cuda.cuda.synchronize()
        rows.append((time.perf_counter() - began) / count)
    return statistics.median(rows)


def test_the_matrix_rate_is_that_of_a_second_measurement_at_the_same_clock(report, cuda, kept):
    """Other data, other allocations, the host's clock instead of events; per clock, for the power limit moves it."""
    from gpucheck.host.nvml.gauge import Gauge

    gpu = report.gpus[0]
    left, right = (cuda.randn(SIDE, SIDE, device="cuda:0", dtype=cuda.float16) for _ in range(2))
    gauge = Gauge.of(gpu.bus_id)
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        left @ right
        cuda.cuda.synchronize()
    seconds = seconds_by_the_host(cuda, lambda: left @ right, 20)
    left @ right
    clock = gauge.read().sm_clock_mhz
    cuda.cuda.synchronize()
    theirs = 2 * SIDE**3 / seconds / 1e12 / clock
    ours = gpu.gemm["fp16"].tflops / gpu.gemm["fp16"].clock_mhz
    kept["fp16_tflops"] = gpu.gemm["fp16"].tflops

    assert ours == pytest.approx(theirs, rel=MOST_DIFFERENCE)


def test_the_copy_rate_of_memory_is_that_of_a_second_measurement(report, cuda, kept):
    size = 1 << 30
    here, there = (cuda.empty(size, device="cuda:0", dtype=cuda.uint8) for _ in range(2))
    seconds = seconds_by_the_host(cuda, lambda: there.copy_(here), 20)
    kept["memory_copy_gb_s"] = report.gpus[0].memory.copy_gb_s

    assert report.gpus[0].memory.copy_gb_s == pytest.approx(2 * size / seconds / 1e9, rel=MOST_DIFFERENCE)


def test_the_command_prints_it(report):
    done = CliRunner().invoke(cli, ["compute", "--devices", "0", "--format", "json"], standalone_mode=False)

    assert json.loads(done.stdout)["gpus"][0]["digests"]


def test_cublas_alone_computes_what_torch_computes_and_as_fast(cuda, device, kept):
    """Where cuBLAS is not found by itself, it is the one that torch loaded. int8 is exact, so every value is equal."""
    theirs, ours = TorchEngine(), CublasEngine()
    setup = Setup(device=device, parent_pid=os.getppid())
    theirs.open(setup)
    for type_ in ours.open(setup).types:
        step = ComputeStep(kind="matrix", what=type_, seconds=1.0)
        rate, expected = (statistics.median(engine.run(step).rates) for engine in (ours, theirs))
        kept[f"cublas_{type_}_tflops"] = rate / 1e12
        assert rate == pytest.approx(expected, rel=0.1), type_
        assert len(set(ours.run(ComputeStep(kind="results", what=f"matrix-{type_}", seconds=0.5)).digests)) == 1, type_
        left, right, made = (as_tensor(cuda, ours, type_, matrix) for matrix in product_of(ours, type_))
        apart = made.double().sub(left.double() @ right.double().T).abs().max()
        assert apart <= (0 if type_ == "int8" else 0.02), type_
        ours._free()


def product_of(engine, type_):
    left, right = engine.pair(type_, 512, 1024, 256)
    return left, right, engine.multiply(type_, left, right)


def as_tensor(torch, engine, type_, matrix):
    """The values of a matrix on the GPU, read by a copy to the host."""
    engine.digest(matrix)
    data = ctypes.string_at(engine.pinned, matrix.nbytes)
    whole = {1: torch.int8, 4: torch.int32}
    kinds = {"bf16": torch.bfloat16, "fp16": torch.float16}
    kind = whole[matrix.itemsize] if type_ == "int8" else kinds.get(type_, torch.float32)
    return torch.frombuffer(bytearray(data), dtype=kind).reshape(matrix.rows, matrix.columns)
