"""The lock: groups, refusals by host, and bytes that change only when something changed."""

import msgspec
import pytest

from gpucheck.stack import StackSpec
from gpucheck.stack.lock import NO_VERSIONS, LockError, lock, read_lock, still_valid, target_of_group, write_lock
from gpucheck.stack.settings import RECOMMENDED, Imex, Mok
from gpucheck.stack.spec import Repository
from gpucheck.stack.stack_set import StackSet
from tests.stack.hosts import host

LAB = (host("ubuntu-22.04", "p100-pcie-x2", "lab-apt"), host("rocky-9", "h100-sxm5-x8", "lab-dnf"))


UBUNTU = StackSpec(source="ubuntu", driver="580.95.05-0ubuntu0.22.04.1")


@pytest.mark.parametrize(
    ("spec", "hosts"),
    [(StackSpec(), LAB), (StackSpec(source="debian"), [host("debian-12", "rtx3090-x2")]), (UBUNTU, LAB[:1])],
)
def test_a_lock_survives_its_file(spec, hosts):
    text = write_lock(lock(spec, hosts))

    assert read_lock(text, "stack.lock.yml") == lock(spec, hosts)
    assert ("\n      source: " in text) == (spec.source != "auto")


OLD = {"version": "620.60.01", "fabric_manager": "620.60.01"}


@pytest.mark.parametrize(
    ("changes", "spec", "driver", "fabric_manager"),
    [
        # New tables move nothing by themselves.
        (OLD, StackSpec(), "620.60.01", "620.60.01"),
        (OLD, StackSpec(cuda="13.0"), "620.70.06", "620.70.06"),
        # Fabric manager at another version than the driver breaks a rule.
        ({"fabric_manager": "575.57.08"}, StackSpec(), "620.70.06", "620.70.06"),
    ],
)
def test_old_set_is_kept_while_specification_and_rules_allow_it(changes, spec, driver, fabric_manager):
    name = "rocky-9-x86_64-2330x8"
    older = with_stack(lock(StackSpec(), LAB), name, **changes)

    found = lock(spec, LAB, older).groups[name].stack

    assert (found.driver.version, found.fabric_manager) == (driver, fabric_manager)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"fabric_manager": None}, "fabric manager"),
        ({"cuda": "12.5.0+x"}, "CUDA"),
        ({"kernel_module": "proprietary", "version": "615.71.09"}, "flavour|modules"),
    ],
)
def test_edited_set_is_checked_against_the_rules(change, says):
    group = with_stack(lock(StackSpec(), LAB), "rocky-9-x86_64-2330x8", **change).groups["rocky-9-x86_64-2330x8"]

    conflicts = still_valid(target_of_group(group), group.stack, StackSpec())

    assert conflicts
    assert any(word in conflicts[0].because for word in says.split("|"))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"gpus": (LAB[0].gpus[0], msgspec.structs.replace(LAB[0].gpus[1], device_id="2cff"))}, "10de:2cff"),
        ({"gpus": (msgspec.structs.replace(LAB[0].gpus[0], device_id="11ff"),)}, "Kepler or older"),
        ({"os": msgspec.structs.replace(LAB[0].os, id="plan9")}, "operating system 'plan9-22.04'"),
        ({"arch": "riscv64"}, "architecture 'riscv64'"),
        ({"gpus": ()}, "no NVIDIA GPU found on lab-apt: "),
    ],
)
def test_what_the_tables_do_not_know_is_unknown_not_impossible(change, says):
    made = lock(StackSpec(), [msgspec.structs.replace(LAB[0], **change), LAB[1]])

    assert made.refused["lab-apt"].kind == ("impossible" if change == {"gpus": ()} else "unknown")
    assert says in made.refused["lab-apt"].conflicts[0].because
    assert len(made.groups) == 1


def test_a_board_that_is_not_the_usual_one_has_a_group_of_its_own():
    """Eight H100 SXM without NVSwitch on the bus: a virtual machine."""
    made = lock(StackSpec(), [LAB[1], msgspec.structs.replace(LAB[1], host="vm", nvswitches=0)])

    assert list(made.groups) == ["rocky-9-x86_64-2330x8", "rocky-9-x86_64-2330x8-no-nvswitch"]
    assert made.groups["rocky-9-x86_64-2330x8-no-nvswitch"].stack.fabric_manager is None


def test_a_host_given_twice_is_refused():
    with pytest.raises(LockError, match="'lab-apt'"):
        lock(StackSpec(), [LAB[0], LAB[0]])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("schema: gpucheck.lock/9\n", "stack.lock.yml:1"),
        ("nothing\n", "stack.lock.yml:1"),
        ("groups: {\n", "stack.lock.yml:"),
    ],
)
def test_a_damaged_lock_names_the_line_and_what_to_do(text, says):
    with pytest.raises(LockError, match="gpucheck stack lock") as caught:
        read_lock(text, "stack.lock.yml")

    assert str(caught.value).startswith(says)


def with_stack(made, name, *, version=None, kernel_module=None, **changes):
    """The lock with one group's set edited."""
    group = made.groups[name]
    driver = group.stack.driver
    if version:
        driver = msgspec.structs.replace(driver, version=version, branch=version.partition(".")[0])
    if kernel_module:
        driver = msgspec.structs.replace(driver, kernel_module=kernel_module)
    stack: StackSet = msgspec.structs.replace(group.stack, driver=driver, **changes)
    return msgspec.structs.replace(made, groups={**made.groups, name: msgspec.structs.replace(group, stack=stack)})


@pytest.mark.parametrize(
    ("old", "new"), [("cuda: 12.9.1", "cuda: 12.9.-1"), ("branch: '580'", "branch: x"), ("15f8: 2", "15f8: 999999999")]
)
def test_an_edited_version_or_count_is_refused_with_its_group(old, new):
    text = write_lock(lock(StackSpec(), LAB[:1]))
    assert old in text
    with pytest.raises(LockError, match=r"^lock: \S+: .*Make a lock"):
        read_lock(text.replace(old, new), "lock")


# Settings that choose no version.
CHANGED = {
    "repositories": {"nvidia-cuda": Repository(url="https://mirror.example/")},
    "tuning": RECOMMENDED,
    "container_engines": "leave",
    "module_options": {"NVreg_A": "1"},
    "kernel_lock": "hold",
    "driver_extra": ("mps", "video"),
    "imex": Imex(service="slurm"),
    "mok": Mok(key="/a", certificate="/b"),
}


@pytest.mark.parametrize("key", NO_VERSIONS)
def test_a_spec_that_chooses_no_version_moves_none(key):
    """A new point release must not come along with a governor."""
    first = lock(StackSpec(), [host("rocky-9", "t4-x1")])
    (name,) = first.groups

    second = lock(StackSpec(**{key: CHANGED[key]}), [host("rocky-9", "t4-x1")], previous=first)

    assert second.groups[name].stack is first.groups[name].stack
    assert getattr(second.spec, key) == CHANGED[key]


def test_a_lock_from_before_keeps_its_torch():
    """Until the specification changes: hosts are not moved by a new preference."""
    facts = [host("ubuntu-22.04", "p100-pcie-x2")]
    before = lock(StackSpec(torch_origin="any"), facts)
    before = msgspec.structs.replace(before, spec=StackSpec())

    kept = lock(StackSpec(), facts, previous=before)
    moved = lock(StackSpec(torch_origin="pypi"), facts, previous=before)

    assert [g.stack.torch and g.stack.torch.version for g in kept.groups.values()] == ["2.14.1"]
    assert [g.stack.torch and g.stack.torch.version for g in moved.groups.values()] == ["2.7.1"]
