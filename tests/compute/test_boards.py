"""Every board of the knowledge at its data sheet: healthy boards pass each type, a board at 40 % does not."""

import pytest

from gpucheck.compute.evaluation import evaluate
from gpucheck.compute.running.run import matrix_rate
from gpucheck.knowledge.compute import compute_table, operations_per_clock, operations_row
from gpucheck.knowledge.gpus import gpus
from gpucheck.model import Verdict
from gpucheck.model.compute import Rate
from tests.compute.machines import device

TABLE = compute_table()
BOARDS = [gpu for gpu in gpus() if operations_per_clock(gpu.compute_capability, gpu.name)]


def sheets(name, capability):
    """The data sheets of the board, else those of a board of the same row."""
    row = operations_row(capability, name)
    alike = [one for one in TABLE.published if operations_row(one.capability, one.gpu) is row]
    return [one for one in alike if one.gpu.endswith(name)] or alike


def measured(name, capability, part, faster=1.0):
    """The board at a part of its data sheet; real clocks are not exactly those of the sheet."""
    rows = sheets(name, capability)
    made = device(0, name=name, capability=capability, multiprocessors=rows[0].multiprocessors, gemm={})
    gemm = {
        type_: matrix_rate(
            made, type_, Rate(median=tflops * part, samples=30, mad_percent=0.2, clock_mhz=row.mhz * faster)
        )
        for row in rows
        for type_, tflops in row.tflops.items()
    }
    return device(0, name=name, capability=capability, multiprocessors=rows[0].multiprocessors, gemm=gemm)


def verdicts(*devices):
    return {finding.verdict for finding in evaluate(devices) if finding.check == "compute-matrix"}


def test_all_boards_with_matrix_rates_are_walked():
    assert len(BOARDS) > 100
    assert {gpu.name for gpu in gpus() if float(gpu.compute_capability) >= 6.0} - {gpu.name for gpu in BOARDS} == {
        "NVIDIA GB10",
        "NVIDIA RTX PRO 6000D Blackwell Workstation Edition",
    }


@pytest.mark.parametrize("gpu", BOARDS, ids=lambda gpu: gpu.name)
def test_a_healthy_board_passes_and_one_at_40_percent_does_not(gpu):
    name, capability = gpu.name, gpu.compute_capability

    for part, faster in ((0.85, 1.0), (0.95, 1.0), (0.85, 1.1)):
        made = measured(name, capability, part, faster)
        assert all(rate.of_ceiling is not None for rate in made.gemm.values())
        assert verdicts(made) == {Verdict.PASS}, (part, faster, made.gemm)
    assert verdicts(measured(name, capability, 0.40)) == {Verdict.WARN}


def test_an_unknown_board_is_compared_with_its_own_kind_only():
    known, unknown = "NVIDIA H100 80GB HBM3", "NVIDIA PG520-230"
    slow = {name: device(0, name=name, tflops=100.0, gemm=device(0, tflops=100.0).gemm) for name in (known, unknown)}
    rate = Rate(median=100.0, samples=30, mad_percent=0.2, clock_mhz=1800.0)
    alone = {n: device(0, name=n, gemm={"bf16": matrix_rate(one, "bf16", rate)}) for n, one in slow.items()}
    groups = {n: [one, *(device(i, name=n) for i in (1, 2, 3))] for n, one in alone.items()}

    assert [verdicts(one) for one in alone.values()] == [{Verdict.WARN}, {Verdict.PASS}]
    codes = [
        next(f.code for f in evaluate(group) if f.verdict is Verdict.WARN and f.check == "compute-matrix")
        for group in groups.values()
    ]
    assert codes == ["compute.matrix-slow", "compute.matrix-slow-unlisted"]
