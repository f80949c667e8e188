"""Collectives as a step of verify: on every GPU, evaluated by the one judge, and what was not run is stated."""

import json

import pytest
from click.testing import CliRunner

from gpucheck.cli import cli
from gpucheck.measure.collectives.rank import MeasuredCollective, RankReport
from gpucheck.model import Verdict
from gpucheck.processes.ranks.nccl_log import Taken
from gpucheck.run import verification as run
from gpucheck.run.steps import collectives
from tests.fakes import facts
from tests.machines import h100, on_bus, p100, whole_host
from tests.measure.collectives import samples
from tests.run.test_proof import host_with, missing, plan

EIGHT = tuple(h100(index) for index in range(8))
P2P = Taken(transports={"P2P/CUMEM": 96}, algorithms={"AllReduce": ("RING",)})
LARGE = 2 << 30  # below it the judge calls a message over 18 NVLinks of this generation too small


def verified(host):
    steps = run.select(run.all_steps(), level="standard", only=("collectives",), skip=())
    return run.verify(host, steps)


def by_check(report):
    return {finding.check: finding for finding in report.findings}


def ended(gpus, *, seconds=8.4e-3, taken=P2P):
    """Ranks on GPUs as they report: 2 GiB in 8.4 ms is 447 GB/s of bus bandwidth for all_reduce on 8 GPUs."""
    results = tuple(
        MeasuredCollective(operation="all_reduce", size=size, seconds=(time,) * 7, checked=7, wrong=0)
        for size, time in ((8 << 10, 3e-5), (LARGE, seconds))
    )
    versions = {"torch": "2.13.0", "nccl": "2.28.9"}
    reports = tuple(
        RankReport(
            rank=rank, world_size=gpus, device=f"cuda:{rank}", device_name="H100", versions=versions, measured=results
        )
        for rank in range(gpus)
    )
    return samples.ended("finished", *({"report": report} for report in reports), seconds=9.0, taken=taken)


@pytest.fixture
def on_gpus(monkeypatch):
    """The report of the step on a host whose ranks end like this, with the options of each start."""
    monkeypatch.setattr(collectives, "find_spec", missing())

    def go(*endings, gpus=EIGHT):
        asked, left = [], list(endings)

        def launch(options, here, **extra):
            asked.append((options, here, extra))
            return left.pop(0)

        monkeypatch.setattr("gpucheck.measure.collectives.run.launch", launch)
        return verified(whole_host(*gpus)), asked

    return go


def test_every_gpu_takes_part_in_what_training_uses(on_gpus):
    report, [(options, ranks, _)] = on_gpus(ended(8))

    assert (ranks, options.backend, len(options.bus_ids)) == (8, "nccl", 8)
    assert options.operations == ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "send_recv")
    assert options.sizes == (8 << 10, LARGE)
    assert report.verdict is Verdict.PASS
    assert report.not_proven == ()
    found = by_check(report)
    assert found["collectives-results"].seen == "14 collectives exact on 8 GPUs, every element of every rank"
    assert found["collectives-transport"].seen == "NCCL 2.28.9: P2P/CUMEM (96 channels); all_reduce RING"
    assert found["collectives-bandwidth"].verdict is Verdict.PASS
    assert [finding.check for finding in report.findings].count("collectives-results") == 1
    numbers = report.measurements["collectives"]
    assert numbers["results"][1]["busbw_gb_s"] == pytest.approx(447.4, abs=0.1)
    assert numbers["transports"] == {"P2P/CUMEM": 96}
    assert "findings" not in numbers


def test_nvls_is_measured_once_more_without_it(on_gpus):
    nvls = Taken(transports={"P2P/CUMEM": 96}, algorithms={"AllReduce": ("NVLS",)})
    report, asked = on_gpus(ended(8, taken=nvls), ended(8))

    assert [extra for _, _, extra in asked] == [{}, {"NCCL_NVLS_ENABLE": "0"}]
    assert "all_reduce NVLS" in by_check(report)["collectives-transport"].seen


