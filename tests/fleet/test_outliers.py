import random

import pytest

from gpucheck.fleet.outliers import LIMITS, fisher, middle_of, widened
from gpucheck.model import Verdict
from tests.fleet.reports import bad, merged, report, steady

METRIC = "p2p.matrices.p2p_uni_gb_s[NV18]"


def test_a_slow_host_stands_out_and_is_a_warning():
    """Its own run saw nothing wrong; its peers do better."""
    fleet = merged(*steady(), report("slow", 340.0))

    (outlier,) = fleet.outliers
    assert (outlier.host, outlier.metric, outlier.level, outlier.at) == ("slow", METRIC, "host", None)
    assert outlier.percent == pytest.approx(-10.5, abs=0.2)
    slow = next(row for row in fleet.hosts if row.host == "slow")
    assert slow.verdict is Verdict.WARN
    assert (slow.problems[0].check, slow.problems[0].seen, slow.problems[0].unit) == ("fleet", 340.0, "GB/s")


def test_a_slow_gpu_is_named_by_its_bus_id():
    slow = {f"{min(2, o)}-{max(2, o)}": 330.0 for o in (0, 1, 3)}
    (outlier,) = merged(*steady(), report("slow", 380.0, pairs=slow)).outliers

    assert (outlier.host, outlier.level, outlier.at) == ("slow", "gpu", "0000:02:00.0")


def test_a_slow_pair_is_named_and_not_its_gpus():
    (outlier,) = merged(*steady(), report("slow", 380.0, pairs={"0-3": 300.0})).outliers

    assert (outlier.host, outlier.level, outlier.at) == ("slow", "pair", "0000:00:00.0-0000:03:00.0")


def test_a_fast_host_is_not_sick():
    assert not merged(*steady(), report("fast", 430.0)).outliers


def carded(host, gbit):
    """A host as its record has it: four network cards of a rate."""
    card = {"device": {"name": "mlx5_0", "model": "MT4129", "ports": [{"rate_gbit_s": gbit}]}}
    return report(host, measurements={"gpu-health": {"nics": [card] * 4}})


@pytest.mark.parametrize(("gbit", "named"), [(400.0, []), (100.0, ["odd"])])
def test_a_rate_in_gigabits_is_no_time(gbit, named):
    fleet = merged(*(carded(f"n{n}", 200.0) for n in range(12)), carded("odd", gbit))

    assert [outlier.host for outlier in fleet.outliers] == named
    found = [(one.unit, str(one.values["metric"])) for row in fleet.hosts for one in row.problems]
    assert found == [("Gb/s", "gpu-health device rate [MT4129] (Gb/s)")] * len(named)


def test_a_difference_that_means_nothing_is_not_named():
    """A very steady fleet makes 1 % look far away."""
    assert not merged(*[report(f"n{i}", 380.0) for i in range(20)], report("almost", 376.0)).outliers


def test_a_fifth_of_sick_hosts_does_not_become_normal():
    sick = [report(f"sick{i}", 342.0) for i in range(5)]

    assert {o.host for o in merged(*steady(20), *sick).outliers} == {f"sick{i}" for i in range(5)}


def test_few_hosts_are_compared_with_the_model_of_the_machine():
    """Four hosts have no normal; the machine's own lower limit is 350."""
    fleet = merged(report("a", 380.0), report("b", 379.0), report("low", 300.0))

    assert [(o.host, o.z, o.normal) for o in fleet.outliers] == [("low", None, 350.0)]
    assert fleet.metrics[0].basis == "model"


def test_hosts_of_other_gpus_or_driver_branches_are_not_compared():
    other = [report(f"old{i}", 300.0, versions={"driver": "570.10"}) for i in range(8)]

    fleet = merged(*steady(), *other)

    assert not fleet.outliers
    assert len(fleet.metrics) == 2


@pytest.mark.parametrize("hosts", [5, 8, 12, 20, 50])
def test_clean_fleets_raise_few_false_alarms(hosts):
    """Below 1 in 100 fleets of normal noise, at every size: what the limits are widened for."""
    rng = random.Random(hosts)
    alarms = 0
    for _ in range(2000):
        values = [rng.gauss(100.0, 3.0) for _ in range(hosts)]
        normal = middle_of(values, LIMITS["host"])
        limit = widened(LIMITS["host"], normal.n) * normal.sigma
        alarms += any(abs(v - normal.median) > limit for v in values)

    assert alarms <= 20


@pytest.mark.parametrize(
    ("table", "p"),
    [((3, 3, 1, 4), 4 / 35), ((0, 8, 9, 12), 1.0), ((5, 5, 0, 5), 1 / 252)],
)
def test_fisher_is_exact(table, p):
    """Counted by hand: C(having, k) C(rest, sick - k) / C(all, sick), for k and more."""
    assert fisher(*table) == pytest.approx(p)


def test_sick_hosts_of_one_rack_are_told_so():
    racks = {f"node{i:02d}": {"rack": "r1" if i < 7 else "r2"} for i in range(1, 31)}
    sick = [report(f"node{i:02d}", 330.0) for i in range(1, 7)]

    fleet = merged(*sick, *steady(24, first=7), labels=racks)

    (cause,) = fleet.causes
    assert cause.attributes == ("rack = r1",)
    assert (cause.sick, cause.sick_with, cause.others_with) == (6, 6, 0)
    assert "All 6 hosts" in cause.text
    assert "not proof of a cause" in cause.text
    assert cause.p < 0.01


def test_a_rack_that_is_sick_as_a_whole_is_told_beside_more_that_are_sick_elsewhere():
    racks = {f"node{i:02d}": {"rack": f"r{i // 5}"} for i in range(100)}
    sick = [*range(5, 10), *range(12, 100, 11)]
    hosts = [report(f"node{i:02d}", findings=(bad(),) if i in sick else ()) for i in range(100)]

    (cause,) = merged(*hosts, labels=racks).causes

    assert cause.attributes == ("rack = r1",)
    assert (cause.sick, cause.sick_with, cause.others_with) == (13, 5, 0)


def test_attributes_of_the_same_hosts_are_not_told_apart():
    sick = [report(f"a{i}", findings=(bad(),), attributes={"bios": ("2.1",), "board": ("X",)}) for i in range(6)]
    fine = [report(f"b{i}", attributes={"bios": ("2.2",), "board": ("Y",)}) for i in range(30)]

    (cause,) = merged(*sick, *fine).causes

    assert cause.attributes == ("bios = 2.1", "board = X")
    assert "do not distinguish these" in cause.text


def test_scattered_sick_hosts_share_nothing():
    racks = {f"node{i:02d}": {"rack": f"r{i % 6}"} for i in range(40)}
    sick = [report(f"node{i:02d}", findings=(bad(),)) for i in range(0, 40, 7)]
    fine = [report(f"node{i:02d}") for i in range(40) if i % 7]

    assert not merged(*sick, *fine, labels=racks).causes
