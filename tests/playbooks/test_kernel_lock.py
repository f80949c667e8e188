"""The lock of the kernel: what it holds, what of it is ours, and that no hold of anybody else is ever touched."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.playbooks.modules import ROLES, shared

kernel = shared("kernel")

HOLD = {"kernel_lock": "hold"}
APT = [
    "linux-generic",
    "linux-headers-5.15.0-179",
    "linux-headers-5.15.0-179-generic",
    "linux-headers-generic",
    "linux-image-5.15.0-179-generic",
    "linux-image-generic",
    "linux-modules-5.15.0-179-generic",
    "linux-modules-extra-5.15.0-179-generic",
]
OTHERS = ["linux-base", "linux-libc-dev", "linux-modules-nvidia-580-generic", "bash", "nvidia-dkms-580"]
OLD, NEW = "5.14.0-503.el9", "5.14.0-570.el9"


def test_role_and_comparison_mean_the_same_record():
    role = yaml.safe_load((ROLES / "kernel_lock/vars/main.yml").read_text())

    assert role["kernel_lock_record"] == kernel.NOTE


@pytest.mark.parametrize(
    "name",
    [
        *APT,
        "linux-image-amd64",
        "linux-headers-amd64",
        "linux-headers-6.1.0-38-common",
        "linux-aws",
        "linux-generic-hwe-22.04",
        "linux-image-nvidia",
        "linux-modules-6.8.0-1-nvidia",
    ],
)
def test_what_brings_or_moves_a_kernel_on_debian_is_held(name):
    assert kernel.wanted_deb([name, *OTHERS]) == [name]


def test_kernel_packages_of_the_el_family_are_locked_to_what_is_installed():
    kernels = {
        "kernel": [OLD, NEW],
        "kernel-core": [OLD, NEW],
        "kernel-modules-core": [NEW],
        "kernel-uek": ["5.15.0-311.el9uek"],
        "kernel-tools": [NEW],
        "kernel-srpm-macros": ["1.0-13"],
        "kernelshark": ["1"],
    }

    assert kernel.wanted_rpm(kernels) == [
        f"kernel-{OLD}.*",
        f"kernel-{NEW}.*",
        f"kernel-core-{OLD}.*",
        f"kernel-core-{NEW}.*",
        f"kernel-modules-core-{NEW}.*",
        "kernel-uek-5.15.0-311.el9uek.*",
    ]


@pytest.mark.parametrize("name", ["kernel-devel", "kernel-devel-matched", "kernel-headers"])
def test_headers_of_an_installed_kernel_are_never_locked_out(name):
    """Installed for one kernel alone, they are still to be had for the other one."""
    entries = kernel.wanted_rpm({"kernel-core": [OLD, NEW], name: [OLD]})

    assert f"{name}-{NEW}.*" in entries
    assert f"{name}-{OLD}.*" in entries


def test_headers_follow_the_kernel_of_their_own_flavour():
    found = kernel.wanted_rpm({"kernel-core": [NEW], "kernel-uek-core": ["5.15-1"], "kernel-uek-devel": ["5.15-0"]})

    assert [entry for entry in found if "devel" in entry] == ["kernel-uek-devel-5.15-0.*", "kernel-uek-devel-5.15-1.*"]


class Host:
    """What a host holds, and which holds are of gpucheck; provision does what role kernel_lock does."""

    def __init__(self, manager, installed, held=()):
        self.manager, self.installed, self.held, self.ours = manager, installed, list(held), []

    def state(self, spec):
        plan = {"package_manager": self.manager, **spec}
        extras = {"packages": self.installed, "kernels": self.installed, "locks": self.held}
        return kernel.state(plan, self.held, extras, self.ours)

    def provision(self, spec):
        """Whether a run changes anything."""
        seen = self.state(spec)
        changed = bool(kernel.differences(seen, self.ours))
        assert not set(seen["missing"]) & set(self.held)
        self.held = [name for name in self.held if name not in seen["lifted"]] + seen["missing"]
        self.ours = seen["kept"]
        return changed


def apt(*held):
    return Host("apt", dict.fromkeys([*APT, *OTHERS], "1"), held)


def dnf(*held):
    return Host("dnf", {"kernel-core": [OLD, NEW], "kernel-devel": [NEW]}, held)


def test_his_lock_of_another_version_is_not_widened():
    """A lock of ours next to it would let the version in that he keeps out."""
    host = dnf("kernel-core-5.14.0-1.el9.*")

    host.provision(HOLD)

    assert [entry for entry in host.held if entry.startswith("kernel-core")] == ["kernel-core-5.14.0-1.el9.*"]


@pytest.mark.parametrize("pattern", ["kernel*", "nvidia-driver", "bash"])
def test_a_lock_that_a_person_wrote_as_a_pattern_is_read_and_stays(pattern):
    """dnf accepts any pattern of a package in its list, with a version or without one."""
    host = dnf(pattern)

    host.provision(HOLD)
    assert not host.provision(HOLD)

    host.provision({})
    assert host.held == [pattern]


def test_a_hold_that_somebody_sets_while_nothing_is_locked_is_his():
    """Locked once, unlocked, then held by hand: that is no leftover of ours."""
    host = apt()
    host.provision(HOLD)
    host.provision({})

    host.held.append("linux-image-generic")

    assert not host.provision({})
    assert host.held == ["linux-image-generic"]


@pytest.mark.parametrize("make", [apt, dnf])
@pytest.mark.parametrize("set_", [False, True])
def test_a_run_that_is_cut_off_knows_its_holds(make, set_):
    """They are recorded before they are set."""
    host = make()
    host.ours = sorted(host.state(HOLD)["missing"])
    host.held = list(host.ours) if set_ else []

    assert host.provision(HOLD) is not set_
    assert sorted(host.held) == host.ours
    host.provision({})
    assert host.held == []


def test_a_kernel_that_comes_later_is_held_too_and_one_that_goes_is_forgotten():
    host = apt()
    host.provision(HOLD)
    host.installed["linux-image-6.8.0-1-generic"] = "1"
    assert host.provision(HOLD)
    assert "linux-image-6.8.0-1-generic" in host.held

    # Removed, and with it its hold: noted as ours, it would be lifted from whoever holds it later.
    del host.installed["linux-image-6.8.0-1-generic"]
    host.held.remove("linux-image-6.8.0-1-generic")
    assert host.provision(HOLD)

    assert "linux-image-6.8.0-1-generic" not in host.ours
    assert not host.provision(HOLD)


# dnf writes the epoch out where rpm leaves it away; both mean the same package.
THEIRS = {"apt": [*APT, *OTHERS], "dnf": [f"kernel-core-{OLD}.*", "bash-0:5.1-6.*", f"kernel-devel-0:{NEW}.*"]}
BEFORE = st.sampled_from(sorted(THEIRS)).flatmap(
    lambda manager: st.tuples(st.just(manager), st.sets(st.sampled_from(THEIRS[manager])))
)


@given(BEFORE, st.lists(st.sampled_from([HOLD, {}]), max_size=5))
def test_whatever_was_held_before_is_held_after_any_change_of_mind(given_host, specs):
    """A second run does nothing. Without the specification: exactly what was held before us."""
    manager, before = given_host
    host = {"apt": apt, "dnf": dnf}[manager](*before)
    for spec in [HOLD, *specs, {}]:
        host.provision(spec)
        assert not host.provision(spec)
        assert set(host.held) >= before
        assert not set(host.ours) & before
        assert host.state(spec)["missing"] == []
    assert sorted(host.held) == sorted(before)


def test_the_comparison_tells_of_it_by_its_role(machine, tmp_path, monkeypatch):
    monkeypatch.setattr(kernel, "NOTE", str(tmp_path / "none.json"))
    machine.extras["packages"]["linux-generic"] = "5.15"
    assert machine.differences() == {}

    machine.plan["kernel_lock"] = "hold"

    assert machine.differences()["kernel_lock"] == ["linux-generic is not held"]