def test_slow_collective_fails_by_the_one_judge(on_gpus):
    found = by_check(on_gpus(ended(8, seconds=80e-3))[0])

    assert found["collectives-bandwidth"].verdict is Verdict.FAIL
    assert "NVLinks" in found["collectives-bandwidth"].why


def test_host_memory_instead_of_nvlink_is_a_warning(on_gpus):
    """Small numbers may have other reasons; what NCCL itself logged has not."""
    finding = by_check(on_gpus(ended(8, taken=Taken(transports={"SHM": 16})))[0])["collectives-transport"]

    assert (finding.verdict, finding.wanted) == (Verdict.WARN, "P2P or NVLS")
    assert "SHM (16 channels)" in finding.seen
    assert finding.code == "measure.nvlink-not-used"


def test_host_memory_between_pcie_gpus_is_no_warning(on_gpus):
    """NCCL leaves P2P off across a host bridge by its own rule."""
    ranks = ended(2, seconds=0.2, taken=Taken(transports={"SHM": 4}))
    finding = by_check(on_gpus(ranks, gpus=(p100(0), p100(1)))[0])["collectives-transport"]

    assert finding.verdict is Verdict.PASS


def test_unknown_transport_is_unknown(on_gpus):
    finding = by_check(on_gpus(ended(8, taken=Taken()))[0])["collectives-transport"]

    assert finding.verdict is Verdict.UNKNOWN


def test_ranks_that_hang_leave_collectives_unproven(on_gpus):
    hung = samples.ended("deadline", {"at": "all_reduce of 8192 bytes, warming up"}, seconds=180.0)
    report, _ = on_gpus(hung)

    assert report.verdict in (Verdict.UNKNOWN, Verdict.FAIL)
    assert report.not_proven[0].startswith("collectives between GPUs, ")
    assert "collectives-transport" not in by_check(report)


@pytest.mark.parametrize(("gpus", "seen"), [((), "no GPU"), ((p100(0),), "1 GPU")])
def test_fewer_than_two_gpus_are_a_skip(gpus, seen):
    (finding,) = verified(host_with(gpus)).findings

    assert (finding.check, finding.verdict, finding.seen) == ("collectives", Verdict.SKIP, f"not run: {seen}")


def test_gpus_that_nvml_does_not_list_are_unknown():
    gpus = (p100(0), p100(1))
    report = verified(facts(pci=on_bus(*gpus)))

    assert [f.verdict for f in report.findings] == [Verdict.UNKNOWN]
    assert report.not_proven[0].startswith("collectives between GPUs, ")


def test_without_torch_they_are_unknown_unless_the_plan_names_no_torch(monkeypatch):
    monkeypatch.setattr(collectives, "find_spec", missing("torch"))
    (finding,) = verified(host_with()).findings
    assert finding.verdict is Verdict.UNKNOWN
    assert finding.seen == "collectives between GPUs unknown: torch is not installed"
    assert finding.code == "measure.ranks-need-torch"
    assert finding.steps[-1].command == "gpucheck verify --skip collectives"

    report = verified(host_with(files={"/etc/gpucheck/stack.json": plan()}))
    assert [f.verdict for f in report.findings] == [Verdict.SKIP]
    assert report.not_proven == ("collectives between GPUs, the plan of this host names no torch",)


@pytest.mark.slow
def test_simulated_machine_runs_them_on_cpu_ranks_and_states_it():
    words = ["verify", "--simulate", "p100-pcie-x2", "--only", "collectives", "--format", "json"]
    done = CliRunner().invoke(cli, words, standalone_mode=False)
    report = json.loads(done.stdout)

    assert done.return_value == 0
    assert {f["check"]: f["verdict"] for f in report["findings"]} == {
        "collectives": "skip",
        "collectives-results": "pass",
    }
    skip = next(f for f in report["findings"] if f["check"] == "collectives")
    assert skip["seen"] == "2 CPU ranks, gloo: no GPU and no link was used"
    numbers = report["measurements"]["collectives"]
    assert (numbers["backend"], numbers["ranks"]) == ("gloo", 2)
    assert all(result["wrong"] == 0 for result in numbers["results"])
