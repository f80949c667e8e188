import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucheck import fleet
from gpucheck.fleet import simulated
from gpucheck.fleet.simulated import Noise, parse_fault
from tests.fleet.reports import report, topology


def shown(hosts, *faults, gpus=8):
    planned = simulated.plan(hosts, [parse_fault(words) for words in faults], seed=1)
    template = report("template", topology=topology(gpus), measurements={})
    made = simulated.reports(planned, {None: template}, Noise())
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
    _, merged = shown(200, "slow-gpu:gpu=3,loss=15:4")

    assert {(o.level, o.at) for o in merged.outliers} == {("gpu", "0000:03:00.0")}


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
