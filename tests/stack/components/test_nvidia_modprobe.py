"""nvidia-modprobe: off by default, at the driver's version, and installed with the driver."""

from gpucheck.stack import wants
from gpucheck.stack.lock import lock, still_valid, target_of_group
from gpucheck.stack.text import stack_text
from tests.stack import asked
from tests.stack.hosts import host


def test_lock_keeps_it_and_set_shows_it():
    spec, facts = wants(("nvidia_modprobe=auto",)), [host("ubuntu-24.04", "t4-x1")]
    made = asked.reread(spec, *facts)
    (group,) = made.groups.values()

    assert still_valid(target_of_group(group), group.stack, made.spec) == ()
    assert lock(spec, facts, made) == made
    assert "nvidia-modprobe    " in stack_text(group.stack)
