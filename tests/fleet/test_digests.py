"""Digests of computed results across hosts: the odd GPU is named, an odd host is doubted, hostile input is left out."""

import pytest

from gpucheck import fleet
from gpucheck.fleet.metrics import worse
from gpucheck.model import Verdict
from tests.fleet import reports

BUS = [f"0000:{number:02x}:00.0" for number in range(4)]


def measured(digests="aaaa", versions=None, name="NVIDIA H100 80GB HBM3", tflops=700.0):
    gpus = [
        {
            "index": number,
            "name": name,
            "bus_id": BUS[number],
            "digests": {"matrix-bf16": digest},
            "gemm": {"bf16": {"tflops": tflops, "ceiling_tflops": 989.0, "of_ceiling": 0.7}},
            "memory": {"read_gb_s": 3000.0, "ceiling_gb_s": 3352.0},
        }
        for number, digest in enumerate(digests)
    ]
    return {"compute": {"gpus": gpus, "versions": versions or {"torch": "2.9"}}}


def compared(*hosts):
    rows = reports.rows(*(reports.report(f"n{number}", measurements=host) for number, host in enumerate(hosts)))
    return fleet.merge(rows)


def merged(*hosts):
    return {row.host: row for row in compared(*hosts).hosts}


def odd(row):
    return [(f.subject, f.verdict, f.cause, f.confidence) for f in row.problems if f.check == "fleet"]


@pytest.mark.parametrize("digests", [("aaaa", "aaaa", "aaaa"), ("ab", "ba")], ids=["equal", "no majority"])
def test_without_an_odd_one_out_nobody_is_named(digests):
    assert not [odd(row) for row in merged(*map(measured, digests)).values() if odd(row)]


def test_one_odd_gpu_is_named_on_its_host():
    rows = merged(measured(), measured("aaba"), measured())

    assert odd(rows["n1"]) == [(f"gpu:{BUS[2]}", Verdict.FAIL, "silent-corruption", "likely")]
    assert rows["n1"].verdict is Verdict.FAIL
    assert odd(rows["n0"]) == odd(rows["n2"]) == []


def test_two_hosts_that_could_not_decide_themselves_are_decided_by_a_third():
    rows = merged(measured("ab"), measured("aa"), measured("aa"))

    assert odd(rows["n0"]) == [(f"gpu:{BUS[1]}", Verdict.FAIL, "silent-corruption", "likely")]


def test_a_host_that_differs_as_a_whole_may_have_other_libraries():
    rows = merged(measured(), measured("bbbb"), measured())

    assert {verdict for _, verdict, _, _ in odd(rows["n1"])} == {Verdict.WARN}
    assert len(odd(rows["n1"])) == 4


@pytest.mark.parametrize("other", [{"versions": {"torch": "2.10"}}, {"name": "NVIDIA L40S"}], ids=["versions", "model"])
def test_what_cannot_be_compared_is_not(other):
    assert odd(merged(measured(), measured("bbbb", **other), measured())["n1"]) == []


def trained(digest="d" * 64, placement="gpus", variant="", versions=None, **changes):
    run = {"framework": "torch", "strategy": "ddp", "model": "mlp", "precision": "fp32", "world_size": 4, "steps": 40}
    run |= {"placement": placement, "variant": variant, "loss_digest": digest, "versions": versions or {"torch": "2.9"}}
    return {"smoke-ddp": run | {"device_names": ["NVIDIA H100 80GB HBM3"] * 4} | changes}


def test_losses_of_one_host_that_no_other_has_are_a_warning():
    rows = merged(trained(), trained("e" * 64), trained())

    assert odd(rows["n1"]) == [("host", Verdict.WARN, "silent-corruption", "possible")]
    assert odd(rows["n0"]) == []


@pytest.mark.parametrize(
    "other",
    [
        *({"placement": "cpu"}, {"variant": "nvls"}, {"versions": {"torch": "2.10"}}, {"steps": 50}),
        {"device_names": ["NVIDIA L40S"] * 4},
    ],
)
def test_losses_of_other_settings_are_not_compared(other):
    assert odd(merged(trained(), trained("e" * 64, **other), trained())["n1"]) == []


def test_losses_that_a_gpu_with_wrong_results_explains_are_not_named_again():
    rows = merged(measured() | trained(), measured("aaba") | trained("e" * 64), measured() | trained())

    assert [subject for subject, *_ in odd(rows["n1"])] == [f"gpu:{BUS[2]}"]


def test_hosts_that_agree_on_other_results_have_other_software():
    """A fault is never equal on two machines."""
    hosts = [*[measured() | trained()] * 5, *[measured("bbbb") | trained("e" * 64)] * 2]

    assert not [odd(row) for row in merged(*hosts).values() if odd(row)]
    assert {(entry.outcome, entry.equal) for entry in compared(*hosts).agreements} == {("several", 20), ("several", 5)}


def test_many_gpus_of_one_host_are_one_host():
    """Eight GPUs against four are no majority of two hosts."""
    hosts = measured("aaaa"), measured("bb")

    assert not [odd(row) for row in merged(*hosts).values() if odd(row)]
    assert [entry.outcome for entry in compared(*hosts).agreements] == ["undecided"]


def test_every_vote_is_reported_with_what_it_compared():
    found = compared(measured(), measured("aaba"), measured(versions={"torch": "2.10"})).agreements

    assert [(e.operation, e.on, e.results, e.hosts, e.equal, e.outcome, e.outliers) for e in found] == [
        ("matrix-bf16", "NVIDIA H100 80GB HBM3 (torch 2.10)", 4, 1, 4, "equal", ()),
        ("matrix-bf16", "NVIDIA H100 80GB HBM3 (torch 2.9)", 8, 2, 7, "outlier", ("n1",)),
    ]
    assert [entry.outcome for entry in compared(trained()).agreements] == ["single"]


@pytest.mark.parametrize(
    "hostile",
    [
        {"smoke-x": {"loss_digest": "d", "device_names": [None], "variants": 3}},
        {"smoke-x": {"loss_digest": 3, "device_names": ["a"], "variants": {"a": 3}}},
        {},
        {"compute": {"gpus": 3}},
        {"compute": {"gpus": [None, 1, {}, {"bus_id": 1, "name": "x", "digests": {}}]}},
        {"compute": {"gpus": [{"bus_id": "a", "name": "x", "digests": [1]}], "versions": [1]}},
    ],
)
def test_other_forms_are_left_out(hostile):
    (row,) = reports.rows(reports.report("n0", measurements=hostile))

    assert row.digests == {}


def test_what_one_report_adds_is_bounded():
    gpus = [
        {
            "index": number,
            "bus_id": f"{number}" * 500,
            "name": "x" * 500,
            "digests": {f"{o}" * 500: "d" * 500 for o in range(100)},
        }
        for number in range(100)
    ]
    found = reports.rows(reports.report("n0", measurements={"compute": {"gpus": gpus}}))[0].digests

    assert len(found) <= 32
    assert sum(len(k) + len(v) for operations in found.values() for k, v in operations.items()) < 200_000


def test_rates_are_metrics_of_the_fleet_and_ceilings_are_not():
    metrics = reports.metrics(reports.report("n0", measurements=measured()))

    assert metrics["compute.gemm.bf16.tflops"].host == 700
    assert metrics["compute.memory.read_gb_s"].host == 3000
    assert not [name for name in metrics if "ceiling" in name]
    assert worse("compute.gemm.bf16.tflops") == "lower"
