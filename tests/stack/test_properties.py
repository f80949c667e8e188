"""What must hold for every input, not only for those that somebody thought of."""

from itertools import permutations
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucheck.knowledge import gpu_table, tables
from gpucheck.stack import Refusal, StackSet, Wish, resolve_target
from gpucheck.stack.lock import lock, write_lock
from gpucheck.stack.resolve import target_of
from gpucheck.stack.versions import cc, major, parse
from tests.stack.hosts import GPU_SETS, SYSTEMS, host

NAMES = [gpu.name for gpu in gpu_table().gpus]
OSES = [system.id for system in tables.operating_systems().systems]
WISHES: dict[str, list[str]] = {
    "driver": ["auto", "580", "595", "615", "535", "580.95.05", ">=590"],
    "kernel_module": ["auto", "auto", "open", "proprietary"],
    "cuda": ["auto", "none", "12.9", "13", "13.2", ">=12.4,<13", "12.6.3"],
    "cudnn": ["auto", "none", "9.10", "9.26", "9"],
    "nccl": ["auto", "none", "2.29.3", "2.30.7"],
    "torch": ["auto", "none", "2.7.1", "2.10", "2.15", "2.14.1+cu126", "<2.11", "2.13.0+cpu"],
    "tensorflow": ["auto", "none", "2.19", "2.21"],
    "prefer": ["longest-supported", "production", "newest"],
    "end_of_life_os": ["refuse", "allow"],
}
wishes = st.fixed_dictionaries({key: st.sampled_from(values) for key, values in WISHES.items()}).map(
    lambda fields: Wish(**fields)  # type: ignore[arg-type]
)
gpu_sets = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4)
systems = st.sampled_from(OSES)


@settings(max_examples=150, deadline=None)
@given(gpu_sets, systems, wishes)
def test_every_set_satisfies_every_rule_and_every_refusal_has_a_way_that_works(gpus, os, wish):
    """Checked against the tables by arithmetic of its own; a suggested change is carried out."""
    target = target_of(gpus, os)
    found = resolve_target(target, wish)

    if isinstance(found, StackSet):
        assert_rules(found, target)
        return
    assert all(
        conflict.between and conflict.because and conflict.source and conflict.try_ for conflict in found.conflicts
    )
    change: dict[str, Any] = found.conflicts[0].change
    if change:
        assert isinstance(resolve_target(target, msgspec.structs.replace(wish, **change)), StackSet)


def assert_rules(found: StackSet, target: Any) -> None:
    """The rules once more, written independently of the resolver."""
    branch = next(b for b in tables.drivers().branches if b.branch == found.driver.branch)
    floors = tables.drivers().minor_compat_floor
    assert found.driver.kernel_module in branch.kernel_modules
    for gpu in target.models:
        assert int(gpu.first_driver.branch) <= int(branch.branch) <= int(gpu.last_driver_branch or 9999)
        assert gpu.kernel_module in ("either", found.driver.kernel_module)
        if found.cuda:
            assert parse(found.cuda) < parse("13") or cc(gpu.compute_capability) >= (7, 5)
        if found.cudnn:
            assert parse(found.cudnn) <= parse("9.10.2.21") or cc(gpu.compute_capability) >= (7, 5)
        if found.torch and found.torch.cuda and parse(found.torch.version) >= parse("2.15"):
            assert cc(gpu.compute_capability) >= (7, 5)
    for cuda in filter(None, (found.cuda, found.torch.cuda if found.torch else None)):
        assert parse(found.driver.version) >= parse(floors[str(major(cuda))])
    if found.nccl and found.cuda:
        assert major(found.nccl.partition("+cuda")[2]) == major(found.cuda)
    assert found.fabric_manager in (None, found.driver.version)
    assert found.imex in (None, found.driver.version)
    assert not (found.imex and found.fabric_manager)
    if target.arch == "sbsa":
        assert found.tensorflow is None


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(NAMES), min_size=2, max_size=3), systems, wishes)
def test_the_order_of_the_gpus_never_matters(gpus, os, wish):
    """A host does not change when its slots are counted from the other end."""
    answers = [resolve_target(target_of(order, os), wish) for order in permutations(gpus)]

    assert all(answer == answers[0] for answer in answers)


@settings(max_examples=40, deadline=None)
@given(gpu_sets, systems, st.sampled_from(["cuda", "torch", "tensorflow", "cudnn"]))
def test_an_upper_bound_never_yields_something_newer(gpus, os, part):
    """Asking for less than what was chosen moves that part down, or is refused."""
    target = target_of(gpus, os)
    wish = Wish(end_of_life_os="allow")
    free = resolve_target(target, wish)
    if isinstance(free, Refusal) or version_of(free, part) is None:
        return
    chosen = str(version_of(free, part))
    bound = resolve_target(target, msgspec.structs.replace(wish, **{part: f"<{chosen}"}))

    if isinstance(bound, StackSet):
        assert parse(str(version_of(bound, part))) < parse(chosen)
        assert parse(bound.driver.version) <= parse(free.driver.version)


def version_of(found: StackSet, part: str) -> str | None:
    """The version of one part of a set."""
    value = getattr(found, part)
    return value if value is None or isinstance(value, str) else value.version


hosts = st.lists(st.tuples(st.sampled_from(sorted(SYSTEMS)), st.sampled_from(sorted(GPU_SETS))), min_size=1, max_size=6)


@settings(max_examples=40, deadline=None)
@given(hosts, st.randoms(use_true_random=False))
def test_a_lock_is_stable(kinds, random):
    """Whatever the order of the facts, and when it is made again on top of itself: the same bytes."""
    facts = [host(system, gpus, f"n{index}") for index, (system, gpus) in enumerate(kinds)]
    made = lock(Wish(), facts)
    shuffled = random.sample(facts, len(facts))

    assert write_lock(lock(Wish(), shuffled, made)) == write_lock(lock(Wish(), shuffled)) == write_lock(made)
