"""One set for a mixed cluster: the answers worked out by hand, and the reason where there is none."""

import msgspec
import pytest

from gpucheck.stack import Refusal, StackSpec
from gpucheck.stack.common import lock_common
from gpucheck.stack.components import BY_NAME
from gpucheck.stack.lock import Lock, lock, still_valid, target_of_group
from tests.stack.hosts import host

U = "ubuntu-24.04"


def common(*kinds, spec=None, previous=None):
    """The common lock of hosts of these kinds (system, GPU set)."""
    facts = [host(system, gpus, f"n{index}") for index, (system, gpus) in enumerate(kinds)]
    return lock_common(spec or StackSpec(), facts, previous)


def stacks(found):
    assert isinstance(found, Lock), found
    return [group.stack for group in found.groups.values()]


@pytest.mark.parametrize(
    ("kinds", "driver", "torch", "cuda"),
    [
        (((U, "p100-pcie-x2"), (U, "h100-sxm5-x8")), "580.178.04", "2.7.1+cu126", "12.9.1"),
        (((U, "v100-sxm2-x8"), (U, "h100-sxm5-x8")), "580.178.04", "2.10.0+cu128", "12.9.1"),
        # The only builds with sm_70 and sm_100 together are 2.8 to 2.10.
        (((U, "v100-sxm2-x8"), (U, "b200-x8")), "580.178.04", "2.10.0+cu128", "12.9.1"),
        (((U, "p100-pcie-x2"), ("rocky-9", "v100-sxm2-x8")), "580.178.04", "2.7.1+cu126", "12.9.1"),
        (((U, "t4-x1"), ("rocky-9", "a100-sxm4-x8"), (U, "h100-pcie-x2")), "580.178.04", "2.15.0+cu132", "13.0.2"),
        (((U, "h100-sxm5-x8"), (U, "gh200-x1")), "580.178.04", "2.15.0+cu132", "13.0.2"),
    ],
)
def test_mixed_clusters_come_to_the_answers_worked_out_by_hand(kinds, driver, torch, cuda):
    found = common(*kinds)

    for stack in stacks(found):
        assert stack.torch
        assert (stack.driver.version, f"{stack.torch.version}+{stack.torch.build}", stack.cuda) == (driver, torch, cuda)
    assert (
        len({(s.cudnn, s.nccl, s.container_toolkit, s.tensorflow and s.tensorflow.version) for s in stacks(found)}) == 1
    )
    assert all(not still_valid(target_of_group(g), g.stack, found.spec) for g in found.groups.values())


def test_the_flavour_of_the_modules_may_differ():
    assert {s.driver.kernel_module for s in stacks(common((U, "v100-sxm2-x8"), (U, "b200-x8")))} == {
        "open",
        "proprietary",
    }


def test_limited_group_names_the_limiting_group():
    found = common((U, "p100-pcie-x2"), (U, "h100-sxm5-x8")).groups["ubuntu-24.04-x86_64-2330x8"].stack
    why = [reason.because for reason in found.reasons if reason.component == "torch"]

    assert any("2.15.0+cu132" in text and "ubuntu-24.04-x86_64-15f8x2" in text for text in why)


def test_no_torch_for_p100_and_b200_names_both_groups_facts():
    """cu126 ends at sm_90 and cu128 begins at sm_70."""
    found = common((U, "p100-pcie-x2"), (U, "b200-x8"), (U, "t4-x1"))
    assert isinstance(found, Refusal)
    (conflict,) = found.conflicts

    assert conflict.rule == "R11"
    assert "ubuntu-24.04-x86_64-15f8x2" in conflict.because
    assert "ubuntu-24.04-x86_64-2901x8" in conflict.because
    assert [word in conflict.between[i].fact for i, word in ((0, "sm_60"), (1, "sm_100"))] == [True, True]
    assert all(fact.source for fact in conflict.between)
    assert "torch: none" in conflict.try_


def test_the_way_out_of_no_common_torch_works():
    """Without torch the host's own libraries have a common set."""
    found = stacks(common((U, "p100-pcie-x2"), (U, "b200-x8"), spec=StackSpec(torch="none")))

    assert {(s.cuda, s.cudnn) for s in found} == {("12.9.1", "9.10.2.21")}


