"""kernel_lock in stack.yml: off unless asked, and no reason to resolve anything anew."""

import pytest

from gpucheck.stack.spec import SpecError, parse_spec
from gpucheck.stack.text import plan_text
from tests.stack.asked import planned


@pytest.mark.parametrize("text", ["", "kernel_lock: leave\n"])
def test_kernels_are_left_alone_unless_somebody_asks(text):
    found = planned(text)

    assert not found.kernel_lock
    assert "kernel_lock" not in found.order


def test_hold_is_in_the_plan_and_its_role_comes_last():
    found = planned("kernel_lock: hold\ntuning: recommended\n")

    assert found.kernel_lock == "hold"
    assert found.order[-2:] == ("tuning", "kernel_lock")
    assert "upgrades keep their versions" in plan_text(found)


def test_a_mistake_names_the_line_and_what_there_is():
    with pytest.raises(SpecError, match=r"s:2: kernel_lock: 'held' is not possible. Did you mean 'hold'"):
        parse_spec("cuda: auto\nkernel_lock: held\n", "s")
