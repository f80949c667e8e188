"""MIG: a process sees one instance, instances have no peer access, and two of them train over gloo."""

import os
import sys

import pytest
from msgspec.structs import replace

from gpucheck.compute.measure import ComputeOptions, chosen_for
from gpucheck.compute.running.run import Workers
from gpucheck.compute.values import Opened
from gpucheck.model import NvmlReading, Simulation, Verdict
from gpucheck.run.steps.compute import compute_step
from gpucheck.run.steps.train import evaluated
from gpucheck.train.smoke import gpus_to_train_on, mig_instances, rank_environment, train_in_ranks
from gpucheck.train.spec import SmokeOptions, plan
from tests.fakes import facts
from tests.machines import h100, on_bus, reading
from tests.train.conftest import ROOT
from tests.train.outcomes import ON_ONE_GPU

UUIDS = tuple(f"MIG-{number}{number}{number}{number}-aaaa" for number in range(4))


def divided(index, *uuids):
    gpu = h100(index)
    return replace(gpu, mig_uuids=uuids, health=replace(gpu.health, mig=True))


def host(*gpus, **fields):
    return facts(nvml=reading(*gpus), pci=on_bus(*gpus), **fields)


TWO = host(divided(0, *UUIDS[:3]), divided(1, UUIDS[3]))


@pytest.mark.parametrize(
    ("there", "environment", "expected"),
    [
        (TWO, {}, UUIDS[:2]),
        (TWO, {"CUDA_VISIBLE_DEVICES": f"{UUIDS[3]}, {UUIDS[0]}"}, (UUIDS[3], UUIDS[0])),
        (TWO, {"CUDA_VISIBLE_DEVICES": "0"}, ()),
        (host(divided(0, UUIDS[0])), {}, UUIDS[:1]),
        (host(divided(0)), {}, ()),
        (host(h100(0), h100(1)), {}, ()),
        (host(divided(0, *UUIDS), simulation=Simulation(profile="a100-mig-x8")), {}, ()),
        (facts(), {}, ()),
    ],
)
def test_instances_that_train(monkeypatch, there, environment, expected):
    monkeypatch.setattr("os.environ", environment)
    assert mig_instances(there) == expected
    if any(gpu.health.mig for gpu in getattr(there.nvml, "gpus", ())):
        assert gpus_to_train_on(there) == len(expected)


def test_each_rank_sees_an_instance_of_its_own(tmp_path):
    """A real pair of ranks, whose program returns what CUDA would read."""
    (tmp_path / "visible.py").write_text(
        "import os\nfrom tests.train import toy\n"
        "def run(spec, progress):\n"
        "    made = toy.run(spec, progress)\n"
        "    return type(made)(**{f: getattr(made, f) for f in made.__struct_fields__}"
        " | {'placement_reason': os.environ['CUDA_VISIBLE_DEVICES']})\n"
    )
    options = SmokeOptions(steps=10, mig_uuids=UUIDS[:2])
    environment, _ = rank_environment(os.environ | {"PYTHONPATH": f"{ROOT}:{tmp_path}"}, options)
    ending = train_in_ranks("visible:run", options, environment)

    assert [end.report and end.report.placement_reason for end in ending.ranks] == list(UUIDS[:2])


def test_instances_exchange_through_host_memory():
    found = plan(2, visible_gpus=1, build_cuda="12.6", build="2.14.1", nccl=True, mig=True)

    assert (found.placement, found.backend) == ("mig", "gloo")
    assert [found.device(rank) for rank in (0, 1)] == ["cuda:0", "cuda:0"]
    assert plan(2, visible_gpus=0, build_cuda="12.6", build="2.14.1", nccl=True, mig=True).placement == "cpu"


@pytest.mark.parametrize("gpus", [None, 0, 4])
def test_training_on_instances_passes_and_states_what_it_does_not_prove(gpus):
    *made, said = evaluated(replace(ON_ONE_GPU, placement="mig", placement_reason="2 MIG instances: gloo"), gpus=gpus)

    assert {finding.verdict for finding in made} == {Verdict.PASS}
    assert (said.check, said.verdict) == ("smoke-placement", Verdict.SKIP)
    assert str(said.seen).startswith("2 ranks on MIG instances, gloo: this tests the MIG instances")


SHOW = """
import json, os, sys
sys.stdin.readline()
answer = {"type": "opened", "types": ["fp32"], "versions": {"seen": os.environ.get("CUDA_VISIBLE_DEVICES", "")}}
os.write(int(sys.argv[1]), json.dumps(answer).encode() + bytes([10]))
sys.stdin.read()
"""


def test_one_instance_of_each_gpu_computes(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    chosen = chosen_for(host(divided(0, *UUIDS[:3]), divided(1, UUIDS[3]), h100(2)), ComputeOptions())

    assert chosen.notes == ("MIG: on GPU 0, 1 only the first instance computes",)
    assert [device.is_mig for device in chosen.devices] == [True, True, False]
    bench = Workers(chosen.devices, command=(sys.executable, "-c", SHOW))
    try:
        opened = bench.open()
    finally:
        bench.close()
    assert [one.versions["seen"] for one in opened if isinstance(one, Opened)] == [UUIDS[0], UUIDS[3], h100(2).uuid]


def test_a_host_of_instances_is_not_skipped_as_one_without_gpus(monkeypatch):
    import gpucheck.run.steps.compute as step

    asked = []

    def measured(host, options):
        asked.append(host)
        raise AssertionError

    monkeypatch.setattr(step, "compute", measured)
    with pytest.raises(AssertionError):
        compute_step().run(TWO)
    assert asked == [TWO]
    assert isinstance(TWO.nvml, NvmlReading)
