"""Outliers of simulated fleets with a known truth: exactly the hosts, GPUs and racks with a fault are named."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpucheck import fleet
from tests.fleet.reports import report, topology

# The fleets of bench/fleet.sh.
simulated = SimpleNamespace(**runpy.run_path(str(Path(__file__).parents[2] / "bench" / "simulated_fleet.py")))


def merged(hosts, *faults, seed=1):
    planned = simulated.plan(hosts, [simulated.parse_fault(words) for words in faults], seed)
    healthy = report("template", topology=topology(8), measurements={})
    rows = [fleet.row(simulated.report(host, healthy), digest=host.name) for host in planned]
    return planned, fleet.merge(rows)


@pytest.mark.parametrize("fault", ["slow-host:loss=10:5", "slow-gpu:gpu=3,loss=10:5", "slow-pair:pair=2-5,loss=20:5"])
def test_the_fleet_finds_exactly_the_sick(fault):
    planned, found = merged(300, fault)

    assert {o.host for o in found.outliers} == {h.name for h in planned if h.fault}


def test_the_sick_gpu_is_the_one_that_is_named():
    _, found = merged(200, "slow-gpu:gpu=3,loss=15:4")

    assert {(o.level, o.at) for o in found.outliers} == {("gpu", "0000:03:00.0")}


@pytest.mark.parametrize("seed", range(5))
def test_healthy_fleets_of_a_hundred_hosts_have_no_outlier(seed):
    _, found = merged(100, seed=seed)

    assert found.metrics
    assert not found.outliers


def test_a_sick_rack_is_what_the_sick_share():
    planned, found = merged(160, "slow-host:loss=12:rack=r004", "slow-pair:pair=0-1,loss=20:1%")

    assert [cause.attributes for cause in found.causes] == [("rack = r004",)]
    assert all(row.simulated for row in found.hosts)
    assert sum(host.fault is not None for host in planned) == 18
