"""Why a version, what holds it down, what would lift that: every answer can be asked of the resolver again."""

import pytest

from gpucheck.stack import StackSet, StackSpec, resolve_target, target_of, wants
from gpucheck.stack.explain import EXPLAINED, component_named, explain


def explained(gpus, os, part, *want, **more):
    """The explanation of one part of what is resolved."""
    target, spec = target_of(gpus, os, **more), wants(want)
    found = resolve_target(target, spec)
    assert isinstance(found, StackSet), found
    (explanation,) = explain(target, spec, found, part)
    return explanation


def test_cuda_of_a_p100_is_held_down_by_its_compiler():
    """12.9.2 would do by name; 13.0 is the first that is forbidden, with the two facts, and only other GPUs lift it."""
    found = explained(["P100 PCIe"] * 2, "ubuntu-22.04", "cuda")
    soft, hard = found.held_by

    assert found.version == "12.9.1"
    assert (soft.version, soft.possible, soft.rule) == ("12.9.2", True, "R2")
    assert (hard.version, hard.possible, hard.rule) == ("13.0.0", False, "R9")
    assert [fact.fact for fact in hard.between] == [
        "Tesla P100-PCIE is sm_60 (Pascal); CUDA 12.9 is its last",
        "CUDA 13.0 builds for compute capability 7.5 and newer",
    ]
    assert hard.lifts == ("other GPUs: from Turing on (resolved for a Tesla T4)",)


@pytest.mark.parametrize(
    ("part", "version", "rule"),
    [("driver", "590.48.01", "R9"), ("cudnn", "9.11.0.98", "R7")],
)
def test_the_next_newer_version_is_named_with_the_rule_that_forbids_it(part, version, rule):
    (step,) = explained(["P100 PCIe"], "ubuntu-22.04", part).held_by

    assert (step.version, step.possible, step.rule) == (version, False, rule)
    assert all(fact.source for fact in step.between)
    assert step.lifts


def test_torch_of_a_p100_is_held_down_by_pypi_and_by_its_code():
    """2.8.0 would do by name, from PyTorch's own index; 2.15.0 is the first without a build for it anywhere."""
    soft, hard = explained(["P100 PCIe"], "ubuntu-22.04", "torch").held_by

    assert (soft.version, soft.possible, soft.rule) == ("2.8.0", True, "R25")
    assert "torch_origin: any" in soft.lifts
    assert (hard.version, hard.possible, hard.rule) == ("2.15.0", False, "R11")
    assert hard.lifts


def test_cudnn_and_nccl_are_asked_for_with_the_toolkit_as_it_is():
    """Each is built for one CUDA major: a build for CUDA 13 is a question about the toolkit."""
    cudnn, nccl = (explained(["P100 PCIe"], "ubuntu-22.04", part) for part in ("cudnn", "nccl"))

    assert cudnn.held_by[0].lifts == ("other GPUs: from Turing on (resolved for a Tesla T4)",)
    assert [(step.version, step.possible) for step in nccl.held_by] == [("2.29.7+cuda12.9", True)]
    assert "that of torch 2.14.1+cu126, the newest build for these GPUs" in nccl.held_by[0].because


def test_a_driver_that_is_only_not_preferred_is_possible():
    """The long-term branch comes first; another preference, or its number, lifts that."""
    (step,) = explained(["H100 SXM"], "ubuntu-24.04", "driver").held_by

    assert (step.possible, step.rule) == (True, "R18")
    assert "prefer: production" in step.lifts
    assert any(price.startswith("cuda changes from 13.0.2") for price in step.price)


def test_what_the_spec_itself_holds_down_says_so():
    step = explained(["T4"], "ubuntu-22.04", "cuda", "cuda=12.8").held_by[0]
    outside = explained(["T4"], "ubuntu-22.04", "cuda", "cuda=12.8.1").held_by[0]

    assert (step.version, outside.version) == ("12.8.2", "12.8.2")
    assert "which excludes" in outside.because
    assert "which excludes" not in step.because


def test_a_gpu_that_holds_others_down_is_named():
    (step,) = explained(["V100 SXM2", "H100 SXM"], "ubuntu-24.04", "driver").held_by

    assert "without the Tesla V100-SXM2: put it into another host" in step.lifts


def test_another_spec_that_stands_in_the_way_is_named():
    """torch 2.15 needs driver 580; the specification keeps 570."""
    _, step = explained(["A100 PCIe 80GB"], "ubuntu-24.04", "torch", "driver=570").held_by

    assert step.rule == "R1"
    assert "driver: auto instead of 570" in step.lifts


def test_a_system_that_holds_a_wheel_down_is_named():
    """glibc 2.17 ends at torch 2.6."""
    target = target_of(["V100 SXM2"], "centos-7")
    spec = StackSpec(driver="550", end_of_life_os="allow")
    found = resolve_target(target, spec)
    assert isinstance(found, StackSet)

    (explanation,) = explain(target, spec, found, "torch")

    assert explanation.held_by[0].rule == "R16"
    assert any(lift.startswith("another system") for lift in explanation.held_by[0].lifts)


@pytest.mark.parametrize(
    ("part", "want", "note"),
    [
        ("tensorflow", ("tensorflow=none",), "not requested"),
        ("container_toolkit", (), "nothing newer is in the tables"),
        ("fabric_manager", (), "is not needed here"),
        ("kernel_module", (), "its version follows the GPUs"),
    ],
)
def test_a_part_without_a_next_version_says_why(part, want, note):
    found = explained(["T4"], "ubuntu-22.04", part, *want)

    assert note in found.note
    assert found.held_by == ()


def test_a_part_that_was_left_out_says_what_forbids_it():
    """No official TensorFlow works on B200."""
    found = explained(["B200"], "ubuntu-24.04", "tensorflow")

    assert found.version is None
    assert (found.held_by[0].version, found.held_by[0].rule) == ("2.21.0", "R11")
    assert found.held_by[0].lifts == ("no change that the tables know",)  # an older GPU is no way out


def test_every_part_is_explained_when_none_is_named():
    target = target_of(["GB200"] * 4, "ubuntu-24.04")
    found = resolve_target(target, StackSpec())
    assert isinstance(found, StackSet)

    assert [e.component for e in explain(target, StackSpec(), found)] == list(EXPLAINED)


def test_an_unknown_component_gets_a_suggestion():
    assert component_named("Container-Toolkit") == "container_toolkit"
    with pytest.raises(ValueError, match="Did you mean 'cudnn'"):
        component_named("cudn")
