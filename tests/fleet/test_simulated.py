import csv
import io

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucheck import fleet
from gpucheck.compute.engines.simulated import SimulatedBench, SimulatedGpu
from gpucheck.compute.running.run import run
from gpucheck.fleet import simulated
from gpucheck.fleet.drawn import Noise
from gpucheck.fleet.simulated import parse_fault
from gpucheck.measure.values import Device
from tests.fleet.reports import report, topology

NAME = "NVIDIA H100 80GB HBM3"


def template(*, gpus=8, bench=None):
    """Return a host on which simulated GPUs computed."""
    names = [f"0000:{i:02x}:00.0" for i in range(gpus)]
    bench = bench or SimulatedBench([gpu_of(name) for name in names])
    devices = tuple(Device(index=i, name=NAME, bus_id=name) for i, name in enumerate(names))
    ran = run(bench, devices, small=False, doubtful=lambda _: ())
    step = {
        "engine": "simulated",
        "versions": {"engine": "simulated"},
        "gpus": msgspec.json.decode(msgspec.json.encode(ran.devices)),
    }
    step["gpus"] = [{"gpu": gpu["index"], **gpu} for gpu in step["gpus"]]
    return report("template", topology=topology(gpus), measurements={"compute": step})


def gpu_of(bus_id, **changes):
    limits = {"clock_mhz": 1980.0, "power_limit_w": 700.0, "power_default_w": 700.0, "slowdown_c": 87.0}
    memory = {"multiprocessors": 132, "memory_bus_bits": 5120, "memory_clock_mhz": 2619.0}
    return SimulatedGpu(**{"name": NAME, "bus_id": bus_id, "capability": "9.0", **limits, **memory, **changes})


def shown(hosts, *faults, gpus=8):
    planned = simulated.plan(hosts, [parse_fault(words) for words in faults], seed=1)
    bare = report("template", topology=topology(gpus), measurements={})
    made = simulated.reports(planned, {None: bare}, Noise())
    rows = [fleet.row(each, digest=each.host) for each in made]
    return planned, fleet.merge(rows)


def test_the_truth_names_every_sick_host():
    planned, _ = shown(100, "slow-gpu:gpu=3,loss=20:3%", "slow-host:loss=10:2")

    lines = list(csv.DictReader(io.StringIO(simulated.truth(planned))))
    told = [line["fault"] for line in lines if line["fault"]]

    assert len(lines) == 100
    assert sorted(told) == ["slow-gpu:gpu=3,loss=20:3%"] * 3 + ["slow-host:loss=10:2"] * 2


@pytest.mark.parametrize("fault", ["slow-host:loss=10:5", "slow-gpu:gpu=3,loss=10:5", "slow-pair:pair=2-5,loss=20:5"])
def test_the_fleet_finds_exactly_the_sick(fault):
    planned, merged = shown(300, fault)

    assert {o.host for o in merged.outliers} == {h.name for h in planned if h.fault}


def test_the_sick_gpu_is_the_one_that_is_named():
    """The collectives that go through it are slower as well."""
    _, merged = shown(200, "slow-gpu:gpu=3,loss=15:4")
    copies = [outlier for outlier in merged.outliers if outlier.metric.startswith("p2p")]

    assert {(o.level, o.at) for o in copies} == {("gpu", "0000:03:00.0")}
    assert {o.metric.partition(".")[0] for o in merged.outliers} == {"p2p", "collectives"}


@pytest.mark.parametrize("seed", range(5))
def test_healthy_fleets_of_a_hundred_hosts_have_no_outlier(seed):
    planned = simulated.plan(100, [], seed)
    made = simulated.reports(planned, {None: template()}, Noise())
    merged = fleet.merge([fleet.row(each, digest=each.host) for each in made])

    assert not merged.outliers
    assert {entry.outcome for entry in merged.agreements} == {"equal"}
    assert not [row.host for row in merged.hosts if row.problems]
    metrics = {group.metric.partition("[")[0] for group in merged.metrics}
    assert {
        "compute.gemm.bf16.tflops",
        "compute.memory.read_gb_s",
        "smoke-ddp.steps_per_s",
        "collectives.busbw_gb_s",
    } <= metrics


def test_slow_training_hosts_of_a_rack_are_named_with_what_they_share():
    _, merged = shown(96, "slow-training:loss=15:rack=r002")

    assert {(o.metric, o.level) for o in merged.outliers} == {("smoke-ddp.steps_per_s[mlp fp32 8 ranks]", "host")}
    assert len(merged.outliers) == 16
    assert [cause.attributes for cause in merged.causes] == [("rack = r002",)]


def test_wrong_losses_name_the_host():
    planned, merged = shown(60, "wrong-losses:2")

    assert {row.host for row in merged.hosts if row.problems} == {host.name for host in planned if host.fault}
    (losses,) = merged.agreements
    assert (losses.outcome, losses.results, losses.equal) == ("outlier", 60, 58)


def test_a_sick_rack_is_told_as_what_the_sick_share():
    _, merged = shown(160, "slow-host:loss=12:rack=r004")

    assert any("rack = r004" in cause.attributes for cause in merged.causes)


def test_the_same_seed_draws_the_same_fleet():
    assert shown(20, "slow-host:loss=10:2") == shown(20, "slow-host:loss=10:2")


def test_every_report_says_simulated_and_which_fault_was_drawn():
    planned = simulated.plan(3, [parse_fault("slow-host:loss=10:3")], seed=0)
    made = list(simulated.reports(planned, {None: report("t")}, Noise()))

    told = [each.simulation for each in made if each.simulated and each.simulation]
    assert [simulation.faults for simulation in told] == [("slow-host:loss=10:3",)] * 3
    assert all("drawn bandwidths" in simulation.stand_ins for simulation in told)


@pytest.mark.parametrize(
    "words",
    [
        *("slow-host", "slow-host:", ":3%", "slow-host:loss=0:1", "slow-host:loss=101:1", "slow-gpu:gpu=x:1"),
        *("x:a=1,a=2:1", "slow-pair:pair=0-x:1", "slow-host:wrong=1:1", "slow-host:loss:1", "x:1.5"),
    ],
)
def test_a_fault_that_is_not_understood_is_refused(words):
    with pytest.raises(ValueError, match="--fault"):
        parse_fault(words)


def test_more_sick_hosts_than_hosts_are_refused():
    with pytest.raises(ValueError, match="still healthy"):
        simulated.plan(10, [parse_fault("slow-host:6"), parse_fault("slow-gpu:gpu=1:6")], seed=0)
    with pytest.raises(ValueError, match="no free host is in rack"):
        simulated.plan(10, [parse_fault("slow-host:rack=r999")], seed=0)


@settings(deadline=None)
@given(st.text(max_size=30))
def test_any_words_are_a_fault_or_refused(words):
    """What is understood can be written again, and means the same."""
    try:
        fault = parse_fault(words)
    except ValueError:
        return
    assert parse_fault(fault.words) == fault
