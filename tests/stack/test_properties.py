"""What must hold for every input, not only for those that somebody thought of."""

from itertools import permutations
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucheck.knowledge import gpus, tables
from gpucheck.stack import Refusal, StackSet, StackSpec, resolve_target
from gpucheck.stack.components import BY_NAME
from gpucheck.stack.components.dcgm import r23_cuda_majors
from gpucheck.stack.facts import target_of
from gpucheck.stack.lock import lock, write_lock
from gpucheck.stack.types import DriverChoice
from gpucheck.stack.versions import cc, major, parse
from tests.stack.hosts import GPU_SETS, SYSTEMS, host


def plain(version: str) -> str:
    return version.partition("+")[0]


PARTS = ["driver", "torch", "tensorflow", "cuda", "cudnn", "nccl", "container_toolkit", "dcgm"]
NAMES = [gpu.name for gpu in gpus()]
OSES = [system.id for system in tables.operating_systems().systems]
SPECS: dict[str, list[str]] = {
    "driver": ["auto", "580", "595", "615", "535", "580.95.05", ">=590"],
    "kernel_module": ["auto", "auto", "open", "proprietary"],
    "cuda": ["auto", "none", "12.9", "13", "13.2", ">=12.4,<13", "12.6.3"],
    "cudnn": ["auto", "none", "9.10", "9.26", "9"],
    "nccl": ["auto", "none", "2.29.3", "2.30.7"],
    "torch": ["auto", "none", "2.7.1", "2.10", "2.15", "2.14.1+cu126", "<2.11", "2.13.0+cpu"],
    "tensorflow": ["auto", "none", "2.19", "2.21"],
    "dcgm": ["none", "auto", "4", "4.5.2", "3.3", "<4.6"],
    "nvidia_modprobe": ["none", "none", "auto", "580"],
    "prefer": ["longest-supported", "production", "newest"],
    "source": ["auto", "auto", "debian"],
    "end_of_life_os": ["refuse", "allow"],
}
specs = st.fixed_dictionaries({key: st.sampled_from(values) for key, values in SPECS.items()}).map(
    lambda fields: StackSpec(**fields)  # type: ignore[arg-type]
)
gpu_sets = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4)
systems = st.sampled_from(OSES)
kinds_of_hosts = st.lists(
    st.tuples(st.sampled_from(sorted(SYSTEMS)), st.sampled_from(sorted(GPU_SETS))), min_size=1, max_size=6
)


@settings(max_examples=80, deadline=None)
@given(gpu_sets, systems, specs)
def test_every_set_satisfies_every_rule_and_every_refusal_has_a_way_that_works(gpus, os, spec):
    """Checked against the tables by arithmetic of its own; a suggested change is carried out."""
    target = target_of(gpus, os)
    found = resolve_target(target, spec)

    if isinstance(found, StackSet):
        assert_rules(found, target)
        return
    assert all(
        conflict.between and conflict.because and conflict.source and conflict.try_ for conflict in found.conflicts
    )
    change: dict[str, Any] = found.conflicts[0].change
    if change:
        assert isinstance(resolve_target(target, msgspec.structs.replace(spec, **change)), StackSet)


def chosen(stack: StackSet, part: str) -> str | None:
    """What a set holds of a component."""
    return BY_NAME[part].value(stack)


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


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(NAMES), min_size=2, max_size=3), systems, specs)
def test_the_order_of_the_gpus_never_matters(gpus, os, spec):
    answers = [resolve_target(target_of(order, os), spec) for order in permutations(gpus)]

    assert all(answer == answers[0] for answer in answers)


BOUNDED = ["cuda", "torch", "tensorflow", "cudnn", "nccl", "container_toolkit", "dcgm"]
preferences = st.sampled_from(["longest-supported", "production", "newest"])


@settings(max_examples=80, deadline=None)
@given(gpu_sets, systems, preferences, st.sampled_from(BOUNDED))
def test_an_upper_bound_never_yields_something_newer(gpus, os, prefer, part):
    """Asking for less than what was chosen moves that part down, or is refused; and it moves no other part up."""
    target = target_of(gpus, os)
    spec = StackSpec(end_of_life_os="allow", prefer=prefer, dcgm="auto")
    free = resolve_target(target, spec)
    if isinstance(free, Refusal) or chosen(free, part) is None:
        return
    have = plain(str(chosen(free, part)))
    bound = resolve_target(target, msgspec.structs.replace(spec, **{part: f"<{have}"}))

    if isinstance(bound, StackSet):
        assert parse(plain(str(chosen(bound, part)))) < parse(have)
        assert_nothing_newer(bound, free)


@settings(max_examples=80, deadline=None)
@given(gpu_sets, st.sampled_from(NAMES), systems, preferences)
def test_another_gpu_in_the_host_never_yields_something_newer(gpus, more, os, prefer):
    """A GPU can only hold down what the others could have."""
    spec = StackSpec(end_of_life_os="allow", prefer=prefer)
    free, bound = (resolve_target(target_of(names, os, "x86_64"), spec) for names in (gpus, [*gpus, more]))

    if isinstance(free, StackSet) and isinstance(bound, StackSet):
        assert_nothing_newer(bound, free)


def assert_nothing_newer(bound: StackSet, free: StackSet) -> None:
    """Part by part, where both have it."""
    for part in PARTS:
        before, after = chosen(free, part), chosen(bound, part)
        if before is not None and after is not None:
            assert parse(plain(after)) <= parse(plain(before)), part


@settings(max_examples=40, deadline=None)
@given(kinds_of_hosts, st.randoms(use_true_random=False))
def test_a_lock_is_stable(kinds, random):
    facts = [host(system, gpus, f"n{index}") for index, (system, gpus) in enumerate(kinds)]
    made = lock(StackSpec(), facts)
    shuffled = random.sample(facts, len(facts))

    assert write_lock(lock(StackSpec(), shuffled, made)) == write_lock(lock(StackSpec(), shuffled)) == write_lock(made)


@settings(max_examples=80, deadline=None)
@given(
    gpu_sets,
    st.sampled_from([branch for branch in tables.drivers().branches if branch.last]),
)
def test_the_cuda_majors_run_on_every_gpu_and_none_is_newer_than_the_driver(names, branch):
    """Against what the branch's own row says, and the first capability of CUDA 13."""
    target = target_of(names, "ubuntu-22.04", "x86_64")
    driver = DriverChoice(branch=branch.branch, version=branch.last, kernel_module="open")

    majors = r23_cuda_majors(target, driver) if branch.native_cuda and float(branch.native_cuda) >= 11 else ()

    for gpu in target.models if majors else ():
        assert any(number < 13 or cc(gpu.compute_capability) >= (7, 5) for number in majors)
    assert not majors or majors[0] == int(float(branch.native_cuda))
    assert len(set(majors)) == len(majors)
