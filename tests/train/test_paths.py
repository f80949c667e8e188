"""A proof names the path that was taken, as the library itself reports it; without that it is a SKIP."""

import threading
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest
from msgspec.structs import replace

from gpucheck.model import Verdict
from gpucheck.processes.ranks.nccl_log import parse, read
from gpucheck.run.steps.train import evaluated
from gpucheck.train.results.merge import merge
from gpucheck.train.smoke import has_switch
from gpucheck.train.spec import SmokeOptions
from gpucheck.train.strategies import tensorflow_mirrored, torch_transfer
from gpucheck.train.strategies.torch_training import in_every_thread
from gpucheck.train.torch.rank import nvls_only
from gpucheck.train.transfer import FACTOR
from tests.fakes import facts
from tests.machines import h100, on_bus, reading
from tests.train.outcomes import HANG, ON_CPU, ON_GPUS
from tests.train.test_all_gpus import RANK

SWITCH = replace(ON_GPUS, variant="nvls", versions={"torch": "2.13.0+cu130", "nccl": "2.27.3"})
LINE = "n:1:2 [0] NCCL INFO {} 407552 Bytes -> Algo {} proto {}\n"


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        (LINE.format("AllReduce:", "NVLS", "SIMPLE"), "nvls: NCCL 2.27.3 summed by NVLS, from its log"),
        (LINE.format("", "4", "2"), "nvls: NCCL 2.27.3 summed by NVLS, from its log"),
    ],
)
def test_sums_of_the_switch_are_proven_by_nccls_log(line, seen):
    findings = evaluated(replace(SWITCH, algorithms=parse(line).algorithms))

    assert {finding.verdict for finding in findings} == {Verdict.PASS}
    assert findings[0].seen == seen
    assert any("gradients bit-equal" in str(finding.seen) for finding in findings)


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (LINE.format("AllReduce:", "RING", "LL128"), "NCCL 2.27.3 chose RING"),
        (LINE.format("AllGather:", "NVLS", "SIMPLE"), "names no algorithm"),
        ("NCCL INFO NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 24)", "names no algorithm"),
    ],
)
def test_another_algorithm_proves_nothing_of_the_switch(log, words):
    (said, *others) = evaluated(replace(SWITCH, algorithms=parse(log).algorithms))

    assert (said.verdict, said.check) == (Verdict.SKIP, "smoke-ddp")
    assert words in str(said.seen)
    assert said.code == "training.nvls-not-used"
    assert not [finding for finding in others if "nvls" in str(finding.seen)]


def test_wrong_sums_fail_whatever_made_them():
    wrong = replace(SWITCH, gradients_differ_from_step=3, algorithms={"AllReduce": ("RING",)})

    assert {finding.verdict for finding in evaluated(wrong)} == {Verdict.FAIL, Verdict.SKIP}


def test_a_switch_that_cannot_sum_is_a_skip():
    """NCCL 2.27, src/enqueue.cc: NCCL_ALGO=allreduce:nvls where the communicator has no NVLS."""
    line = "NCCL warned: Error : no algorithm/protocol available for function AllReduce with datatype ncclFloat32."
    failure = replace(HANG, kind="raised", variant="nvls", evidence=(line,))

    assert [finding.verdict for finding in evaluated(failure)] == [Verdict.SKIP]
    assert [finding.verdict for finding in evaluated(replace(failure, variant=""))] == [Verdict.FAIL]


def test_each_nccl_gets_the_setting_that_it_understands():
    assert [nvls_only(version) for version in ((2, 21, 5), (2, 23, 4))] == ["NVLS", "NVLS"]
    assert [nvls_only(version) for version in ((2, 24, 3), (2, 27, 3))] == ["allreduce:nvls", "allreduce:nvls"]


def test_switches_before_hopper_do_not_sum():
    gpus = tuple(replace(h100(index), compute_capability="8.0") for index in range(8))

    assert not has_switch(facts(nvml=reading(*gpus), pci=on_bus(*gpus)))


