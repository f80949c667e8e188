"""cuBLAS without torch, whole: its own child process, on the simulated CUDA driver and a cuBLAS of the processor's."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpucheck.cli import cli
from gpucheck.compute import measure, values
from gpucheck.compute.engines.cublas import TILE, CublasEngine, loaded, tile
from gpucheck.compute.engines.torch import TorchEngine
from gpucheck.compute.running import run as running
from gpucheck.compute.values import ComputeStep, not_tested, steps, untested
from gpucheck.model import Verdict
from gpucheck.model.compute import CUBLAS
from gpucheck.model.device import Device
from tests.compute.machines import evaluate, run, simulated
from tests.run.test_proof import missing
from tests.shared import made_once

PROFILE = "gb200-x4"
SOURCE = Path(__file__).with_name("stub_cublas.c")
FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
pytestmark = pytest.mark.slow


def compiled(folder):
    for name in ("libcublas.so.13", "libcublasLt.so.13"):
        command = ["cc", *FLAGS, f"-Wl,-soname,{name}", str(SOURCE), "-o", str(folder / name), "-ldl"]
        subprocess.run(command, check=True)


@pytest.fixture
def machine(activate, tmp_path_factory, monkeypatch):
    """A machine with four GPUs and a cuBLAS that the loader finds, as that of a CUDA toolkit."""
    made = activate(PROFILE, ())
    stub = made_once(tmp_path_factory, "stub-cublas", compiled)
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{stub}:{made / 'lib'}")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setattr(values, "CPU_S", 0.02)
    monkeypatch.setattr(running, "steps", lambda types, without, **_: steps(types, small=True, without=without))
    return made


def gpus(count):
    found = simulated(PROFILE)[:count]
    return tuple(Device(index=number, name=gpu.name, bus_id=gpu.bus_id) for number, gpu in enumerate(found))


def workers(devices, fault="-"):
    command = (sys.executable, "-m", "tests.compute.cublas_child", fault)
    return running.Workers(devices, small=True, command=command, engine=CUBLAS)


def computed(count, fault="-"):
    """The run of so many GPUs, of which the second has the fault."""
    devices = gpus(count)
    bench = workers(devices, fault)
    try:
        return run(bench, devices, small=True)
    finally:
        bench.close()


ROWS, DEPTH, COLUMNS = 12, 8, 20
PRODUCT = f"""
import ctypes, json, os
from gpucheck.compute.engines.cublas import CublasEngine, Matrix
from gpucheck.compute.values import Setup
from gpucheck.model.device import Device
engine = CublasEngine()
opened = engine.open(Setup(device=Device(index=0, name="GPU", bus_id="BUS_ID"), parent_pid=os.getppid(), small=True))
def data(matrix):
    engine.digest(matrix)
    return ctypes.string_at(engine.pinned, matrix.nbytes).hex()
def chain(type_):
    left, right = engine.pair(type_, {ROWS}, {DEPTH}, {COLUMNS})
    first = engine.multiply(type_, left, right)
    found = [data(first)]
    again = engine.shrink(type_, first)
    wide = engine._matrix(type_, {COLUMNS}, {COLUMNS}, 3, 1.0)
    return found + [data(engine.multiply(type_, again, wide)), data(first)]
