"""kernel in stack.yml: kept unless somebody asks, and never upgraded against a hold."""

import pytest

from gpucheck.stack.spec import SpecError, parse_spec
from gpucheck.stack.text import plan_text
from tests.stack.asked import planned


@pytest.mark.parametrize("text", ["", "kernel: keep\n"])
def test_the_kernel_is_kept_unless_somebody_asks(text):
    assert not planned(text).kernel


def test_an_upgrade_is_in_the_plan():
    found = planned("kernel: upgrade\n")

    assert found.kernel == "upgrade"
    assert "kernel upgraded if no package source has the headers" in plan_text(found)


def test_a_held_kernel_is_not_upgraded():
    with pytest.raises(SpecError, match=r"s:2: kernel_lock: contradicts line 1: a kernel that is held cannot"):
        parse_spec("kernel: upgrade\nkernel_lock: hold\n", "s")
