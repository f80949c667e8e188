"""Compute, collectives and trainings of a host against its own earlier report: the spreads of both decide."""

import pytest
from msgspec.structs import replace

from gpucheck import comparison
from gpucheck.model import Verdict
from tests.comparison.reports import GPUS, THEN, loud, report

BUS = [gpu.pci_bus_id for gpu in GPUS]
TORCH = {"torch": "2.9.1", "cuda": "12.8"}
NEWER, UPGRADE = {"torch": "2.10"}, ("torch 2.9.1 -> 2.10", "cuda 12.8 -> none")


def compute(factor=1.0, *, mad=0.2, digests=("aa", "aa"), versions=TORCH, way=1.0, uuids=("u0", "u1"), **changes):
    gpus = [
        {
            "gpu": i,
            "index": i,
            "name": "H100",
            "bus_id": bus_id,
            "uuid": uuids[i],
            "gemm": {"bf16": {"tflops": 700.0 * (factor if i == 1 else 1.0), "clock_mhz": 1800.0, "mad_percent": mad}},
            "memory": {"read_gb_s": 3000.0 * (way if i == 1 else 1.0), "mad_percent": {"read": mad}},
            "digests": {"matrix-bf16": digests[i]},
        }
        for i, bus_id in enumerate(BUS)
    ]
    return {"compute": {"engine": "torch", "versions": versions, "gpus": gpus} | changes}


def collectives(rate=400.0, mad=0.5, ranks=8):
    result = {
        "operation": "all_reduce",
        "size_bytes": 2**30,
        "variant": "as is",
        "busbw_gb_s": rate,
        "mad_percent": mad,
    }
    return {"collectives": {"backend": "nccl", "ranks": ranks, "results": [result]}}


def training(rate=120.0, mad=1.0, digest="d" * 64, **changes):
    run = {"type": "result", "strategy": "ddp", "model": "mlp", "precision": "fp32", "backend": "nccl", "steps": 40}
    run |= {"placement": "gpus", "device_names": ["H100", "H100"], "bus_ids": BUS, "world_size": 2, "seed": 1}
    run |= {"loss_digest": digest, "versions": TORCH, "variants": {}}
    return {"smoke-ddp": run | {"performance": {"steps_per_s": rate, "steps_mad_percent": mad}} | changes}


def found(then, now):
    """Findings of a run with these measurements against an earlier one."""
    before, after = report(*GPUS, started=THEN), report(*GPUS)
    before = replace(before, measurements={**before.measurements, **then})
    return list(comparison.compare(before, replace(after, measurements={**after.measurements, **now})))


def alarms(then, now):
    return [(f.verdict, f.subject, f.cause) for f in loud(found(then, now))]


@pytest.mark.parametrize("measured", [compute(), collectives(), training(), {}])
def test_equal_numbers_are_no_finding(measured):
    assert [f.verdict for f in found(measured, measured)] == [Verdict.PASS]


def slower(now):
    return (compute(now), collectives(400 * now), training(120 * now))


@pytest.mark.parametrize(("part", "subject"), [(0, f"gpu:{BUS[1]}"), (1, "host"), (2, "host")])
@pytest.mark.parametrize(("now", "verdict"), [(0.98, None), (0.92, Verdict.WARN), (0.7, Verdict.FAIL), (1.5, None)])
def test_a_rate_below_what_spreads_explain_is_a_regression(part, subject, now, verdict):
    expected = [(verdict, subject, "regression")] if verdict else []

    assert alarms(slower(1.0)[part], slower(now)[part]) == expected


def test_memory_is_compared_by_itself():
    (only,) = loud(found(compute(), compute(way=0.8)))

    assert (only.subject, only.seen, only.wanted, only.unit) == (f"gpu:{BUS[1]}", 2400.0, 3000.0, "GB/s")
    assert only.evidence == (f"{only.subject}: compute memory read [torch] (GB/s): 3000 then, 2400 now",)


def test_clocks_of_matrix_products_are_evidence():
    (only,) = loud(found(compute(), compute(0.8)))

    assert only.evidence[0].endswith("(TFLOPS): 700 then, 560 now, at 1800 and 1800 MHz")


@pytest.mark.parametrize("measured", [lambda **f: compute(f.get("rate", 1), mad=f["mad"]),
                                      lambda **f: collectives(400 * f.get("rate", 1), f["mad"]),
                                      lambda **f: training(120 * f.get("rate", 1), f["mad"])])  # fmt: skip
def test_the_spread_of_either_run_widens_the_limit(measured):
    steady, noisy = measured(mad=0.2), measured(mad=5.0)

    assert alarms(steady, measured(mad=0.2, rate=0.88))
    assert not alarms(noisy, measured(mad=0.2, rate=0.88))
    assert not alarms(steady, measured(mad=5.0, rate=0.88))


@pytest.mark.parametrize(
    ("then", "now", "code", "values"),
    [
        (compute(), compute(0.5, engine="cublas"), "engine-changed", {"then": "torch", "now": "cublas"}),
        (compute(), compute(0.5, uuids=("u0", "new")), "slot-changed", {"slot": BUS[1]}),
        (compute(), {}, "numbers-missing", {"what": "compute", "report": "report"}),
        ({}, compute(), "numbers-missing", {"what": "compute", "report": "baseline"}),
        (compute(), compute(digests=("bb", "bb"), versions=NEWER), "settings-changed", {"changes": UPGRADE}),
        (collectives(), collectives(100.0, ranks=4), "ranks-changed", {"then": 8, "now": 4}),
        (training(), training(10.0, world_size=8), "settings-changed", {"changes": ("world_size 2 -> 8",)}),
        (training(), training(10.0, device_names=["T4", "T4"]), "settings-changed", {"changes": ("GPUs",)}),
        (training(), training(10.0, mad=None), "spread-missing", {"training": "ddp", "report": "report"}),
        (training(), training(digest="e" * 64, versions=NEWER), "settings-changed", {"changes": UPGRADE}),
        (training(), training(digest="e" * 64, bus_ids=["a", "b"]), "settings-changed", {"changes": ("GPUs",)}),
        (training(), {}, "numbers-missing", {"what": "training on GPUs"}),
    ],
)
def test_what_is_not_comparable_is_stated_with_the_reason(then, now, code, values):
    every = found(then, now)

    assert not loud(every)
    reasons = [f.values for f in every if f.code == f"comparison.{code}" and f.verdict is Verdict.SKIP]
    assert any(values.items() <= reason.items() for reason in reasons)


def test_other_results_of_one_gpu_are_a_failure_and_of_all_a_doubt():
    assert alarms(compute(), compute(digests=("aa", "bb"))) == [(Verdict.FAIL, f"gpu:{BUS[1]}", "silent-corruption")]
    every = [(Verdict.WARN, f"gpu:{bus_id}", "silent-corruption") for bus_id in BUS]
    assert alarms(compute(), compute(digests=("bb", "bb"))) == every


def test_other_losses_of_equal_settings_are_a_warning():
    assert alarms(training(), training(digest="e" * 64)) == [(Verdict.WARN, "host", "silent-corruption")]
    nvls = {"variants": {"nvls": training(variant="nvls")["smoke-ddp"]}}
    other = {"variants": {"nvls": training(variant="nvls", digest="e" * 64)["smoke-ddp"]}}
    assert not alarms(training(**nvls), training(**other))


@pytest.mark.parametrize("run", [training(placement="cpu"), collectives() | {"collectives": {"backend": "gloo"}}])
def test_processors_of_the_host_are_not_compared_as_gpus(run):
    assert [f.verdict for f in found({}, run)] == [Verdict.PASS]
