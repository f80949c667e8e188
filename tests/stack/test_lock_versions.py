"""Settings that choose no version: a change of one keeps every version of the lock, and is in it all the same."""

import pytest

from gpucheck.stack.lock import NO_VERSIONS, lock
from gpucheck.stack.settings.imex import Imex
from gpucheck.stack.settings.mok import Mok
from gpucheck.stack.settings.tuning import RECOMMENDED
from gpucheck.stack.spec import Repository, StackSpec
from tests.stack.hosts import host

CHANGED = {
    "repositories": {"nvidia-cuda": Repository(url="https://mirror.example/")},
    "tuning": RECOMMENDED,
    "container_engines": "leave",
    "module_options": {"NVreg_A": "1"},
    "kernel": "upgrade",
    "kernel_lock": "hold",
    "driver_extra": ("mps", "video"),
    "imex": Imex(service="slurm"),
    "mok": Mok(key="/a", certificate="/b"),
}


@pytest.mark.parametrize("system", ["ubuntu-22.04", "rocky-9"])
@pytest.mark.parametrize("key", CHANGED)
def test_a_spec_that_chooses_no_version_moves_none(key, system):
    """A new point release must not come along with a governor."""
    first = lock(StackSpec(), [host(system, "t4-x1")])
    (name,) = first.groups

    second = lock(StackSpec(**{key: CHANGED[key]}), [host(system, "t4-x1")], previous=first)

    assert second.groups[name].stack is first.groups[name].stack
    assert getattr(second.spec, key) == CHANGED[key]


def test_every_such_spec_is_tried():
    assert set(CHANGED) == set(NO_VERSIONS)
