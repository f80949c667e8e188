"""nvidia-modprobe: off by default, at the driver's version, and installed with the driver."""

from gpucheck.stack import wants
from gpucheck.stack.lock import lock, still_valid, target_of_group
from gpucheck.stack.text import stack_text
from tests.stack import asked
from tests.stack.hosts import host

NAME = "nvidia-modprobe"


def requested(value, *more):
    return wants((f"nvidia_modprobe={value}", *more))


def test_lock_keeps_it_and_is_still_valid_when_read_again():
    spec = requested("auto")
    made = asked.reread(spec, host("ubuntu-24.04", "t4-x1"))
    (group,) = made.groups.values()

    assert still_valid(target_of_group(group), group.stack, made.spec) == ()
    assert lock(spec, [host("ubuntu-24.04", "t4-x1")], made) == made


def test_set_shows_it():
    assert f"{NAME}    " in stack_text(asked.answer(["T4"], "ubuntu-24.04", "nvidia_modprobe=auto"))