long = engine._matrix("fp16", 4096, 64, 1, 1.0)
print(json.dumps({{"types": opened.types, "long": data(long), "chains": {{t: chain(t) for t in opened.types}}}}))
"""


def unpacked(type_, data, *, result):
    """The values in so many bytes, by torch, which has every type."""
    torch = pytest.importorskip("torch")
    kinds = {"bf16": torch.bfloat16, "fp16": torch.float16, "int8": torch.int32 if result else torch.int8}
    return torch.frombuffer(bytearray(data), dtype=kinds.get(type_, torch.float32)).double()


def test_products_of_every_type_are_those_of_the_operands(machine):
    """Rows, depth and columns differ, so that another layout, leading dimension or transposition is another product."""
    code = PRODUCT.replace("BUS_ID", gpus(1)[0].bus_id)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)

    def operand(type_, seed, rows, columns, scale):
        return unpacked(type_, tile(type_, seed, scale), result=False)[: rows * columns].reshape(rows, columns)

    assert set(found["types"]) == {"fp32", "tf32", "bf16", "fp16", "int8"}
    for type_, (first, second, kept) in found["chains"].items():
        left = operand(type_, 1, ROWS, DEPTH, 1.0)
        right = operand(type_, 2, COLUMNS, DEPTH, 0.25)
        made = unpacked(type_, bytes.fromhex(first), result=True).reshape(ROWS, COLUMNS)
        assert made.sub(left @ right.T).abs().max() <= 0.01, type_
        again = unpacked(type_, bytes.fromhex(first), result=False)[: ROWS * COLUMNS].reshape(ROWS, COLUMNS)
        next_ = unpacked(type_, bytes.fromhex(second), result=True).reshape(ROWS, COLUMNS)
        assert next_.sub(again @ operand(type_, 3, COLUMNS, COLUMNS, 1.0).T).abs().max() <= 0.02, type_
        assert kept == first, "a result is not written to while it is an operand"
    whole = tile("fp16", 1, 1.0) * (4096 * 64 // TILE + 1)
    assert bytes.fromhex(found["long"]) == whole[: 4096 * 64 * 2]


@pytest.mark.parametrize("type_", ["fp32", "bf16", "fp16", "int8"])
def test_operands_are_those_of_torchs_engine(type_):
    torch = pytest.importorskip("torch")
    engine = TorchEngine()
    engine.torch, engine.device = torch, torch.device("cpu")
    scale = 1.0 if type_ == "int8" else 2.0**-5
    expected = engine.cast(type_, engine.numbers(1, TILE, 2) * scale).reshape(-1).double()

    assert unpacked(type_, tile(type_, 2, 2.0**-5), result=False).equal(expected)


def test_a_run_has_what_cublas_can_do_and_says_what_only_torch_tests(machine):
    ran = computed(2)
    one, other = ran.devices

    assert set(one.repeats) == {f"matrix-{type_}" for type_ in ("fp32", "tf32", "bf16", "fp16", "int8")}
    assert {type_ for type_, rate in one.gemm.items() if rate.tflops} == {"fp32", "tf32", "bf16", "fp16", "int8"}
    assert (one.memory.read_gb_s, one.memory.write_gb_s > 0, one.memory.copy_gb_s > 0) == (None, True, True)
    assert (one.digests, one.failed, one.capability) == (other.digests, None, "10.0")
    assert one.traces[0].sm_clock_mhz
    versions = ran.collected[0].opened.versions
    assert versions == {"cublas": "13.10.0", "cuda driver": versions["cuda driver"]}
    assert untested(not_tested(ran.opened[0])) == ("not tested without torch: fp8, read, reduction, attention",)
    assert [f.verdict for f in evaluate(ran.devices) if f.check == "compute-results"] == [Verdict.PASS]


@pytest.mark.parametrize(
    ("fault", "count", "verdict", "code", "seen"),
    [
        ("CUBLAS_STUB=wrong 15", 2, Verdict.FAIL, "compute.repeats-differ", "1 of"),
        ("CUBLAS_STUB=other 0", 3, Verdict.FAIL, "compute.result-differs", "1 operations differ"),
        ("CUBLAS_STUB=other 0", 2, Verdict.UNKNOWN, "compute.no-majority", "1 operations differ"),
        ("CUBLAS_STUB=status 13 9", 2, Verdict.FAIL, "compute.cuda-error", "failed to launch on the GPU"),
        ("CUBLAS_STUB=status 14 9", 2, Verdict.FAIL, "compute.cuda-error", "cuBLAS status 14"),
        ("CUBLAS_STUB=status 15 9", 2, Verdict.UNKNOWN, "compute.engine-failed", "NotImplementedError"),
        ("CUBLAS_STUB=status 8 0", 2, Verdict.UNKNOWN, "compute.torch-rejects-gpu", "rejected by cublas 13.10.0"),
        ("CUBLAS_STUB=create 1", 2, Verdict.UNKNOWN, "compute.torch-rejects-gpu", "from cublasCreate_v2"),
        ("CUBLAS_STUB=hang 9", 2, Verdict.FAIL, "compute.work-stuck", "no progress"),
        ("GPUCHECK_CUDA_ERROR=cuMemAlloc=2", 2, Verdict.UNKNOWN, "compute.no-memory", "out of memory"),
        ("GPUCHECK_CUDA_ERROR=cuInit=100", 2, Verdict.UNKNOWN, "compute.torch-rejects-gpu", "100"),
    ],
)
def test_a_fault_of_one_gpu_is_the_finding_that_torch_would_give(
    machine, monkeypatch, fault, count, verdict, code, seen
):
    only = ComputeStep(kind="results", what="matrix-fp32", seconds=0.02, phase="cold")
    monkeypatch.setattr(running, "steps", lambda *_, **__: (only,))
    monkeypatch.setattr(running, "SLACK_S", 2.0)
    found = [f for f in evaluate(computed(count, fault).devices) if f.verdict is not Verdict.PASS and f.code != CLOCKS]

    assert [(f.verdict, f.code) for f in found] == [(verdict, code)], found
    assert seen in str(found[0].seen)
    assert found[0].subject == ("host" if code == "compute.no-majority" else f"gpu:{gpus(2)[1].bus_id}")


CLOCKS = "compute.clock-not-read"  # too short to read one


def test_nothing_is_planned_that_the_engine_does_not_have():
    planned = tuple(steps(("fp32", "bf16"), without=CublasEngine.without))

    assert {step.what for step in planned} == {"fp32", "bf16", "matrix-fp32", "matrix-bf16", "write", "copy"}
    assert {step.phase for step in planned if step.kind == "results"} == {"cold", "hot", "steps"}


def test_without_cublas_the_name_of_the_missing_package_is_cublas(monkeypatch):
    import cuda.pathfinder

    def absent(name):
        raise cuda.pathfinder.DynamicLibNotFoundError(name)

    monkeypatch.setattr(cuda.pathfinder, "load_nvidia_dynamic_lib", absent)
    with pytest.raises(ModuleNotFoundError) as raised:
        loaded()
    assert raised.value.name == CUBLAS


def test_the_commands_of_a_host_without_torch_compute_with_cublas(machine, monkeypatch):
    """The bench of simulated GPUs is replaced by the children that real GPUs have."""
    monkeypatch.setattr(measure, "machine_directory", lambda: None)
    monkeypatch.setattr(measure, "find_spec", missing("torch"))
    monkeypatch.setattr(measure, "Workers", lambda devices, engine: workers(devices))
    alone = CliRunner().invoke(cli, ["compute", "--devices", "0,1"], standalone_mode=False)
    checked = CliRunner().invoke(cli, ["verify", "--only", "compute", "--format", "json"], standalone_mode=False)
    monkeypatch.setattr(measure, "Workers", lambda devices, engine: workers(devices, "CUBLAS_STUB=wrong 15"))
    wrong = CliRunner().invoke(cli, ["compute", "--devices", "0,1", "--format", "json"], standalone_mode=False)

    assert "engine cublas" in alone.stdout
    assert "note: not tested without torch: fp8, read, reduction, attention" in alone.stdout
    found = [f for f in json.loads(wrong.stdout)["findings"] if f["verdict"] == "fail"]
    assert {(f["cause"], f["confidence"]) for f in found} == {("silent-corruption", "likely")}
    report = json.loads(checked.stdout)
    assert report["measurements"]["compute"]["engine"] == CUBLAS
    assert {f["verdict"] for f in report["findings"] if f["check"] == "compute-results"} == {"pass"}
    assert "computing on GPUs, not tested without torch: fp8, read, reduction, attention" in report["not_proven"]