def test_the_transports_of_nccl_are_evidence(tmp_path):
    channel = "n:{0}:2 [0] NCCL INFO Channel 00/0 : {0}[{0}] -> {1}[{1}] via {2}\n"
    (tmp_path / "nccl.n.1").write_text(channel.format(0, 1, "SHM/direct/direct"))
    (tmp_path / "nccl.n.2").write_text(channel.format(1, 0, "P2P/CUMEM") + LINE.format("AllReduce:", "RING", "LL"))
    result = merge((RANK, replace(RANK, rank=1)), SmokeOptions(), 1.0, (), read(tmp_path))

    ours = replace(ON_GPUS, transports=result.transports, algorithms=result.algorithms)
    assert all("NCCL's log: SHM, P2P/CUMEM; AllReduce by RING" in finding.evidence for finding in evaluated(ours)[:3])
    assert not any("NCCL's log" in line for finding in evaluated(ON_CPU) for line in finding.evidence)


@pytest.mark.parametrize("peers", [True, False])
def test_torch_copies_state_their_path(monkeypatch, peers):
    torch = pytest.importorskip("torch")
    queried = []

    def offered(source, target):
        queried.append((str(source), str(target)))
        return peers

    monkeypatch.setattr(torch.cuda, "can_device_access_peer", offered)
    rank = type("Rank", (), {"torch": torch, "devices": (torch.device("cpu"), torch.device("cpu:0"))})
    moved = torch_transfer._move(rank, 0, 1, np.arange(128, dtype=np.int64) * FACTOR + 1, 1)

    assert (moved.differs, moved.peers) == (False, peers)
    assert queried == [("cpu", "cpu:0")]


@pytest.mark.parametrize(("precision", "name"), [("bf16", "bfloat16"), ("fp16", "float16"), ("fp32", "float32")])
def test_replicas_compute_in_the_precision_that_was_requested(precision, name):
    """Autocast is a setting of one thread, and DataParallel starts a thread for each replica."""
    torch = pytest.importorskip("torch")
    layers = torch.nn.Sequential(torch.nn.Linear(4, 4))
    model, seen = in_every_thread(torch, layers, precision), []
    thread = threading.Thread(target=lambda: seen.append(str(model(torch.ones(1, 4)).dtype)))
    thread.start()
    thread.join()

    assert seen == [f"torch.{name}"]
    assert list(model.parameters()) == list(layers.parameters())


def test_tensorflow_without_its_cuda_wheels_names_them():
    """tensorflow 2.19 without the extra and-cuda: built for CUDA, none of its libraries, so it sees no GPU."""
    trained = replace(
        ON_CPU,
        framework="tensorflow",
        strategy="mirrored",
        placement_reason="tensorflow 2.21.0 sees 0 GPUs: 2 logical devices of one CPU",
        versions={"tensorflow": "2.21.0", "cuda": "12.5.1", "CUDA wheels": None},
    )
    said, with_wheels = (
        evaluated(replace(trained, versions=trained.versions | wheels), gpus=2)[-1]
        for wheels in ({}, {"CUDA wheels": "12.5.82"})
    )

    assert (said.verdict, said.check) == (Verdict.UNKNOWN, "smoke-placement")
    assert (said.code, said.values["distribution"]) == ("training.cuda-packages-missing", "tensorflow[and-cuda]")
    assert with_wheels.verdict is Verdict.FAIL


@pytest.mark.parametrize(("wheel", "version"), [("tensorflow", None), ("nvidia-cuda-runtime-cu12", "12.5.82")])
def test_tensorflow_reports_its_cuda_wheels(monkeypatch, wheel, version):
    there = [SimpleNamespace(name=name, version="12.5.82") for name in ("numpy", wheel)]
    monkeypatch.setattr(tensorflow_mirrored, "distributions", lambda: there)

    assert tensorflow_mirrored.versions(MagicMock(__version__="2.21"))["CUDA wheels"] == version


@pytest.mark.parametrize(("gpus", "said"), [(2, ""), (8, ", on 2 of 8 GPUs"), (None, "")])
def test_gpus_that_do_not_take_part_are_stated(gpus, said):
    (first, *_) = evaluated(ON_GPUS, gpus=gpus)

    assert first.verdict is Verdict.PASS
    assert str(first.seen).endswith(f"0.25 of it{said}")
