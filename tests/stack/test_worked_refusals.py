"""Conflicts worked out by hand from the sources: the resolver returns the same, with the change that resolves each."""

import msgspec
import pytest

from gpucheck.stack import Refusal, StackSet, StackSpec, UnknownInput, resolve, resolve_target, target_of
from tests.stack.asked import answer, refusal


def test_p100_with_cuda_13_conflicts_with_two_facts_and_their_sources():
    conflict = refusal(["P100 PCIe"], "ubuntu-22.04", "cuda=13")

    assert [fact.fact for fact in conflict.between] == [
        "Tesla P100-PCIE is sm_60 (Pascal); CUDA 12.9 is its last",
        "CUDA 13.4 builds for compute capability 7.5 and newer",
    ]
    assert all(fact.source for fact in conflict.between)
    assert conflict.change == {"cuda": "12.9.1"}


@pytest.mark.parametrize(
    ("gpus", "os", "want", "rule", "fact", "advice"),
    [
        # 570 is the first branch that drives it.
        (["B200"] * 8, "ubuntu-24.04", ("driver=535",), "R9", "570", "driver 580.178.04"),
        (["K80"], "ubuntu-22.04", (), "R9", "branch 470", ""),
        (["102d"], "ubuntu-22.04", (), "R9", "branch 470", ""),
        # Two flavors of kernel modules; in two hosts each has a set.
        (["V100 SXM2", "B200"], "ubuntu-24.04", (), "R14", "", "separate hosts"),
        (["V100 SXM2"] * 2, "centos-7", (), "R15", "2024-06-30", "rocky-9"),
        # Forward compatibility is for data-center GPUs, never for GeForce.
        (["A100 PCIe 80GB"], "ubuntu-24.04", ("driver=570", "torch=2.15"), "R1", "", "may lower this minimum"),
        (["RTX 4090"], "ubuntu-24.04", ("driver=570", "torch=2.15"), "R1", "", "do not support GeForce RTX 4090"),
        # From 615 on the packages have open modules only.
        (["H100 SXM"], "ubuntu-24.04", ("driver=615", "kernel_module=proprietary"), "R14", "", ""),
    ],
)
def test_conflict_names_the_rule_the_fact_and_the_advice(gpus, os, want, rule, fact, advice):
    conflict = refusal(gpus, os, *want)

    assert conflict.rule == rule
    assert fact in conflict.between[0].fact
    assert advice in conflict.try_


@pytest.mark.parametrize(
    ("gpu", "want", "rule"),
    [
        ("V100 PCIe", "torch=2.11.0+cu130", "R11"),
        ("P100 PCIe", "cudnn=9.26", "R7"),
        ("P100 PCIe", "driver=595", "R9"),
        ("P100 PCIe", "kernel_module=open", "R14"),
        ("B200", "kernel_module=proprietary", "R14"),
        ("H100 SXM", "driver=620", "R18"),
        ("RTX 5090", "torch=2.6", "R11"),
        ("RTX 5090", "tensorflow=2.21", "R11"),
        ("RTX 5090", "cuda=12.6", "R9"),
        ("H100 SXM", "nccl=2.29.3+cuda12.9", "R8"),
        ("H100 SXM", "container_toolkit=9", "R18"),
    ],
)
def test_conflict_has_its_rule_and_a_change_that_resolves_it(gpu, want, rule):
    conflict = refusal([gpu], "ubuntu-24.04", want)

    assert conflict.rule == rule
    assert conflict.change


def test_centos_7_resolves_if_allowed():
    """Its kernel ends at branch 550 and its glibc at torch 2.6."""
    target = target_of(["V100 SXM2"] * 2, "centos-7")
    allowed = StackSpec(end_of_life_os="allow")
    refused = resolve_target(target, allowed)
    found = resolve_target(target, msgspec.structs.replace(allowed, driver="550"))

    assert isinstance(refused, Refusal)
    assert (refused.conflicts[0].rule, "driver 550" in refused.conflicts[0].try_) == ("R15", True)
    assert isinstance(found, StackSet)
    assert found.torch
    assert (found.driver.version, found.cuda, found.torch.version) == ("550.163.01", "12.4.1", "2.6.0")
    assert found.tensorflow
    assert found.tensorflow.version == "2.20.0"


def test_ptx_needs_a_driver_as_new_as_its_toolkit():
    """TensorFlow 2.15 holds only PTX of CUDA 12.2 for Hopper: branch 525 cannot translate it, 535 can."""
    conflict = refusal(["H100 PCIe"], "ubuntu-22.04", "tensorflow=2.15", "driver=525", "torch=none", "cuda=12.0")

    assert conflict.rule == "R3"
    assert answer(["H100 PCIe"], "ubuntu-22.04", "tensorflow=2.15", "driver=535", "torch=none").tensorflow


def test_p100_with_a_new_torch_names_the_newest_build_that_works():
    conflict = refusal(["P100 PCIe"], "ubuntu-22.04", "torch=2.15")

    assert "torch 2.14.1+cu126 is the newest official build that has it" in conflict.because
    assert "torch 2.7.1+cu126 the newest on PyPI" in conflict.because
    assert conflict.change == {"torch": "2.7.1+cu126"}


@pytest.mark.parametrize(
    ("gpus", "os", "message"),
    [
        (["Voodoo 2"], "ubuntu-22.04", "GPU 'Voodoo 2' is not known"),
        # There is a Quadro P1000, which the tables do not have.
        (["P1000"], "ubuntu-22.04", "Did you mean 'Quadro P6000'"),
        (["T4"], "beos-5", "operating system 'beos-5' is not known"),
        ([], "ubuntu-22.04", "no GPU was named"),
    ],
)
def test_input_missing_from_the_tables_is_unknown(gpus, os, message):
    with pytest.raises(UnknownInput, match=message):
        resolve(gpus, os)


@pytest.mark.parametrize("gpu", ["Tesla M2090", "GTX 780", "K20", "Tesla K80"])
def test_gpu_older_than_maxwell_is_rejected_by_name(gpu):
    """Fermi and Kepler have no supported driver any more."""
    assert "no supported driver drives" in refusal([gpu], "ubuntu-22.04").because
