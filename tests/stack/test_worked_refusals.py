"""Refusals worked out by hand from the sources: the resolver must refuse the same, and say the way out."""

import msgspec
import pytest

from gpucheck.stack import Refusal, StackSet, StackSpec, UnknownInput, resolve, resolve_target, target_of
from tests.stack.asked import answer, refusal


def test_p100_with_cuda_13_is_refused():
    """With the two facts, their sources, and CUDA 12.9.1 as the way out."""
    conflict = refusal(["P100 PCIe"], "ubuntu-22.04", "cuda=13")

    assert [fact.fact for fact in conflict.between] == [
        "Tesla P100-PCIE is sm_60 (Pascal); CUDA 12.9 is its last",
        "CUDA 13.4 builds for compute capability 7.5 and newer",
    ]
    assert all(fact.source for fact in conflict.between)
    assert conflict.change == {"cuda": "12.9.1"}


def test_b200_with_branch_535_is_refused():
    """570 is the first branch that knows it."""
    conflict = refusal(["B200"] * 8, "ubuntu-24.04", "driver=535")

    assert "570" in conflict.between[0].fact
    assert conflict.change == {"driver": "580.178.04"}


@pytest.mark.parametrize("gpu", ["K80", "102d"])
def test_gpus_older_than_maxwell_are_refused(gpu):
    """Their last driver has ended."""
    assert "branch 470" in refusal([gpu], "ubuntu-22.04").between[0].fact


def test_v100_and_b200_in_one_host_are_refused():
    """Two flavours of kernel module; in two hosts each has a set."""
    conflict = refusal(["V100 SXM2", "B200"], "ubuntu-24.04")

    assert conflict.rule == "R14"
    assert "separate hosts" in conflict.try_


def test_centos_7_is_refused_for_its_end_of_life():
    """With the date; the way out is a newer system."""
    conflict = refusal(["V100 SXM2"] * 2, "centos-7")

    assert "2024-06-30" in conflict.between[0].fact
    assert "rocky-9" in conflict.try_


def test_centos_7_at_the_sites_own_risk():
    """Its kernel ends at branch 550 and its glibc at torch 2.6; both are said."""
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


@pytest.mark.parametrize(
    ("gpu", "says"), [("A100 PCIe 80GB", "may lower this minimum"), ("RTX 4090", "do not support GeForce RTX 4090")]
)
def test_a_driver_floor_names_forward_compatibility(gpu, says):
    """Allowed for data-center GPUs, never for GeForce."""
    conflict = refusal([gpu], "ubuntu-24.04", "driver=570", "torch=2.15")

    assert conflict.rule == "R1"
    assert says in conflict.try_


def test_p100_with_a_new_torch_names_the_newest_build_that_works():
    """The case plain pip gets wrong."""
    conflict = refusal(["P100 PCIe"], "ubuntu-22.04", "torch=2.15")

    assert "torch 2.14.1+cu126 is the newest official build that has it" in conflict.because
    assert "torch 2.7.1+cu126 the newest on PyPI" in conflict.because
    assert conflict.change == {"torch": "2.7.1+cu126"}


@pytest.mark.parametrize(
    ("gpus", "want", "rule"),
    [
        (["V100 PCIe"], "torch=2.11.0+cu130", "R11"),
        (["P100 PCIe"], "cudnn=9.26", "R7"),
        (["P100 PCIe"], "driver=595", "R9"),
        (["P100 PCIe"], "kernel_module=open", "R14"),
        (["B200"], "kernel_module=proprietary", "R14"),
        (["H100 SXM"], "driver=620", "R18"),
        (["RTX 5090"], "torch=2.6", "R11"),
        (["RTX 5090"], "tensorflow=2.21", "R11"),
        (["RTX 5090"], "cuda=12.6", "R9"),
        (["H100 SXM"], "nccl=2.29.3+cuda12.9", "R8"),
        (["H100 SXM"], "container_toolkit=9", "R18"),
    ],
)
def test_known_refusals_with_their_rule(gpus, want, rule):
    """The list of refusals that every site meets."""
    conflict = refusal(gpus, "ubuntu-24.04", want)

    assert conflict.rule == rule
    assert conflict.change


def test_grace_on_x86_is_refused():
    """And told which architecture it is."""
    assert "sbsa" in refusal(["GB200"], "ubuntu-24.04", arch="x86_64").try_


def test_a_proprietary_spec_on_615_is_refused():
    """From there the packages hold open modules only."""
    assert refusal(["H100 SXM"], "ubuntu-24.04", "driver=615", "kernel_module=proprietary").rule == "R14"


@pytest.mark.parametrize(("gpus", "os"), [(["Voodoo 2"], "ubuntu-22.04"), (["T4"], "beos-5"), ([], "ubuntu-22.04")])
def test_what_is_not_known_is_said_to_be_unknown(gpus, os):
    """Not guessed, not refused as impossible."""
    with pytest.raises(UnknownInput):
        resolve(gpus, os)


def test_an_unknown_gpu_gets_a_suggestion():
    """There is a Quadro P1000, which the tables do not know."""
    with pytest.raises(UnknownInput, match="Did you mean 'Quadro P6000'"):
        resolve(["P1000"], "ubuntu-22.04")


@pytest.mark.parametrize("gpu", ["Tesla M2090", "GTX 780", "K20", "Tesla K80"])
def test_a_gpu_older_than_maxwell_is_refused_by_name(gpu):
    """Fermi and Kepler have no supported driver any more."""
    found = resolve([gpu], "ubuntu-22.04")

    assert isinstance(found, Refusal)
    assert "no supported driver drives" in found.conflicts[0].because
