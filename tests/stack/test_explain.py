"""Why a component has its version, what limits it, and which change lifts the limit."""

import pytest

from gpucheck.stack import StackSpec, target_of
from gpucheck.stack.explain import EXPLAINED, Explanation, component_named, explain
from tests.stack.asked import answer

P100, U22, U24 = ["P100 PCIe"], "ubuntu-22.04", "ubuntu-24.04"
FROM_TURING = "other GPUs: from Turing on (resolved for a Tesla T4)"
NO_TOOLKIT = ("13.5.0", False, "R2")


def explained(gpus, os, part, spec: StackSpec | None = None) -> Explanation:
    """Return the explanation of one component of the resolved set."""
    spec = spec or StackSpec()
    (found,) = explain(target_of(gpus, os), spec, answer(gpus, os, spec=spec), part)
    return found


@pytest.mark.parametrize(
    ("gpus", "os", "part", "spec", "steps", "lift"),
    [
        # 12.9.2 runs by minor version compatibility; 13.0 is the first that is forbidden.
        (P100 * 2, U22, "cuda", {}, [("12.9.2", True, "R2"), ("13.0.0", False, "R9")], FROM_TURING),
        (P100, U22, "driver", {}, [("590.48.01", False, "R9")], FROM_TURING),
        (P100, U22, "cudnn", {}, [("9.11.0.98", False, "R7")], FROM_TURING),
        # Each is built for one CUDA major: a build for CUDA 13 is a question about the toolkit.
        (P100, U22, "nccl", {}, [("2.29.7+cuda12.9", True, "")], "nccl: 2.29.7+cuda12.9 in stack.yml"),
        # 2.8.0 is in PyTorch's own index; 2.15.0 is the first without a build for it anywhere.
        (P100, U22, "torch", {}, [("2.8.0", True, "R25"), ("2.15.0", False, "R11")], "torch_origin: any"),
        # The long-term branch comes first; another preference, or its number, lifts that.
        (["H100 SXM"], U24, "driver", {}, [("590.48.01", True, "R18")], "prefer: production"),
        (
            ["V100 SXM2", "H100 SXM"],
            U24,
            "driver",
            {},
            [("590.48.01", False, "R9")],
            "without the Tesla V100-SXM2: put",
        ),
        (["T4"], U22, "cuda", {"cuda": "12.8"}, [("12.8.2", True, "R2"), NO_TOOLKIT], "cuda: 12.8.2 in stack.yml"),
        (["T4"], U22, "cuda", {"cuda": "12.8.1"}, [("12.8.2", True, ""), NO_TOOLKIT], "cuda: 12.8.2 in stack.yml"),
        # torch 2.15 needs driver 580; the specification keeps 570.
        (
            ["A100 PCIe 80GB"],
            U24,
            "torch",
            {"driver": "570"},
            [("2.11.0", True, "R25"), ("2.15.0", False, "R1")],
            "driver: auto instead of 570",
        ),
        # No official TensorFlow works on B200, and an older GPU is not a resolution.
        (["B200"], U24, "tensorflow", {}, [("2.21.0", False, "R11")], "no change that the tables know"),
    ],
)
def test_next_versions_have_the_rule_that_limits_them_and_what_lifts_it(gpus, os, part, spec, steps, lift):
    found = explained(gpus, os, part, StackSpec(**spec)).held_by

    assert [(step.version, step.possible, step.rule) for step in found] == steps
    assert any(text.startswith(lift) for step in found for text in step.lifts)
    assert all(step.lifts and all(fact.source for fact in step.between) for step in found)


def test_conflict_of_a_newer_toolkit_has_its_two_facts():
    _, forbidden = explained(P100, U22, "cuda").held_by

    assert [fact.fact for fact in forbidden.between] == [
        "Tesla P100-PCIE is sm_60 (Pascal); CUDA 12.9 is its last",
        "CUDA 13.0 builds for compute capability 7.5 and newer",
    ]
    assert forbidden.lifts == (FROM_TURING,)


def test_possible_version_states_why_it_was_not_chosen_and_its_price():
    nccl = explained(P100, U22, "nccl").held_by[0]
    driver = explained(["H100 SXM"], U24, "driver").held_by[0]
    stated = explained(["T4"], U22, "cuda", StackSpec(cuda="12.8.1")).held_by[0]

    assert "that of torch 2.14.1+cu126, the newest build for these GPUs" in nccl.because
    assert any(price.startswith("cuda changes from 13.0.2") for price in driver.price)
    assert stated.because == "cuda 12.8.1 is requested, which excludes 12.8.2"


def test_system_that_limits_a_wheel_is_named():
    """glibc 2.17 ends at torch 2.6."""
    step = explained(["V100 SXM2"], "centos-7", "torch", StackSpec(driver="550", end_of_life_os="allow")).held_by[0]

    assert step.rule == "R16"
    assert any(lift.startswith("another system") for lift in step.lifts)


@pytest.mark.parametrize(
    ("part", "spec", "note"),
    [
        ("tensorflow", {"tensorflow": "none"}, "not requested"),
        ("container_toolkit", {}, "nothing newer is in the tables"),
        ("fabric_manager", {}, "is not needed here"),
        ("kernel_module", {}, "its version follows the GPUs"),
    ],
)
def test_component_without_a_next_version_states_why(part, spec, note):
    found = explained(["T4"], U22, part, StackSpec(**spec))

    assert note in found.note
    assert found.held_by == ()


def test_every_component_is_explained_if_none_is_named():
    target, found = target_of(["GB200"] * 4, U24), answer(["GB200"] * 4, U24)

    assert [row.component for row in explain(target, StackSpec(), found)] == list(EXPLAINED)


def test_unknown_component_gets_a_suggestion():
    assert component_named("Container-Toolkit") == "container_toolkit"
    with pytest.raises(ValueError, match="Did you mean cudnn"):
        component_named("cudn")
