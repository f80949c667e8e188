"""Reports of gpucheck compute, as of burn-ins, are hosts of a fleet."""

import msgspec
import pytest

from gpucheck import fleet
from gpucheck.compute.engines.simulated import ComputeGpu, SimulatedBench
from gpucheck.fleet import rows_of
from gpucheck.model import Finding, Simulation, Verdict
from gpucheck.model.compute import ComputeReport
from gpucheck.model.device import Device
from tests.compute.machines import run

NAME = "NVIDIA H100 80GB HBM3"
BUS = [f"0000:{i:02x}:00.0" for i in range(4)]
PASSED = Finding(check="compute-matrix", verdict=Verdict.PASS, subject="host", seen="4 GPUs")
SLOW = Finding(
    check="compute-matrix",
    verdict=Verdict.FAIL,
    subject=f"gpu:{BUS[1]}",
    seen="668 TFLOPS",
    wanted="725 TFLOPS",
    why="slow",
    fix="reset",
    cause="slow-compute",
)


def gpu_of(bus_id, **changes):
    limits = {"clock_mhz": 1980.0, "power_limit_w": 700.0, "power_default_w": 700.0, "slowdown_c": 87.0}
    memory = {"multiprocessors": 132, "memory_bus_bits": 5120, "memory_clock_mhz": 2619.0}
    return ComputeGpu(**{"name": NAME, "bus_id": bus_id, "capability": "9.0", **limits, **memory, **changes})


def burnt_in(host, seed, *, findings=(PASSED,), **first):
    """A host with four simulated GPUs. first: what is wrong with the second of them."""
    bench = SimulatedBench([gpu_of(bus_id, **(first if i == 1 else {})) for i, bus_id in enumerate(BUS)], seed)
    ran = run(bench, tuple(Device(index=i, name=NAME, bus_id=bus_id) for i, bus_id in enumerate(BUS)))
    report = ComputeReport(
        host=host,
        simulated=True,
        simulation=Simulation(profile="hgx-h100-x4"),
        engine="simulated",
        level="burn-in",
        versions={"engine": "simulated"},
        started="2026-11-21T12:00:00+00:00",
        seconds=600.0,
        load_seconds=500.0,
        gpus=ran.devices,
        verdict=findings[0].verdict,
        findings=findings,
        counts={each.value: sum(f.verdict is each for f in findings) for each in Verdict},
    )
    return msgspec.json.encode(report)


def merged(*documents):
    return fleet.merge([row for i, each in enumerate(documents) for row in rows_of(each, f"n{i}.json", f"n{i}")])


def test_a_burn_in_is_a_host_with_its_findings_and_numbers():
    (row,) = rows_of(burnt_in("n0", 0, findings=(SLOW,)), "n0.json", "n0")

    assert (row.host, row.verdict, row.simulated, row.gpu_count, row.system) == ("n0", Verdict.FAIL, True, 4, None)
    assert [(f.check, f.cause) for f in row.problems] == [("compute-matrix", "slow-compute")]
    assert "compute.gemm.bf16.tflops[simulated]" in row.metrics
    assert len(row.digests) == 4
    assert set(row.attributes) == {"engine"}


@pytest.mark.parametrize(
    ("fault", "metric"),
    [
        ({"matrix_loss": 0.2}, "compute.gemm.bf16.tflops[simulated]"),
        ({"memory_loss": 0.2}, "compute.memory.read_gb_s[simulated]"),
        ({"rise": 3.0}, "compute.temperature_c"),
        ({"rise": 3.0}, "compute.throttled_percent[sw-thermal]"),
    ],
)
def test_burn_ins_are_compared_between_hosts(fault, metric):
    healthy = [burnt_in(f"n{seed}", seed) for seed in range(8)]

    assert not merged(*healthy).outliers
    found = merged(*healthy, burnt_in("n8", 8, **fault)).outliers
    assert {(o.host, o.level, o.at) for o in found} <= {("n8", "gpu", BUS[1]), ("n8", "host", None)}
    assert [(o.level, o.at) for o in found if o.metric == metric] == [("gpu", BUS[1])]


def test_results_of_burn_ins_are_compared_between_hosts():
    hosts = [burnt_in(f"n{seed}", seed) for seed in range(3)]
    rows = merged(*hosts, burnt_in("n3", 3, always=True)).hosts

    assert [(row.host, f.subject, f.cause) for row in rows for f in row.problems] == [
        ("n3", f"gpu:{BUS[1]}", "silent-corruption")
    ]


@pytest.mark.parametrize("change", [{"schema": "gpucheck.compute/9"}, {"host": "x" * 300}, {"host": ""}])
def test_another_document_is_no_burn_in(change):
    content = msgspec.json.decode(burnt_in("n0", 0)) | change
    (row,) = rows_of(msgspec.json.encode(content), "n0.json", "n0")

    assert row.digest is None
    assert row.verdict is Verdict.UNKNOWN
