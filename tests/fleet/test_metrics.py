import msgspec
import pytest

from gpucheck.fleet.metrics import MAX_METRICS, worse
from tests.fleet import reports
from tests.fleet.reports import bad, report


def metrics(**measured):
    return reports.metrics(report("a", measurements=measured))


def test_pairs_are_named_by_class_and_placed_by_bus_id():
    found = reports.metrics(report("a", 380.0, pairs={"1-2": 300.0}))

    metric = found["p2p.matrices.p2p_uni_gb_s[NV18]"]
    assert (metric.n, metric.host, metric.pair, metric.low) == (12, 380.0, 300.0, 350.0)
    assert metric.pair_at == "0000:01:00.0-0000:02:00.0"


def test_both_ways_latencies_and_links_to_the_host_are_metrics():
    of_pair = {"both_ways_gb_s": 700.0, "latency_us": 2.0, "load_latency_us": 3.0, "staged_gb_s": 40.0}
    pairs = [{"src": a, "dst": 1 - a, "class": "NV18", **of_pair} for a in (0, 1)]
    links = [{"device": 0, "h2d_gb_s": 50.0}, {"device": 1, "h2d_gb_s": 40.0}, {"device": 7, "h2d_gb_s": 1.0}]
    devices = [{"index": n, "name": "H100", "bus_id": f"0000:0{n}:00.0"} for n in (0, 1)]
    found = metrics(p2p={"engine": "driver", "devices": devices, "pairs": pairs, "host_device": links})

    assert {name: metric.host for name, metric in found.items()} == {
        "p2p.h2d_gb_s[driver]": 45.0,
        "p2p.matrices.load_latency_us[NV18]": 3.0,
        "p2p.matrices.p2p_bidir_gb_s[NV18]": 700.0,
        "p2p.matrices.p2p_latency_us[NV18]": 2.0,
        "p2p.matrices.staged_uni_gb_s[NV18]": 40.0,
    }
    assert (found["p2p.h2d_gb_s[driver]"].gpu, found["p2p.h2d_gb_s[driver]"].gpu_at) == (40.0, "0000:01:00.0")


def test_every_operation_and_size_of_a_collective_is_a_metric_of_its_ranks():
    """One number: the time and the algorithm bandwidth follow from the bus bandwidth."""
    results = [
        {"operation": op, "size_bytes": size, "variant": variant, "time_us": 5.0, "algbw_gb_s": 1.0, "busbw_gb_s": rate}
        for op, size, variant, rate in (("all_reduce", 2**30, "as is", 400.0), ("all_reduce", 2**30, "ring", 300.0),
                                        ("broadcast", 2**20, "as is", 20.0))
    ]  # fmt: skip
    found = metrics(collectives={"backend": "nccl", "ranks": 8, "results": results})

    assert {name: metric.host for name, metric in found.items()} == {
        "collectives.busbw_gb_s[all_reduce 1 GiB 8 ranks]": 400.0,
        "collectives.busbw_gb_s[all_reduce 1 GiB 8 ranks ring]": 300.0,
        "collectives.busbw_gb_s[broadcast 1 MiB 8 ranks]": 20.0,
    }


def training(**changes):
    run = {"type": "result", "model": "mlp", "precision": "fp32", "placement": "gpus", "world_size": 8, "variant": ""}
    return run | {"performance": {"steps_per_s": 120.0, "straggler_ratio": 1.1}, "limits": {"x_bytes": 1}} | changes


def test_steps_per_second_are_a_metric_of_each_training_and_few_of_them_are_bad():
    found = metrics(**{"smoke-ddp": training(variants={"nvls": training(variant="nvls", model="gpt")})})

    name = "smoke-ddp.steps_per_s[mlp fp32 8 ranks]"
    assert (found[name].host, worse(name)) == (120.0, "lower")
    assert "smoke-ddp.nvls.steps_per_s[gpt fp32 8 ranks nvls]" in found
    assert not [name for name in found if "limits" in name]


@pytest.mark.parametrize(
    ("step", "measured"),
    [
        ("smoke-ddp", training(placement="cpu")),
        ("collectives", {"backend": "gloo", "results": [{"operation": "all_reduce", "busbw_gb_s": 1.0}]}),
        ("compute", {"engine": "torch on the CPU", "gpus": [{"gemm": {"fp32": {"tflops": 0.1}}}]}),
    ],
)
def test_processors_of_a_host_are_not_compared_as_its_gpus(step, measured):
    assert not metrics(**{step: measured})


def test_readings_under_load_become_a_few_numbers_of_each_gpu():
    reasons = [["sw-power-cap"], ["sw-thermal"], [], None]
    traces = [{"at": i, "temperature_c": 60 + i, "power_w": 500.0, "reasons": each} for i, each in enumerate(reasons)]
    gpus = [
        {
            "index": 0,
            "gpu": 0,
            "name": "H100",
            "bus_id": "0000:00:00.0",
            "traces": traces,
            "errors": {"pcie_replays": 3, "nvlink_crc": 2},
        },
        {"index": 1, "gpu": 1, "name": "H100", "bus_id": "0000:01:00.0", "traces": traces[:1], "errors": {}},
    ]
    found = metrics(compute={"engine": "torch", "gpus": [{"name": "H100", **gpu} for gpu in gpus]})

    assert (found["compute.temperature_c"].gpu, found["compute.temperature_c"].gpu_at) == (63.0, "0000:00:00.0")
    assert found["compute.throttled_percent[sw-thermal]"].gpu == pytest.approx(100 / 3, abs=0.01)
    assert found["compute.throttled_percent[hw-thermal]"].host == 0.0
    assert (found["compute.errors_count"].gpu, found["compute.errors_count"].n) == (5.0, 2)
    assert not [name for name in found if "power_w" in name]


def test_numbers_that_findings_saw_count():
    found = reports.metrics(report("a", measurements={}, findings=(bad(seen=3, subject="gpu:0000:01:00.0"),)))
    with_unit = reports.metrics(report("a", measurements={}, findings=(_with_unit(),)))

    assert not found
    assert with_unit["finding.nvlink.gb_s"].host == 3.0


def _with_unit():
    return msgspec.structs.replace(bad(seen=3), unit="GB/s")


def test_a_hostile_report_cannot_make_a_million_metrics():
    gemm = {f"type{i}": {"tflops": float(i)} for i in range(5000)}
    gpu = {"index": 0, "name": "H100", "bus_id": "0000:00:00.0", "gemm": gemm}

    assert len(metrics(compute={"engine": "torch", "gpus": [gpu]})) == MAX_METRICS
