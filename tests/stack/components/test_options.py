"""Options: in a plan only where a site asks for them, with every package named that they need."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucheck.knowledge import gpus, tables
from gpucheck.stack import StackSpec
from gpucheck.stack.components.dcgm import r23_cuda_majors
from gpucheck.stack.lock import lock, read_lock, write_lock
from gpucheck.stack.plan import Plan, plan
from gpucheck.stack.targets import target_of
from gpucheck.stack.text import plan_text, stack_text
from gpucheck.stack.types import DriverChoice
from gpucheck.stack.versions import cc
from tests.stack import asked
from tests.stack.hosts import host
from tests.stack.regenerate import GDRCOPY


def planned(system: str = "ubuntu-22.04", gpus: str = "t4-x1", **spec: Any) -> Plan:
    return asked.planned(StackSpec(**spec), system, gpus)


def specs(found: Plan, name: str) -> list[str]:
    return [str(package["spec"]) for package in found.components[name]["packages"]]


def test_packages_of_an_option_are_held_and_its_services_shown():
    dcgm, gdrcopy = planned(dcgm="auto"), planned(gdrcopy="auto", repositories=GDRCOPY)

    for found, name in ((dcgm, "dcgm"), (gdrcopy, "gdrcopy")):
        assert found.components[name]["holds"] == [package["name"] for package in found.components[name]["packages"]]
    assert "  nvidia-dcgm\n" in plan_text(dcgm)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.sampled_from([gpu.name for gpu in gpus()]), min_size=1, max_size=4),
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


def test_version_with_one_record_is_chosen_only_by_name_and_unconfirmed():
    named, range_ = planned(dcgm="4.6.1"), planned(dcgm="<4.7")

    assert named.stack.dcgm == "4.6.1"
    assert [r.because for r in named.stack.reasons if r.component == "dcgm" and not r.confirmed]
    assert range_.stack.dcgm == "4.6.0"
    assert not [r for r in range_.stack.reasons if r.component == "dcgm" and not r.confirmed]


def test_an_unknown_version_is_refused_with_the_known_one():
    conflict = asked.refusal(["T4"], "ubuntu-22.04", "dcgm=3.3")

    assert conflict.because == "no DCGM 3.3 is known"
    assert conflict.change == {"dcgm": "4.6.0"}


def test_the_debian_archive_leaves_it_out_with_its_reason_and_refuses_a_version():
    left = planned("debian-12", source="debian", dcgm="auto")

    assert "dcgm" not in left.components
    assert next(r.because for r in left.stack.reasons if r.component == "dcgm").startswith("omitted: the archive")
    assert asked.refusal(["T4"], "debian-12", "source=debian", "dcgm=4.6.0")


def test_a_lock_keeps_the_option_and_drops_it_with_the_spec():
    facts = [host("ubuntu-22.04", "t4-x1")]
    made = lock(StackSpec(dcgm="4.5.2"), facts)

    assert asked.reread(StackSpec(dcgm="4.5.2"), *facts) == made
    (group,) = lock(StackSpec(), facts, previous=made).groups.values()
    assert not group.stack.dcgm
    assert "dcgm" not in {r.component for r in group.stack.reasons}


def test_the_set_shows_it():
    assert "DCGM               4.6.0" in stack_text(asked.answer(["T4"], "ubuntu-22.04", "dcgm=auto"))


def test_gdrcopys_repository_has_the_key_that_the_site_states():
    found = planned(gdrcopy="auto", repositories=GDRCOPY)
    (own,) = [row for row in found.repositories if row["name"] == "gdrcopy"]

    assert own["key_fingerprint"] == "0123456789" * 4
    assert own["keyring"] == "/usr/share/keyrings/gdrcopy.gpg"


@pytest.mark.parametrize(
    ("wanted", "packages"),
    [
        ("2.5.1-1.el9", ["gdrcopy-kmod-2.5.1-1dkms.el9", "gdrcopy-2.5.1-1.el9"]),
        ("2.5.1", ["gdrcopy-kmod-2.5.1-1dkms", "gdrcopy-2.5.1-1"]),
        ("auto", ["gdrcopy-kmod", "gdrcopy"]),
    ],
)
def test_stated_gdrcopy_version_is_planned_with_its_revision(wanted, packages):
    """The kernel module's package has a word of its own in it."""
    found = planned("rocky-9", gdrcopy=wanted, repositories=GDRCOPY)
    guessed = [r for r in found.reasons if r.component == "gdrcopy" and not r.confirmed]

    assert specs(found, "gdrcopy") == packages
    assert [row["name"] for row in found.components["gdrcopy"]["services"]] == ["gdrcopy"]
    assert bool(guessed) is (wanted == "2.5.1")


@pytest.mark.parametrize("lacking", ["url", "key_url", "key_fingerprint"])
def test_gdrcopy_without_a_whole_repository_is_refused_with_what_to_do(lacking):
    own = {"gdrcopy": msgspec.structs.replace(GDRCOPY["gdrcopy"], **{lacking: None})}
    conflict = asked.refusal(["T4"], "ubuntu-22.04", spec=StackSpec(gdrcopy="auto", repositories=own))

    assert f"repositories: gdrcopy lacks {lacking}" in conflict.because
    assert "build its packages with the project's own scripts" in conflict.try_
    assert "or gdrcopy: none" in conflict.try_


def test_a_range_of_gdrcopy_is_refused_and_auto_offered():
    spec = StackSpec(gdrcopy=">=2.5", repositories=GDRCOPY)

    assert asked.refusal(["T4"], "ubuntu-22.04", spec=spec).change == {"gdrcopy": "auto"}


def test_a_lock_with_gdrcopy_still_holds_when_it_is_read_again():
    facts = [host("ubuntu-22.04", "t4-x1"), host("rocky-9", "a100-sxm4-x8", "b")]
    for wanted in ("auto", "2.5.1-1"):
        spec = StackSpec(gdrcopy=wanted, repositories=GDRCOPY)
        made = lock(spec, facts)

        assert write_lock(lock(spec, facts, previous=made)) == write_lock(made)
        assert isinstance(plan(read_lock(write_lock(made), "lock"), host="b"), Plan)