def test_a_part_that_no_version_serves_is_left_out_for_all():
    """TensorFlow has no code for B200: then no group gets it, and the others say why."""
    found = common((U, "b200-x8"), (U, "h100-sxm5-x8"))

    assert all(s.tensorflow is None for s in stacks(found))
    h100 = found.groups["ubuntu-24.04-x86_64-2330x8"].stack
    assert any(r.component == "tensorflow" and "ubuntu-24.04-x86_64-2901x8" in r.because for r in h100.reasons)


@pytest.mark.parametrize(("spec", "rule"), [(StackSpec(tensorflow="2.21"), "R11"), (StackSpec(torch="2.15"), "R11")])
def test_requested_component_is_never_omitted(spec, rule):
    found = common((U, "p100-pcie-x2"), (U, "h100-sxm5-x8"), (U, "b200-x8"), spec=spec)

    if isinstance(found, Lock):
        assert found.refused
        assert {c.rule for r in found.refused.values() for c in r.conflicts} == {rule}
        expected = "2.15.0" if spec.torch == "2.15" else "2.7.1"
        assert {s.torch and s.torch.version for s in stacks(found)} == {expected}
    else:
        assert found.conflicts[0].rule == rule


def test_leaving_out_is_only_for_what_was_left_to_us(monkeypatch):
    monkeypatch.setattr(BY_NAME["torch"], "required", False)
    kinds = ((U, "p100-pcie-x2"), (U, "b200-x8"))

    assert {s.torch for s in stacks(common(*kinds))} == {None}
    assert isinstance(common(*kinds, spec=StackSpec(torch=">=2.7")), Refusal)


def test_a_spec_holds_for_the_common_set_as_well():
    found = stacks(common((U, "t4-x1"), (U, "h100-sxm5-x8"), spec=StackSpec(cuda="13.2", torch="<2.14", nccl="none")))

    assert {s.cuda for s in found} == {"13.2.2"}
    assert {s.driver.branch for s in found} == {"595"}
    assert {s.torch.version for s in found if s.torch} == {"2.13.0"}
    assert {s.nccl for s in found} == {None}


def test_one_group_has_its_own_set_in_common_with_itself():
    alone = lock(StackSpec(), [host("rocky-9", "h100-sxm5-x8")])

    assert stacks(common(("rocky-9", "h100-sxm5-x8"))) == stacks(alone)


def test_refused_hosts_are_left_out_of_the_question():
    found = common((U, "mixed-v100-b200"), (U, "t4-x1"))

    assert list(found.refused) == ["n0"]
    assert len(found.groups) == 1


def test_nothing_but_refused_hosts_is_an_empty_lock():
    found = common((U, "mixed-v100-b200"))

    assert (found.common, found.groups, list(found.refused)) == (True, {}, ["n0"])


def test_a_common_lock_is_kept_as_long_as_it_holds():
    """New tables move nothing by themselves; another member makes a new set."""
    kinds = ((U, "t4-x1"), (U, "h100-pcie-x2"))
    made = common(*kinds)
    older = {
        name: msgspec.structs.replace(
            group,
            stack=msgspec.structs.replace(
                group.stack, driver=msgspec.structs.replace(group.stack.driver, version="580.173.02")
            ),
        )
        for name, group in made.groups.items()
    }
    previous = msgspec.structs.replace(made, groups=older)

    assert common(*kinds, previous=previous).groups == older
    assert {s.driver.version for s in stacks(common(*kinds, (U, "a100-sxm4-x8"), previous=previous))} == {"580.178.04"}


def test_a_common_lock_and_a_lock_by_groups_are_not_kept_for_each_other():
    facts = [host(U, "p100-pcie-x2", "a"), host(U, "h100-pcie-x2", "b")]
    shared, own = lock_common(StackSpec(), facts), lock(StackSpec(), facts)
    assert isinstance(shared, Lock)

    assert lock(StackSpec(), facts, shared).groups == own.groups
    assert lock_common(StackSpec(), facts, own) == shared


def test_the_order_of_the_facts_never_matters():
    kinds = [(U, "v100-sxm2-x8"), (U, "b200-x8"), ("rocky-9", "h100-sxm5-x8")]
    facts = [host(system, gpus, f"n{index}") for index, (system, gpus) in enumerate(kinds)]

    assert lock_common(StackSpec(), facts) == lock_common(StackSpec(), facts[::-1])
